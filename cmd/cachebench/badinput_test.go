package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/dtype"
)

func TestRun_BadFiles(t *testing.T) {
	t.Parallel()
	good := npyOf(t, dtype.Float32, smooth(80), 10, 8)
	goodNPZ := npzOf(t, member{"features", good})
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	graph := func(indptr, indices []byte) []byte {
		return npzOf(t, member{"indptr", indptr}, member{"indices", indices})
	}
	for name, b := range map[string][]byte{
		"ok.npy":          good,
		"truncated.npy":   good[:len(good)-7],
		"trailing.npy":    append(bytes.Clone(good), 1, 2, 3),
		"header.npy":      good[:30],
		"empty.npy":       nil,
		"text.npy":        []byte("hello world"),
		"truncated.npz":   goodNPZ[:len(goodNPZ)/2],
		"member.npz":      npzOf(t, member{"features", good[:len(good)-4]}),
		"two.npz":         npzOf(t, member{"a", good}, member{"b", good}),
		"object.npy":      rawNPY("'|O'", "False", "(2, 2)", make([]byte, 32)),
		"string.npy":      rawNPY("'<U4'", "False", "(2, 2)", make([]byte, 64)),
		"complex.npy":     rawNPY("'<c8'", "False", "(2, 2)", make([]byte, 32)),
		"void.npy":        rawNPY("'|V4'", "False", "(2, 2)", make([]byte, 8)),
		"fields.npy":      rawNPY("[('a', 'i1'), ('b', '>f4')]", "False", "(2, 2)", make([]byte, 20)),
		"rank0.npy":       rawNPY("'<f4'", "False", "()", make([]byte, 4)),
		"rank1.npy":       npyOf(t, dtype.Float32, make([]byte, 20), 5),
		"rows0.npy":       npyOf(t, dtype.Float32, nil, 0, 4),
		"columns0.npy":    npyOf(t, dtype.Float32, nil, 4, 0),
		"mib.npy":         npyOf(t, dtype.Uint8, make([]byte, 2<<20), 2, 1<<20),
		"labels.npy":      npyOf(t, dtype.Int64, make([]byte, 80), 10, 1),
		"two.safetensors": tensorsOf(t, tensorMember{"a", "F32", []int{10, 8}, smooth(80)}, tensorMember{"b", "F32", []int{10, 8}, smooth(80)}),
		"one.safetensors": tensorsOf(t, tensorMember{"a", "F32", []int{80}, smooth(80)}),
		"cut.safetensors": tensorsOf(t, tensorMember{"a", "F32", []int{10, 8}, smooth(80)})[:300],
		"fp4.safetensors": tensorsOf(t, tensorMember{"a", "F4", []int{10, 8}, make([]byte, 40)}),
		"ids":             []byte("0\n1\n9\n1\n"),
		"ids-empty":       nil,
		"ids-comments":    []byte("\n# none\n"),
		"ids-negative":    []byte("0\n-1\n10\n"),
		"ids-beyond":      []byte("0\n3\n10\n11\n9\n"),
		"ids-fraction":    []byte("0\n1.5\n"),
		"g.npz":           graph(ints(t, 0, 2, 3, 3), ints(t, 1, 2, 0)),
		"decreasing.npz":  graph(ints(t, 0, 3, 2, 3), ints(t, 1, 2, 0)),
		"index-high.npz":  graph(ints(t, 0, 2, 3, 3), ints(t, 1, 3, 0)),
		"index-neg.npz":   graph(ints(t, 0, 2, 3, 3), ints(t, 1, -1, 0)),
		"start.npz":       graph(ints(t, 1, 2, 3, 3), ints(t, 1, 2, 0)),
		"end.npz":         graph(ints(t, 0, 2, 3, 9), ints(t, 1, 2, 0)),
		"no-indices.npz":  npzOf(t, member{"indptr", ints(t, 0, 1)}),
		"floats.npz":      graph(npyOf(t, dtype.Float32, smooth(3), 3), ints(t, 0)),
		"vertices.npz":    graph(ints(t, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1), ints(t, 0)),
		"fewer.npz":       graph(ints(t, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1), ints(t, 0)),
		"one-indptr.npz":  graph(ints(t, 0), ints(t, 0)),
		"not-an-npz.json": []byte("{}"),
		"ids.npy":         ints(t, 1, 9, 10),
		"negative.npy":    ints(t, 1, -1),
		"ids-floats.npy":  npyOf(t, dtype.Float32, smooth(3), 3),
		"ids-2d.npy":      npyOf(t, dtype.Int32, smooth(6), 3, 2),
		"ids-cut.npy":     ints(t, 1, 2, 3)[:140],
	} {
		if err := os.WriteFile(in(name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"folder", "folder.csv"} {
		if err := os.Mkdir(in(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// In a wanted text, @ is the folder of the files.
	for _, c := range []struct{ flag, file, want string }{
		{"features", "missing.npy", "npy: @missing.npy: open: no such file or directory"},
		{"features", "truncated.npy", "npy: @truncated.npy: data bytes (313) must be 320 for shape (10, 8) of float32: truncated"},
		{"features", "trailing.npy", "npy: @trailing.npy: trailing bytes (3) must be 0: shape (10, 8) of float32 needs 320 bytes"},
		{"features", "header.npy", "npy: @header.npy: header bytes (30) must be 128: truncated"},
		{"features", "empty.npy", "npy: @empty.npy: file (0 bytes) must not be empty"},
		{"features", "text.npy", `npy: @text.npy: first bytes ("hello ") must be "\x93NUMPY" of an .npy file or "PK" of an .npz archive`},
		{"features", "truncated.npz", fmt.Sprintf("npy: @truncated.npz: archive (%d bytes) must be a complete zip file: zip: not a valid zip file", len(goodNPZ)/2)},
		{"features", "member.npz", "npy: @member.npz:features: data bytes (316) must be 320 for shape (10, 8) of float32: truncated"},
		{"features", "two.npz", `npy: @two.npz: arrays of rank 2 or more (2) must be one, or be chosen as FILE.npz:ARRAY from "a", "b"`},
		{"features", "two.npz:c", `npy: @two.npz: array ("c") must be one of "a", "b"`},
		{"features", "object.npy", `npy: @object.npy: dtype ("|O") must be one of ` + supported},
		{"features", "string.npy", `npy: @string.npy: dtype ("<U4") must be one of ` + supported},
		{"features", "complex.npy", `npy: @complex.npy: dtype ("<c8") must be one of ` + supported},
		{"features", "fields.npy", `npy: @fields.npy: structured dtype ([['a', 'i1'], ['b', '>f4']]): field 1 ("b", ">f4") must be little-endian`},
		{"features", "void.npy", `npy: @void.npy: dtype ("|V4") must be one of ` + supported},
		{"features", "rank0.npy", "npy: @rank0.npy: rank (0) of shape () must be at least 2"},
		{"features", "rank1.npy", "npy: @rank1.npy: rank (1) of shape (5,) must be at least 2"},
		{"features", "rows0.npy", "npy: @rows0.npy: shape (0, 4) must have axes of at least 1"},
		{"features", "columns0.npy", "npy: @columns0.npy: shape (4, 0) must have axes of at least 1"},
		{"features", "mib.npy", "dataset: @mib.npy: row (1048576 bytes) must be shorter than 1 MiB (1048576)"},
		{"features", "labels.npy", "dataset: @labels.npy: element type (int64) must be float32 or float64 to be cast to bf16"},
		{"features", "two.safetensors", `safetensors: @two.safetensors: tensors of rank 2 or more (2) must be one, or be chosen as FILE.safetensors:NAME from "a", "b"`},
		{"features", "two.safetensors:c", `safetensors: @two.safetensors: tensor ("c") must be one of "a", "b"`},
		{"features", "one.safetensors", "safetensors: @one.safetensors:a: rank (1) of shape [80] must be at least 2"},
		{"features", "cut.safetensors", "safetensors: @cut.safetensors: data bytes (233) must be 320: truncated"},
		{"features", "fp4.safetensors", `safetensors: @fp4.safetensors:a: dtype ("F4") must be one of F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, U8, BOOL, F8_E4M3, F8_E5M2, F8_E8M0`},
		{"ids", "missing", "--ids: trace: open @missing: no such file or directory"},
		{"ids", "ids-empty", "--ids: trace: @ids-empty: offset 0: file (0 bytes) must not be empty: truncated"},
		{"ids", "ids-comments", "--ids: trace @ids-comments: gets (0) must be at least 1"},
		{"ids", "ids-negative", `--ids: trace: @ids-negative:2: offset 2: line ("-1") must be one ID, 0 to 2^64 - 1 in decimal digits`},
		{"ids", "ids-beyond", "--ids: row numbers (@ids-beyond): row number (10) of lookup 3 must be 0 to 9: the table has 10 rows"},
		{"ids", "ids-fraction", `--ids: trace: @ids-fraction:2: offset 2: line ("1.5") must be one ID, 0 to 2^64 - 1 in decimal digits`},
		{"ids", "missing.npy", "--ids: npy: @missing.npy: open: no such file or directory"},
		{"ids", "ids.npy", "--ids: row numbers (@ids.npy): row number (10) at index 2 must be 0 to 9: the table has 10 rows"},
		{"ids", "negative.npy", "--ids: row numbers (@negative.npy): row number (-1) at index 1 must be 0 to 9: the table has 10 rows"},
		{"ids", "ids-floats.npy", "--ids: row numbers (@ids-floats.npy, float32 with shape [3]) must be integers, with one axis"},
		{"ids", "ids-2d.npy", "--ids: row numbers (@ids-2d.npy, int32 with shape [3 2]) must be integers, with one axis"},
		{"ids", "ids-cut.npy", "--ids: npy: @ids-cut.npy: data bytes (12) must be 24 for shape (3,) of int64: truncated"},
		{"graph", "missing.npz", "workload: graph @missing.npz: array indptr: npy: @missing.npz: open: no such file or directory"},
		{"graph", "folder", "workload: graph @folder: path (a directory) must be a file"},
		{"graph", "folder.csv", "workload: graph @folder.csv: path (a directory) must be a file"},
		{"graph", "decreasing.npz", "workload: graph @decreasing.npz: indptr[2] (2) must be at least indptr[1] (3)"},
		{"graph", "index-high.npz", "workload: graph @index-high.npz: indices[1] (3) must be in [0, 3)"},
		{"graph", "index-neg.npz", "workload: graph @index-neg.npz: indices[1] (-1) must be in [0, 3)"},
		{"graph", "start.npz", "workload: graph @start.npz: indptr[0] (1) must be 0"},
		{"graph", "end.npz", "workload: graph @end.npz: indptr[3] (9) must be the number of indices (3)"},
		{"graph", "one-indptr.npz", "workload: graph @one-indptr.npz: indptr length (1) must be at least 2, for one vertex"},
		{"graph", "no-indices.npz", `workload: graph @no-indices.npz: array indices: npy: @no-indices.npz: array ("indices") must be one of "indptr"`},
		{"graph", "floats.npz", "workload: graph @floats.npz: array indptr: npy: @floats.npz:indptr: dtype (float32) must be an integer"},
		{"graph", "vertices.npz", "--graph (@vertices.npz): vertices (11) must be as many as table @ok.npy has rows (10)"},
		{"graph", "fewer.npz", "--graph (@fewer.npz): vertices (9) must be as many as table @ok.npy has rows (10)"},
		{"graph", "not-an-npz.json", `workload: graph @not-an-npz.json: file type (".json") must be .npz, with arrays indptr and indices, or of an edge list: .el, .wel, .edges, .edgelist, .txt, .tsv, .csv`},
	} {
		t.Run(c.flag+"="+c.file, func(t *testing.T) {
			t.Parallel()
			args := []string{"run", "--" + c.flag, in(c.file)}
			if c.flag != "features" {
				args = append(args, "--features", in("ok.npy"))
			}
			if c.file == "labels.npy" {
				args = append(args, "--cast", "bf16")
			}
			want := strings.ReplaceAll(c.want, "@", dir+string(filepath.Separator))
			refuse(t, want, args...)
			if c.flag == "features" && c.file != "labels.npy" {
				refuse(t, want, "compress", "--features", in(c.file))
			}
		})
	}
}

func TestRun_NoGPU(t *testing.T) {
	t.Parallel()
	why := cuda.Usable()
	if why == nil {
		t.Skip("there is a GPU")
	}
	refuse(t, "--device cuda is not usable: "+why.Error(), "run", "--device", "cuda")
	if out := succeed(t, "devices"); !strings.Contains(out, why.Error()) {
		t.Errorf("devices says %q, not why there is none: %v", out, why)
	}
	var list struct {
		GPUs  []any
		Error string
	}
	if err := json.Unmarshal([]byte(succeed(t, "devices", "--json")), &list); err != nil || len(list.GPUs) != 0 || list.Error != why.Error() {
		t.Errorf("devices --json: %+v, %v", list, err)
	}
}

func TestRun_BadFlags(t *testing.T) {
	t.Parallel()
	features := write(t, "f.npy", npyOf(t, dtype.Float32, smooth(80), 10, 8))
	graph := write(t, "g.npz", npzOf(t, member{"indptr", ints(t, 0, 2, 3, 3)}, member{"indices", ints(t, 1, 2, 0)}))
	ids := write(t, "ids", []byte("0\n1\n9\n"))
	const sizes = " must be a positive percentage of the table or a size such as 64MiB"
	policies := "freq, glru-2q, glru-arc, lru, static-degree, static-freq, static-optimal, static-pagerank, tinylfu"
	for _, c := range []struct{ flags, want string }{
		{"--gpu-memory 0", `--gpu-memory ("0")` + sizes},
		{"--gpu-memory 0%", `--gpu-memory ("0%")` + sizes},
		{"--gpu-memory -1%", `--gpu-memory ("-1%")` + sizes},
		{"--gpu-memory -5", `--gpu-memory ("-5")` + sizes},
		{"--gpu-memory NaN%", `--gpu-memory ("NaN%")` + sizes},
		{"--gpu-memory much", `--gpu-memory ("much")` + sizes},
		{"--gpu-memory=", `--gpu-memory ("") must not be empty: leave it out`},
		{"--gpu-memory 99999999999999999999", `--gpu-memory ("99999999999999999999")` + sizes},
		{"--policy freq,lru", `--policy ("freq,lru") must be one value: a grid of several is run --sweep DIR`},
		{"--policy mru", `unknown policy ("mru") must be one of ` + policies},
		{"--codec zip", `codec: unknown codec ("zip") must be one of ` + strings.Join(registry.Usage(), ", ")},
		{"--device tpu", `unknown device ("tpu") must be one of auto, host, cuda`},
		{"--cast f8", `dataset: unknown cast ("f8") must be bf16, f16, f8e4m3, f8e5m2, f8e8m0, or f8e4m3 or f8e5m2 with scales, as in f8e4m3/e8m0:32`},
		{"--host-tier disk", `transfer: unknown host tier ("disk") must be inplace or packed`},
		{"--devices 0", "--devices (0) must be 1 to 8"},
		{"--devices 9", "--devices (9) must be 1 to 8"},
		{"--batches 0", "--batches (0) must be at least 1"},
		{"--batches -1", "--batches (-1) must not be negative"},
		{"--batches -2", "--batches (-2) must not be negative"},
		{"--train-batches -1", "--train-batches (-1) must not be negative"},
		{"--batch-size 0", "--batch-size (0) must be at least 1"},
		{"--batch-size -3", "--batch-size (-3) must be at least 1"},
		{"--batch-size 16777217", "--batch-size (16777217) must be at most 16777216"},
		{"--workers -1", "--workers (-1) must not be negative"},
		{"--workers 1000000000", "--workers (1000000000) must be at most 1024"},
		{"--vertices 0", "--vertices (0) must be 1 to 2147483647"},
		{"--vertices -1", "--vertices (-1) must be 1 to 2147483647"},
		{"--fanouts 5,0", "--fanouts (0) must be at least 1"},
		{"--seed -1", `--seed ("-1") must be a whole number from 0 on`},
		{"--batches many", `--batches ("many") must be a whole number`},
		{"--batches 99999999999999999999", `--batches ("99999999999999999999") must be a whole number of 64 bits`},
		{"--devices 1.5", `--devices ("1.5") must be a whole number`},
		{"--fanouts 15,", `--fanouts ("15,") must be whole numbers between commas`},
		{"--refresh-interval 5", `--refresh-interval ("5") must be a time such as 100ms`},
		{"--vertices 100 --codec none --gpu-memory 0.0001%", "--gpu-memory (0.0001%): cache: budget too small: GPUMemory (1 B) must hold at least one slot (512 B) and its metadata: 720 B in all"},
		{"--gpu-memory", "flag needs an argument: --gpu-memory"},
		{"--bogus", "unknown flag: --bogus: cachebench run --help lists them"},
		{"-x", "unknown shorthand flag: 'x' in -x: cachebench run --help lists them"},
		{"FEATURES extra", `run: argument ("extra") must be the value of a flag: cachebench run --help lists them`},
		{"FEATURES --features IDS", `run: argument ("FEATURES") and --features contradict each other: either is the file`},
		{"--seeds 2", "--seeds means nothing without --sweep"},
		{"--sweep DIR --resident auto", "--resident means nothing with --sweep"},
		{"--explain 1 --attach unix:x", "--attach means nothing with --explain"},
		{"--policy mru --codec zip --devices 9", `unknown policy ("mru") must be one of ` + policies + "\n" +
			`codec: unknown codec ("zip") must be one of ` + strings.Join(registry.Usage(), ", ") + "\n--devices (9) must be 1 to 8"},
		{"--features FEATURES --features IDS", `--features ("IDS") must be given once: it is "FEATURES" already`},
		{"--graph GRAPH --graph GRAPH", `--graph ("GRAPH") must be given once: it is "GRAPH" already`},
		{"--ids IDS --ids GRAPH", `--ids ("GRAPH") must be given once: it is "IDS" already`},
		{"--vertices 10 --features FEATURES", "--vertices and --features contradict each other"},
		{"--vertices 10 --graph GRAPH", "--vertices and --graph contradict each other"},
		{"--fanouts 2 --ids IDS", "--fanouts and --ids contradict each other"},
		{"--features FEATURES --graph GRAPH --ids IDS", "--graph (GRAPH) and --ids (IDS) contradict each other: the workload is one or the other"},
		{"--features FEATURES --ids IDS --policy static-degree", "--policy static-degree needs a --graph: none is generated for --ids (IDS)"},
		{"--features FEATURES --ids IDS --policy static-pagerank", "--policy static-pagerank needs a --graph: none is generated for --ids (IDS)"},
		{"--features FEATURES --ids IDS --batch-size 4096 --train-batches 1", "--train-batches (1) must leave some of the 1 batches of IDS to measure"},
		{"--features FEATURES --ids IDS --codec ibp4 --gpu-memory 100", "--gpu-memory (100): cache: budget too small: GPUMemory (100 B) must hold at least one slot (16 B) and its metadata: 224 B in all"},
		{"--features FEATURES --ids IDS --codec ibp4 --gpu-memory 1%", "--gpu-memory (1%): cache: budget too small: GPUMemory (3 B) must hold at least one slot (16 B) and its metadata: 224 B in all"},
	} {
		t.Run(c.flags, func(t *testing.T) {
			t.Parallel()
			files := strings.NewReplacer("FEATURES", features, "GRAPH", graph, "IDS", ids)
			refuse(t, files.Replace(c.want), append([]string{"run", "--json"}, strings.Fields(files.Replace(c.flags))...)...)
		})
	}
}

func TestRoot_Commands(t *testing.T) {
	t.Parallel()
	refuse(t, `unknown command "bogus" for "cachebench"`, "bogus")
	refuse(t, "unknown flag: --bogus: cachebench --help lists them", "--bogus")
	refuse(t, "unknown flag: --polcy: did you mean --policy?", "run", "--polcy", "lru")
	refuse(t, "unknown flag: --gpu: did you mean --gpus?", "run", "--gpu", "0")
	for _, args := range [][]string{nil, {"--help"}, {"help"}} {
		if out := succeed(t, args...); !strings.Contains(out, "compress") || !strings.Contains(out, "run") {
			t.Errorf("%v: %s", args, out)
		}
	}
	out := succeed(t, "run", "--help")
	for _, flag := range strings.Fields("features graph ids gpu-memory policy codec cast host-tier device devices batches train-batches seed verify json config") {
		if !strings.Contains(out, " --"+flag+" ") {
			t.Errorf("help lacks --%s", flag)
		}
	}
}
