package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/bench/experiment"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/pages"
	"github.com/tensorcache/tensorcache/pages/delta"
)

// TestPack_RoundTrip: rows of all formats come back as they were, in the order of their numbers.
func TestPack_RoundTrip(t *testing.T) {
	t.Parallel()
	const rows, columns = 3000, 16
	data := smooth(rows * columns)
	array := npyOf(t, dtype.Float32, data, rows, columns)
	graph := write(t, "g.npz", graphOf(t, rows))
	shards := filepath.Dir(write(t, "none", nil))
	for i, part := range [][]byte{data[:700*64], data[700*64 : 701*64], data[701*64:]} {
		if err := os.WriteFile(filepath.Join(shards, fmt.Sprintf("s-%d.npy", 9+i)), npyOf(t, dtype.Float32, part, len(part)/64, columns), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		path, array string
		flags       []string
		out         string
	}{
		"npy":         {write(t, "a.npy", array), "", nil, "o.npy"},
		"deflated":    {write(t, "a.npz", npzOf(t, member{"labels", ints(t, 1, 2)}, member{"features", array})), "", []string{"--codec", "none"}, "o.npy"},
		"named":       {write(t, "a.npz", npzOf(t, member{"x", array}, member{"y", array})), ":y", []string{"--codec", "rank", "--stage", "zstd"}, "o.npy"},
		"bfloat16":    {write(t, "a.safetensors", tensorsOf(t, tensorMember{"x", "BF16", []int{rows, 2 * columns}, data})), "", []string{"--codec", "rank"}, "o.safetensors"},
		"float8":      {write(t, "a.safetensors", tensorsOf(t, tensorMember{"x", "F8_E4M3", []int{rows, 4 * columns}, data})), "", []string{"--codec", "zipnn"}, "o.safetensors"},
		"bf16 npy":    {write(t, "a.safetensors", tensorsOf(t, tensorMember{"x", "BF16", []int{rows, 2 * columns}, data})), "", []string{"--codec", "rank"}, "o.npy"},
		"shards":      {shards + "/s-*.npy", "", []string{"--codec", "rank"}, "o.npy"},
		"degree":      {write(t, "a.npy", array), "", []string{"--codec", "ibp4", "--order", "degree", "--graph", graph}, "o.npy"},
		"frequency":   {write(t, "a.npy", array), "", []string{"--codec", "none", "--order", "frequency", "--scratch", t.TempDir(), "--ids", write(t, "ids", idLines([]int{7, 7, 2999, 8}))}, "o.npy"},
		"accesses":    {write(t, "a.npy", array), "", []string{"--codec", "none", "--order", "frequency", "--ids", write(t, "ids.npy", ints(t, 7, 7, 2999, 8))}, "o.npy"},
		"order file":  {write(t, "a.npy", array), "", []string{"--codec", "none", "--order", write(t, "order.npy", ints(t, 5, 2999, 0))}, "o.npy"},
		"order text":  {write(t, "a.npy", array), "", []string{"--codec", "none", "--order", write(t, "order", idLines(rand.New(rand.NewPCG(1, 1)).Perm(rows)))}, "o.npy"},
		"small pages": {write(t, "a.npy", array), "", []string{"--codec", "none", "--page", "64KiB", "--stage", "none", "--name", "x"}, "o.npy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "table.tc")
			p := decode[experiment.Packed](t, succeed(t, append([]string{"pack", c.path + c.array, "--out", dir, "--json"}, c.flags...)...))
			if p.Generation != 1 || p.Rows != rows || p.Ordered != strings.Contains(strings.Join(c.flags, " "), "--order") || p.PagesBytes <= 0 || p.Ratio <= 0 {
				t.Errorf("%+v", p)
			}
			if name == "small pages" && (p.Name != "x" || p.LongestPage > 64<<10 || p.Pages < 3) || name == "npy" && p.Name != "a" || name == "shards" && p.Name != "s-9" {
				t.Errorf("%+v", p)
			}
			v := decode[experiment.VerifiedPages](t, succeed(t, "pack", "verify", dir, "--json"))
			if v.Pages != p.Pages || v.StoredBytes != p.StoredBytes || (v.StagedPages > 0) != (p.Stage != "none") {
				t.Errorf("%+v, %+v", v, p)
			}
			out := filepath.Join(t.TempDir(), c.out)
			succeed(t, "pack", "unpack", dir, "--out", out)
			if got := readFile(t, out); !strings.HasSuffix(got, string(data)) {
				t.Error("the rows differ")
			}
			if got := readFile(t, out); name == "float8" && !strings.Contains(got[:100], `"F8_E4M3"`) {
				t.Errorf("header %q", got[:100])
			}
			if c.out == "o.npy" && !bytes.Equal([]byte(readFile(t, out)[:10]), array[:10]) {
				t.Errorf("header %q", readFile(t, out)[:80])
			}
			copied := filepath.Join(t.TempDir(), "copy")
			again := decode[experiment.Packed](t, succeed(t, "pack", dir, "--out", copied, "--json"))
			if again.PagesBytes != p.PagesBytes || again.Name != p.Name {
				t.Errorf("%+v, %+v", again, p)
			}
			succeed(t, "pack", "verify", copied)
		})
	}
}

// graphOf returns a graph whose vertex i points to i/2.
func graphOf(t *testing.T, vertices int) []byte {
	indptr, indices := []int64{0}, []int64{}
	for i := range vertices {
		indices = append(indices, int64(i/2))
		indptr = append(indptr, int64(i+1))
	}
	return npzOf(t, member{"indptr", ints(t, indptr...)}, member{"indices", ints(t, indices...)})
}

// TestPack_Again: a directory gets the next generation, and a corrupt page is found.
func TestPack_Again(t *testing.T) {
	t.Parallel()
	a, b := write(t, "a.npy", npyOf(t, dtype.Float32, smooth(4096), 64, 64)), write(t, "b.npy", npyOf(t, dtype.Float32, noise(4*4096), 64, 64))
	dir := filepath.Join(t.TempDir(), "t")
	succeed(t, "pack", a, "--out", dir, "--codec", "none")
	if p := decode[experiment.Packed](t, succeed(t, "pack", b, "--out", dir, "--codec", "none", "--force", "--json")); p.Generation != 2 || p.Name != "b" {
		t.Errorf("%+v", p)
	}
	out := write(t, "o.npy", []byte("other"))
	succeed(t, "pack", "unpack", dir, "--out", out, "--force")
	if !strings.HasSuffix(readFile(t, out), string(noise(4*4096))) {
		t.Error("the rows are not those of the new generation")
	}
	f, err := os.OpenFile(filepath.Join(dir, "g2", "pages-00000"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteAt([]byte("damage"), 1000)
	f.Close()
	refuse(t, "pages: files "+dir+": table b page 0: corrupt page: wrong checksum", "pack", "verify", dir)
	refuse(t, "pages: files "+dir+": table b page 0: corrupt page: wrong checksum", "pack", "unpack", dir, "--out", filepath.Join(t.TempDir(), "o.npy"))
}

// TestPack_OverUpdates: a table that has updated rows in its log is not replaced, as they would be taken for the new table's. Once they are
// dropped, it is.
func TestPack_OverUpdates(t *testing.T) {
	t.Parallel()
	a := write(t, "a.npy", npyOf(t, dtype.Float32, smooth(4096), 64, 64))
	dir := filepath.Join(t.TempDir(), "t")
	succeed(t, "pack", a, "--out", dir, "--codec", "none")
	m, err := pages.ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	log, err := delta.Open(filepath.Join(dir, "delta"), m, delta.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Append([]delta.Row{{Row: 5, Stored: make([]byte, 256)}}); err != nil {
		t.Fatal(err)
	}
	open := "--out (" + dir + "): delta: " + filepath.Join(dir, "delta") + ": another process has the log: lock " + filepath.Join(dir, "delta", "lock") + ": resource temporarily unavailable"
	refuse(t, open, "pack", a, "--out", dir)
	log.Close()
	has := "--out (" + dir + ") has 1 updated rows in " + filepath.Join(dir, "delta") + " that are not in its pages: they would replace rows of the new table; remove that folder to lose them"
	refuse(t, has, "pack", a, "--out", dir)
	refuse(t, has, "pack", dir, "--out", dir)
	if err := os.RemoveAll(filepath.Join(dir, "delta")); err != nil {
		t.Fatal(err)
	}
	if p := decode[experiment.Packed](t, succeed(t, "pack", a, "--out", dir, "--json")); p.Generation != 2 {
		t.Errorf("%+v", p)
	}
}

func TestPack_BadInput(t *testing.T) {
	t.Parallel()
	good := write(t, "a.npy", npyOf(t, dtype.Float32, smooth(80), 10, 8))
	bf16 := write(t, "a.safetensors", tensorsOf(t, tensorMember{"x", "BF16", []int{10, 8}, smooth(40)}))
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	packed := filepath.Join(dir, "packed")
	succeed(t, "pack", bf16, "--out", packed, "--codec", "none")
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "thesis.tex"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	npyFolder := filepath.Join(dir, "folder.npy")
	if err := os.Mkdir(npyFolder, 0o700); err != nil {
		t.Fatal(err)
	}
	graph, deflated := write(t, "g.npz", graphOf(t, 9)), write(t, "a.npz", npzOf(t, member{"x", npyOf(t, dtype.Float32, smooth(80), 10, 8)}))
	twice := write(t, "order", []byte("1\n2\n1\n"))
	for _, c := range []struct {
		want string
		args []string
	}{
		{"npy: missing.npy: open: no such file or directory", []string{"pack", "missing.npy", "--out", out}},
		{`--out ("") must not be empty: leave it out`, []string{"pack", good, "--out", ""}},
		{"--out (" + good + ") must be a directory, one to be made, or the address of a cluster", []string{"pack", good, "--out", good}},
		{`required flag(s) "out" not set`, []string{"pack", good}},
		{"pack: the table must be given: pack FILE, or --features FILE", []string{"pack", "--out", out}},
		{"pages: " + full + ": must be a new or empty directory, or one of page files (it has thesis.tex)", []string{"pack", good, "--out", full}},
		{`--page ("1KiB") must be 4KiB to 1MiB`, []string{"pack", good, "--out", out, "--page", "1KiB"}},
		{`pages: stage ("gzip") must be one of none, zstd, lz4, planes, or auto`, []string{"pack", good, "--out", out, "--stage", "gzip"}},
		{`--order ("") must not be empty: leave it out`, []string{"pack", good, "--out", out, "--order", ""}},
		{`--scratch ("") must not be empty: leave it out`, []string{"pack", good, "--out", out, "--scratch", ""}},
		{"--scratch (" + dir + ") must be a folder that there is, and be given with --order", []string{"pack", good, "--out", out, "--scratch", dir}},
		{"--scratch (/nowhere) must be a folder that there is, and be given with --order", []string{"pack", good, "--out", out, "--order", twice, "--scratch", "/nowhere"}},
		{"--order degree needs --graph", []string{"pack", good, "--out", out, "--order", "degree"}},
		{"--order frequency needs --ids", []string{"pack", good, "--out", out, "--order", "frequency"}},
		{"--graph means nothing without --order degree", []string{"pack", good, "--out", out, "--graph", "g.npz"}},
		{"--order (" + twice + "): pages: order: row 1 at position 2 must be there once only", []string{"pack", good, "--out", out, "--order", twice}},
		{"--codec, --page, --stage, --order, --scratch and --name mean nothing for " + packed + ", whose pages are copied as they are", []string{"pack", packed, "--out", out, "--codec", "none"}},
		{"--out (" + npyFolder + ") must be a regular file, or none yet", []string{"pack", "unpack", packed, "--out", npyFolder}},
		{"--out (" + dir + "/x.txt) must end in .npy or .safetensors", []string{"pack", "unpack", packed, "--out", dir + "/x.txt"}},
		{"--out (" + filepath.Join(packed, "g1", "o.npy") + ") must not lie in the table's folder (" + packed + ")", []string{"pack", "unpack", packed, "--out", filepath.Join(packed, "g1", "o.npy")}},
		{"--out (" + good + ") exists: --force replaces it", []string{"pack", "unpack", packed, "--out", good}},
		{`--page ("0") must be 4KiB to 1MiB`, []string{"pack", good, "--out", out, "--page", "0"}},
		{`--page ("") must not be empty: leave it out`, []string{"pack", good, "--out", out, "--page", ""}},
		{"--workers (-1) must be 1 to 8, or 0 for one a processor", []string{"pack", good, "--out", out, "--workers", "-1"}},
		{"--workers (99) must be 1 to 8, or 0 for one a processor", []string{"pack", good, "--out", out, "--workers", "99"}},
		{"--graph (" + graph + "): vertices (9) must be as many as table " + good + " has rows (10)", []string{"pack", good, "--out", out, "--order", "degree", "--graph", graph}},
		{"--order (degree) needs a file whose rows can be read in any order, and " + deflated + " is compressed or in Fortran order: write it anew with np.save or np.savez, np.ascontiguousarray(x)",
			[]string{"pack", deflated, "--out", out, "--order", "degree", "--graph", graph}},
		{"--out (" + packed + ") has table a, rows of 16 B (bfloat16), and the new one is a, rows of 32 B (float32): take another place, or --force to replace it", []string{"pack", good, "--out", packed}},
		{"pages: " + full + ": not a table of page files: stat " + filepath.Join(full, "manifest") + ": no such file or directory", []string{"pack", "verify", full}},
	} {
		refuse(t, c.want, c.args...)
	}
	if left, err := os.ReadDir(out); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("refused packs left %v, %v", left, err)
	}
}

// TestPack_SaysWhy: a codec that auto picked comes with the reasons, as in a run.
func TestPack_SaysWhy(t *testing.T) {
	t.Parallel()
	file := write(t, "a.npy", npyOf(t, dtype.Float32, smooth(1000*32), 1000, 32))
	p := decode[experiment.Packed](t, succeed(t, "pack", file, "--out", filepath.Join(t.TempDir(), "t"), "--json"))
	if c := p.Choice; c == nil || c.Codec != p.Codec || c.Reason == "" || len(c.Candidates) < 3 {
		t.Errorf("%+v", p.Choice)
	}
	text := succeed(t, "pack", file, "--out", filepath.Join(t.TempDir(), "t"))
	if !strings.Contains(text, p.Codec+", picked by auto for "+p.Choice.Machine+": "+p.Choice.Reason) || !strings.Contains(text, "ns a hit/a miss: ") {
		t.Errorf("%s", text)
	}
	if p := decode[experiment.Packed](t, succeed(t, "pack", file, "--out", filepath.Join(t.TempDir(), "t"), "--codec", "none", "--json")); p.Choice != nil {
		t.Errorf("%+v", p.Choice)
	}
}

// checkpoint writes a checkpoint of two files, each with two tensors of float8 values and the scales of another file's, and returns its folder and the rows joined.
func checkpoint(t *testing.T) (dir string, rows []byte) {
	t.Helper()
	const tensors, each, values, scales = 4, 300, 64, 2
	dir = t.TempDir()
	data := noise(tensors * each * (values + scales))
	part := func(i, from, to int) (b []byte) { // of each row of a tensor
		for r := range each {
			b = append(b, data[(i*each+r)*(values+scales):][from:to]...)
		}
		return b
	}
	var index []string
	for f := range 2 {
		file := fmt.Sprintf("model-%d.safetensors", f)
		var members []tensorMember
		for _, i := range []int{2 * f, 2*f + 1} {
			members = append(members, tensorMember{fmt.Sprintf("ngram/%d.weight", 9+i), "F8_E4M3", []int{each, values}, part(i, 0, values)})
			j := (i + 2) % tensors
			members = append(members, tensorMember{fmt.Sprintf("ngram/%d.scale", 9+j), "F8_E8M0", []int{each, scales}, part(j, values, values+scales)})
			index = append(index, fmt.Sprintf(`"ngram/%d.weight":%q,"ngram/%d.scale":%q`, 9+i, file, 9+j, file))
		}
		if err := os.WriteFile(filepath.Join(dir, file), tensorsOf(t, members...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), []byte(`{"weight_map":{`+strings.Join(index, ",")+"}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, data
}

// TestPack_Checkpoint: a checkpoint of several files is a table for pack, run and plan; a pack goes on only with the same files.
func TestPack_Checkpoint(t *testing.T) {
	t.Parallel()
	dir, rows := checkpoint(t)
	features := dir + ":ngram/*.weight+ngram/*.scale"
	out := filepath.Join(t.TempDir(), "t.tc")
	p := decode[experiment.Packed](t, succeed(t, "pack", features, "--out", out, "--codec", "zipnn", "--json"))
	if p.Name != filepath.Base(dir) || p.Rows != 1200 || p.RowBytes != 66 || p.DType != "float8_e4m3fn*64,float8_e8m0fnu*2" {
		t.Errorf("%+v", p)
	}
	back := filepath.Join(t.TempDir(), "o.npy")
	succeed(t, "pack", "unpack", out, "--out", back)
	if got := readFile(t, back); !strings.HasSuffix(got, string(rows)) {
		t.Error("the rows differ")
	}
	small := []string{"--features", features, "--codec", "none", "--batches", "3", "--train-batches", "2", "--batch-size", "8"}
	if r := run(t, small...); r.Table.Rows != 1200 || r.Table.DType != p.DType {
		t.Errorf("%+v", r.Table)
	}
	if res := decode[experiment.PlanResult](t, succeed(t, slices.Concat([]string{"plan", "--json", "--policy", "static-freq", "--dtype", "float8_e4m3fn*64,uint8*2"}, small)...)); res.Table.DType != "float8_e4m3fn*64,uint8*2" || res.SampledRows != 0 {
		t.Errorf("%+v", res)
	}
	refuse(t, "safetensors: "+dir+": tensors must be named behind a colon, as in DIR:model.*.weight+model.*.scale", "run", "--features", dir)
	if err := os.Remove(filepath.Join(dir, "model-1.safetensors")); err != nil {
		t.Fatal(err)
	}
	refuse(t, "safetensors: "+features+`: file "model-1.safetensors", where the index has tensor "ngram/9.scale": open: no such file or directory`, "run", "--features", features)
}
