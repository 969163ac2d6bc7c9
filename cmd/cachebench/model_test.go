package main

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/bench/papers"
	"github.com/tensorcache/tensorcache/pages/model"
)

// TestPack_Model goes the way of a user: pack, verify, unpack, a delta, and rows of one tensor.
func TestPack_Model(t *testing.T) {
	t.Parallel()
	dir, _ := checkpoint(t)
	out := filepath.Join(t.TempDir(), "m.tc")
	p := decode[model.Packed](t, succeed(t, "pack", dir, "--out", out, "--json"))
	if p.Files != 3 || p.Tensors != 8 || p.Bytes != 4*300*66 || p.Base != nil {
		t.Errorf("%+v", p)
	}
	if v := decode[experiment.ModelInfo](t, succeed(t, "pack", "verify", out, "--json")); v.Hash != p.Hash || v.Pages == 0 {
		t.Errorf("%+v", v)
	}
	back := filepath.Join(t.TempDir(), "back")
	succeed(t, "pack", "unpack", out, "--out", back)
	for _, name := range []string{"model-0.safetensors", "model-1.safetensors", "model.safetensors.index.json"} {
		if readFile(t, filepath.Join(back, name)) != readFile(t, filepath.Join(dir, name)) {
			t.Errorf("%s differs", name)
		}
	}
	refuseWith(t, "--force replaces it", "pack", "unpack", out, "--out", back)
	succeed(t, "pack", "unpack", out, "--out", back, "--force")
	small := []string{"--codec", "none", "--batches", "3", "--train-batches", "2", "--batch-size", "8"}
	if r := run(t, append(small, "--features", out+":ngram/*.weight+ngram/*.scale")...); r.Table.Rows != 1200 || r.Table.RowBytes != 66 {
		t.Errorf("%+v", r.Table)
	}
	refuseWith(t, "name the tensor, "+dir+":NAME", "pack", dir, "--out", out, "--name", "x")
	refuseWith(t, "must be a directory for all tensors", "pack", dir, "--out", "redis://127.0.0.1:1/x")
	refuseWith(t, "are of models", "pack", dir+":ngram/9.weight", "--out", out+"2", "--base", out)

	file := filepath.Join(dir, "model-0.safetensors")
	delta := filepath.Join(t.TempDir(), "delta.tc")
	d := decode[model.Packed](t, succeed(t, "pack", file, "--base", out, "--out", delta, "--json"))
	if d.Base == nil || d.Base.Hash != p.Hash || d.Ratio < 100 {
		t.Errorf("%+v", d)
	}
	if text := succeed(t, "pack", "verify", delta); !strings.Contains(text, "no fault") || !strings.Contains(text, "base") {
		t.Error(text)
	}
	if whole := decode[model.Packed](t, succeed(t, "pack", file, "--base", delta, "--keep-base-every", "2", "--out", delta+"2", "--json")); whole.Base != nil {
		t.Errorf("%+v", whole.Base)
	}
	if err := os.RemoveAll(out); err != nil {
		t.Fatal(err)
	}
	refuseWith(t, p.Hash.String()+", and there is none at "+out, "pack", "verify", delta)
}

// TestPack_ModelOfOneTensor: the file of one tensor is a table whose rows are served from pages, and a model, until the table is packed anew.
func TestPack_ModelOfOneTensor(t *testing.T) {
	t.Parallel()
	tensor := func(factor uint32) string {
		rows := make([]byte, 0, 400*16)
		for i := range uint32(400 * 4) {
			rows = binary.LittleEndian.AppendUint32(rows, factor*i)
		}
		return write(t, "x.safetensors", tensorsOf(t, tensorMember{"x", "I32", []int{400, 4}, rows}))
	}
	file := tensor(1)
	out := filepath.Join(t.TempDir(), "x.tc")
	if p := decode[experiment.Packed](t, succeed(t, "pack", file, "--out", out, "--json")); p.Rows != 400 || p.RowBytes != 16 {
		t.Errorf("%+v", p)
	}
	if r := decode[experiment.Result](t, succeed(t, "run", "--features", out, "--batches", "3", "--train-batches", "2", "--batch-size", "8", "--verify", "--json")); r.Table.Rows != 400 || r.Mismatches != 0 || r.Tiers == nil {
		t.Errorf("%+v", r.Table)
	}
	back := filepath.Join(t.TempDir(), "back")
	succeed(t, "pack", "unpack", out, "--out", back)
	if readFile(t, filepath.Join(back, "x.safetensors")) != readFile(t, file) {
		t.Error("the file differs")
	}
	delta := filepath.Join(t.TempDir(), "delta.tc")
	other := tensor(3)
	if d := decode[model.Packed](t, succeed(t, "pack", other, "--base", out, "--out", delta, "--json")); d.Base == nil {
		t.Errorf("%+v", d)
	}
	succeed(t, "pack", "verify", delta)
	succeed(t, "pack", strings.TrimSuffix(other, ".safetensors")+".safetensors:x", "--out", out, "--name", "x") // the next generation, of other rows
	refuseWith(t, "the table has changed since it was packed", "pack", "unpack", out, "--out", back+"2")
	refuseWith(t, "the table has changed since it was packed", "pack", "verify", delta)
}

func TestReproduce_Claims(t *testing.T) {
	t.Parallel()
	refuse(t, `paper ("lempel") must be ibp, sleek, ndzip, buddy, zipnn or all`, "reproduce", "lempel")
	r := decode[papers.Result](t, succeed(t, "reproduce", "ndzip", "--json"))
	measured := 0
	for _, c := range r.Claims {
		if c.Paper != "ndzip" || c.Where == "" || c.Claimed == "" || (c.Measured == "") != (c.Verdict == papers.NeedsGPU) {
			t.Errorf("%+v", c)
		}
		if c.Measured != "" {
			measured++
		}
	}
	if measured == 0 {
		t.Error("nothing was measured")
	}
}
