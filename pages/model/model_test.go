package model

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/internal/race"
)

// member is a tensor of a file of tests.
type member struct {
	name, dtype, shape string
	data               []byte
}

// fileWith returns a .safetensors file.
func fileWith(metadata string, members ...member) []byte {
	header, data := "{ "+metadata, []byte(nil)
	for i, m := range members {
		if i > 0 || metadata != "" {
			header += ", "
		}
		header += fmt.Sprintf(`%q: {"shape": [%s], "dtype": %q, "data_offsets": [%d,%d]}`, m.name, m.shape, m.dtype, len(data), len(data)+len(m.data))
		data = append(data, m.data...)
	}
	header += " }  "
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), data...)
}

// weights returns n float32 of a normal distribution.
func weights(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, 0, 4*n)
	for range n {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(r.NormFloat64()*0.02)))
	}
	return b
}

// nudged returns weights of which a share have other mantissas.
func nudged(b []byte, seed uint64) []byte {
	b = bytes.Clone(b)
	r := rand.New(rand.NewPCG(seed, 2))
	for i := 0; i < len(b); i += 4 {
		if r.IntN(4) == 0 {
			b[i] ^= byte(r.IntN(256))
		}
	}
	return b
}

// bfloat16 returns the upper halves of float32.
func bfloat16(b []byte) (half []byte) {
	for ; len(b) > 0; b = b[4:] {
		half = append(half, b[2:4]...)
	}
	return half
}

// checkpoint writes a folder of two files with tensors of many shapes and types, and an index.
func checkpoint(t testing.TB, seed uint64) string {
	t.Helper()
	dir := t.TempDir()
	tied := bfloat16(weights(seed, 40*1000))
	one := fileWith(`"__metadata__": {"format": "pt", "é\n": "x"}`,
		member{"b.weight", "BF16", "40, 1000", tied}, member{"a", "F32", "300,33,7", weights(seed+1, 300*33*7)}, member{"scalar", "F64", "", weights(seed, 2)},
		member{"empty", "F32", "3,0", nil}, member{"bias", "F32", "5", weights(seed, 5)}, member{"mask", "BOOL", "7", []byte{0, 1, 0, 1, 1, 0, 1}})
	two := fileWith("", member{"lm_head", "BF16", "40,1000", tied}, member{"ids", "I64", "9000", make([]byte, 72000)}, member{"codes", "F4", "6", []byte{1, 2, 3}},
		member{"scales", "F8_E8M0", "9", []byte("123456789")}, member{"b.weight.again", "F16", "20,20", tied[:800]})
	write(t, dir, "model-2-of-2.safetensors", two)
	write(t, dir, "model-1-of-2.safetensors", one)
	write(t, dir, "model.safetensors.index.json", []byte(`{"metadata": {}, "weight_map": {"a": "model-1-of-2.safetensors"}}`))
	write(t, dir, "config.json", []byte("{}"))
	return dir
}

func write(t testing.TB, dir, name string, b []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func packed(t testing.TB, from string, o PackOptions) (string, *Packed) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "m.tc")
	p, err := Pack(context.Background(), from, out, o)
	if err != nil {
		t.Fatal(err)
	}
	return out, p
}

func open(t testing.TB, path string) *Model {
	t.Helper()
	m, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// same fails unless the unpacked files are those of a folder.
func sameFiles(t testing.TB, packed, folder string) {
	t.Helper()
	m, back := open(t, packed), t.TempDir()
	if err := m.Unpack(context.Background(), back, false, nil); err != nil {
		t.Fatal(err)
	}
	for _, f := range m.Files() {
		want, err := os.ReadFile(filepath.Join(folder, f.Name))
		got, err2 := os.ReadFile(filepath.Join(back, f.Name))
		if err != nil || err2 != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, want %d, %v, %v", f.Name, len(got), len(want), err, err2)
		}
	}
	if err := m.Verify(context.Background(), nil); err != nil {
		t.Error(err)
	}
}

func TestPack_FilesComeBackByteForByte(t *testing.T) {
	dir := checkpoint(t, 1)
	for _, o := range []PackOptions{{}, {Codec: "rank"}, {Codec: "none", Stage: "none", PageBytes: 4096}, {Codec: "sparse", Stage: "zstd", Workers: 1}} {
		out, p := packed(t, dir, o)
		sameFiles(t, out, dir)
		if p.Files != 3 || p.Tensors != 11 || p.Tied != 1 || len(p.Tables) != 8 || p.Hash != open(t, out).Hash() {
			t.Errorf("%+v", p)
		}
		if o.Codec == "" && p.Ratio < 1.2 {
			t.Errorf("ratio %.3f", p.Ratio)
		}
		if err := open(t, out).Unpack(context.Background(), dir, false, nil); !errors.Is(err, fs.ErrExist) {
			t.Errorf("files are replaced without force: %v", err)
		}
	}
	single := filepath.Join(dir, "model-1-of-2.safetensors")
	out, _ := packed(t, single, PackOptions{})
	sameFiles(t, out, dir)
	if _, err := Pack(context.Background(), dir, out, PackOptions{}); err != nil { // the next generation
		t.Fatal(err)
	}
	sameFiles(t, out, dir)
	if _, err := Pack(context.Background(), dir, dir, PackOptions{}); err == nil || !strings.Contains(err.Error(), "must be a new or empty directory") {
		t.Errorf("%v", err)
	}
}

// TestModel_ReadEqualsFiles reads random parts of all tensors, packed and not.
func TestModel_ReadEqualsFiles(t *testing.T) {
	dir := checkpoint(t, 2)
	out, _ := packed(t, dir, PackOptions{PageBytes: 16 << 10})
	raw, m := open(t, dir), open(t, out)
	r := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		var a, b []Want
		for range r.IntN(20) {
			i := r.IntN(len(m.Tensors()))
			n := m.Tensors()[i].Bytes()
			from := r.Int64N(n + 1)
			to := from + r.Int64N(n-from+1)
			a, b = append(a, Want{i, from, make([]byte, to-from)}), append(b, Want{i, from, make([]byte, to-from)})
		}
		if err := errors.Join(m.Read(context.Background(), a), raw.Read(context.Background(), b)); err != nil {
			t.Fatal(err)
		}
		for i := range a {
			if !bytes.Equal(a[i].Into, b[i].Into) {
				t.Fatalf("tensor %d from %d: %d bytes differ", a[i].Tensor, a[i].At, len(a[i].Into))
			}
		}
	}
	for _, w := range []Want{{-1, 0, nil}, {99, 0, nil}, {0, -1, nil}, {0, 1 << 40, nil}, {0, 79999, make([]byte, 2)}} {
		if err := m.Read(context.Background(), []Want{w}); err == nil {
			t.Errorf("%+v is read", w)
		}
	}
	if _, err := m.Lookup("nope"); err == nil || !strings.Contains(err.Error(), `tensor ("nope") must be one of`) {
		t.Error(err)
	}
}

func TestPack_OwnRowLengths(t *testing.T) {
	race.SkipSequential(t)
	// Columns of different sizes: codecs that know a column save more.
	r := rand.New(rand.NewPCG(5, 6))
	b := make([]byte, 0, 2000*300*4)
	scale := make([]float64, 300)
	for i := range scale {
		scale[i] = math.Exp2(float64(r.IntN(40) - 20))
	}
	for range 2000 {
		for _, s := range scale {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32((1+r.Float64())*s)))
		}
	}
	dir := t.TempDir()
	write(t, dir, "x.safetensors", fileWith("", member{"x", "F32", "2000,300", b}, member{"y", "F32", "10", weights(1, 10)}))
	out, p := packed(t, dir, PackOptions{})
	if len(p.Tables) != 2 || p.Tables[0].RowBytes != 1200 || p.Tables[1].RowBytes != flatRow {
		t.Errorf("%+v", p)
	}
	sameFiles(t, out, dir)
}

// TestPack_GoesOn interrupts a pack once a table is packed.
func TestPack_GoesOn(t *testing.T) {
	dir, out := checkpoint(t, 7), filepath.Join(t.TempDir(), "m.tc")
	ctx, stop := context.WithCancel(context.Background())
	half := func(stage string, done, all int64) {
		if strings.HasPrefix(stage, "packing") && done > all/2 {
			stop()
		}
	}
	if _, err := Pack(ctx, dir, out, PackOptions{Progress: half}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err := Open(out); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "the model is not complete") {
		t.Errorf("%v", err)
	}
	p, err := Pack(context.Background(), dir, out, PackOptions{})
	if err != nil || p.ResumedBytes == 0 {
		t.Fatalf("%+v, %v", p, err)
	}
	sameFiles(t, out, dir)
}

func TestPack_Deltas(t *testing.T) {
	race.SkipSequential(t)
	root := t.TempDir()
	data := weights(1, 200_000)
	var outs []string
	for step := range 5 {
		dir := filepath.Join(root, fmt.Sprintf("step-%d", step))
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		members := []member{{"w", "F32", "200,1000", data}, {"tied", "F32", "200,1000", data}, {"counter", "I64", "", []byte{byte(step), 0, 0, 0, 0, 0, 0, 0}}, {"half", "BF16", "200000", bfloat16(data)}}
		if step == 3 {
			members = append(members, member{"new", "F32", "3", weights(9, 3)})
		}
		write(t, dir, "model.safetensors", fileWith("", members...))
		o := PackOptions{KeepEvery: 3}
		if step == 0 {
			o.KeepEvery = 0
		} else {
			o.Base = outs[step-1]
		}
		outs = append(outs, dir+".tc")
		p, err := Pack(context.Background(), dir, outs[step], o)
		if err != nil {
			t.Fatal(err)
		}
		sameFiles(t, outs[step], dir)
		if whole := step%3 == 0; whole != (p.Base == nil) || !whole && p.Base.Depth != step%3 {
			t.Errorf("step %d: base %+v", step, p.Base)
		} else if !whole && p.Ratio < 4 {
			t.Errorf("step %d: ratio %.2f", step, p.Ratio)
		}
		data = nudged(data, uint64(step))
	}
	// The folder moves as a whole, and then the delta alone with its base beside it.
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(root, moved); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, filepath.Join(moved, "step-2.tc"), filepath.Join(moved, "step-2"))
	base, delta := filepath.Join(moved, "step-0.tc"), filepath.Join(moved, "step-1.tc")
	m := open(t, delta)
	want := []string{m.Hash().String(), m.Base().Hash.String()}
	refuse := func(what, path string, also ...string) {
		t.Helper()
		_, err := Open(path)
		if err == nil {
			t.Fatalf("%s: opened", what)
		}
		for _, part := range append(also, want...) {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v must have %q", what, err, part)
			}
		}
	}
	if err := os.Rename(base, base+".away"); err != nil {
		t.Fatal(err)
	}
	refuse("missing base", delta, "there is none at "+base)
	if _, err := Pack(context.Background(), filepath.Join(moved, "step-4"), base, PackOptions{}); err != nil {
		t.Fatal(err)
	}
	refuse("other base", delta, base+" has "+open(t, base).Hash().String())
	if _, err := Pack(context.Background(), filepath.Join(moved, "step-1"), base, PackOptions{Base: base}); err == nil || !strings.Contains(err.Error(), "must not be the model that is packed") {
		t.Error(err)
	}
}

// TestPack_DeltasOfEqualContents packs a checkpoint that has the contents of an earlier one, on top of it and of one between.
func TestPack_DeltasOfEqualContents(t *testing.T) {
	root := t.TempDir()
	data := weights(1, 3000)
	pack := func(name, base string, data []byte) error {
		o := PackOptions{Codec: "none"}
		if base != "" {
			o.Base = filepath.Join(root, base)
		}
		write(t, root, "w.safetensors", fileWith("", member{"w", "F32", "3000", data}))
		_, err := Pack(context.Background(), filepath.Join(root, "w.safetensors"), filepath.Join(root, name), o)
		return err
	}
	for _, p := range []struct {
		name, base string
		data       []byte
	}{{"a.tc", "", data}, {"b.tc", "a.tc", nudged(data, 1)}, {"c.tc", "b.tc", data}, {"d.tc", "c.tc", data}} {
		if err := pack(p.name, p.base, p.data); err != nil {
			t.Fatal(err)
		}
		sameFiles(t, filepath.Join(root, p.name), root)
	}
	if err := pack("a.tc", "c.tc", data); err == nil || !strings.Contains(err.Error(), "nor lie on it") {
		t.Errorf("packed over the base of the base: %v", err)
	}
	// A delta is opened from within, and packed there.
	t.Chdir(filepath.Join(root, "d.tc"))
	sameFiles(t, ".", root)
	if err := os.Mkdir(filepath.Join(root, "e.tc"), 0o777); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Join(root, "e.tc"))
	if _, err := Pack(context.Background(), filepath.Join(root, "w.safetensors"), ".", PackOptions{Base: "../d.tc"}); err != nil {
		t.Fatal(err)
	}
	if m := open(t, "."); m.Base().Path != "d.tc" || m.Base().Depth != 4 {
		t.Errorf("%+v", m.Base())
	}
	// A circle: the model that d lies on becomes d.
	if err := os.RemoveAll(filepath.Join(root, "c.tc")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("d.tc", filepath.Join(root, "c.tc")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open("."); err == nil || !strings.Contains(err.Error(), "a delta of the model itself") {
		t.Errorf("a circle: %v", err)
	}
}

// TestIsPacked_FilesOfOtherPrograms has a checkpoint beside files of the names that packed models have.
func TestIsPacked_FilesOfOtherPrograms(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "model.safetensors", fileWith("", member{"w", "F32", "30", weights(1, 30)}))
	write(t, dir, manifestFile, []byte(`{"format": "layers-model", "modelTopology": {}}`))
	write(t, dir, packingFile, []byte(`{"boxes": 3}`))
	if IsPacked(dir) || len(open(t, dir).Tensors()) != 1 {
		t.Error("counts as packed")
	}
	out, _ := packed(t, dir, PackOptions{})
	if !IsPacked(out) {
		t.Error("does not count as packed")
	}
	if _, err := Pack(context.Background(), dir, dir, PackOptions{}); err == nil {
		t.Error("packed over files of other programs")
	}
}

// TestOpen_DamagedModel flips bits: of the manifest, which opening finds, and of a page, which Verify finds.
func TestOpen_DamagedModel(t *testing.T) {
	race.SkipSequential(t)
	dir := checkpoint(t, 8)
	out, _ := packed(t, dir, PackOptions{})
	path := filepath.Join(out, manifestFile)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		bad := bytes.Clone(good)
		bad[r.IntN(len(bad))] ^= 1 << r.IntN(8)
		write(t, out, manifestFile, bad)
		m, err := Open(out)
		if err != nil {
			continue
		}
		if err := m.Verify(context.Background(), nil); err == nil && m.hash != open(t, out).hash {
			t.Error("a changed manifest is taken")
		}
		m.Close()
	}
	write(t, out, manifestFile, good)
	pagesFile := filepath.Join(out, "m1", "0", "g1", "pages-00000")
	b, err := os.ReadFile(pagesFile)
	if err != nil {
		t.Fatal(err)
	}
	b[100] ^= 1
	write(t, filepath.Dir(pagesFile), "pages-00000", b)
	if err := open(t, out).Verify(context.Background(), nil); err == nil {
		t.Error("a damaged page is taken")
	}
}

func FuzzParseManifest(f *testing.F) {
	dir := checkpoint(f, 9)
	out, _ := packed(f, dir, PackOptions{Codec: "none"})
	b, err := os.ReadFile(filepath.Join(out, manifestFile))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"format":"tensorcache model","version":1,"generation":1,"files":[{"name":"../x","text":"{}"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseManifest(b)
		if err != nil {
			return
		}
		for i, file := range m.Files {
			if strings.ContainsAny(file.Name, "/\\") || !file.Index && len(file.Tensors) != len(m.header[i].Entries) {
				t.Errorf("%+v is taken", file)
			}
		}
	})
}
