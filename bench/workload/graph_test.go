package workload

import (
	"archive/zip"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/internal/realdata"
)

func TestGraph_ValidateNamesFirstOffender(t *testing.T) {
	for _, c := range []struct {
		name string
		g    Graph
		want string
	}{
		{"empty", Graph{}, "workload: graph: indptr length (0) must be at least 2, for one vertex"},
		{"no vertices", Graph{Indptr: []int64{0}}, "workload: graph: indptr length (1) must be at least 2, for one vertex"},
		{"start", Graph{Indptr: []int64{3, 4}, Indices: make([]int32, 4)}, "workload: graph: indptr[0] (3) must be 0"},
		{"decrease", Graph{Indptr: []int64{0, 2, 1, 0}, Indices: make([]int32, 2)},
			"workload: graph: indptr[2] (1) must be at least indptr[1] (2)"},
		{"negative", Graph{Indptr: []int64{0, -1}}, "workload: graph: indptr[1] (-1) must be at least indptr[0] (0)"},
		{"end short", Graph{Indptr: []int64{0, 1, 2}, Indices: make([]int32, 3)},
			"workload: graph: indptr[2] (2) must be the number of indices (3)"},
		{"end long", Graph{Indptr: []int64{0, 1 << 40}, Indices: make([]int32, 3)},
			"workload: graph: indptr[1] (1099511627776) must be the number of indices (3)"},
		{"index high", Graph{Indptr: []int64{0, 2, 3}, Indices: []int32{0, 2, -1}},
			"workload: graph: indices[1] (2) must be in [0, 2)"},
		{"index negative", Graph{Indptr: []int64{0, 2, 3}, Indices: []int32{0, 1, -1}},
			"workload: graph: indices[2] (-1) must be in [0, 2)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.g.Validate(); err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestGraph_ValidateAccepts(t *testing.T) {
	for _, g := range []Graph{
		{Indptr: []int64{0, 0}},                                     // one vertex, no edge
		{Indptr: []int64{0, 2}, Indices: []int32{0, 0}},             // self-loop, repeated
		{Indptr: []int64{0, 0, 0, 3}, Indices: []int32{2, 1, 0}},    // vertices without edges
		{Indptr: []int64{0, 1, 1, 1}, Indices: []int32{2}},          // the same at the end
		{Indptr: []int64{0, 1, 2, 3, 3}, Indices: []int32{1, 2, 3}}, // a path
		{Indptr: []int64{0, 3, 3, 3}, Indices: []int32{1, 2, 1}},    // a multi-edge
	} {
		if err := g.Validate(); err != nil {
			t.Errorf("%+v: %v", g, err)
		}
	}
}

func TestGraph_Counts(t *testing.T) {
	g := Graph{Indptr: []int64{0, 3, 3, 4}, Indices: []int32{1, 2, 1, 0}}
	if g.Vertices() != 3 || g.Edges() != 4 {
		t.Errorf("got %d vertices, %d edges", g.Vertices(), g.Edges())
	}
	if got := g.InDegrees(); !slices.Equal(got, []uint32{1, 2, 1}) {
		t.Errorf("in-degrees %v", got)
	}
	if n := (&Graph{}).Vertices(); n != 0 {
		t.Errorf("empty graph has %d vertices", n)
	}
}

func TestLoadGraph_RealInputs(t *testing.T) {
	race.SkipSequential(t)
	for _, c := range []struct {
		file            string
		vertices, edges int
	}{
		{"cora.npz", 2708, 10556},
		{"reddit.npz", 10984, 168016},
		{"pubmed_graph.npz", 19717, 88651},
	} {
		t.Run(c.file, func(t *testing.T) {
			g, err := LoadGraph(realdata.Table(t, c.file), false)
			if err != nil {
				t.Fatal(err)
			}
			if g.Vertices() != c.vertices || g.Edges() != c.edges {
				t.Errorf("got %d vertices, %d edges, want %d, %d", g.Vertices(), g.Edges(), c.vertices, c.edges)
			}
			if err := g.Validate(); err != nil {
				t.Error(err)
			}
			w, err := NewNeighborSampling(SamplingOptions{Graph: g, Batches: 20, Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			checkSampling(t, w)
		})
	}
}

// npyInts is an .npy file of one rank-1 array in format version 1.0.
func npyInts[T int32 | int64 | uint16 | float32 | float64](dtype string, values []T) []byte {
	header := "{'descr': '" + dtype + "', 'fortran_order': False, 'shape': (" + strconv.Itoa(len(values)) + ",), }"
	for (10+len(header)+1)%64 != 0 {
		header += " "
	}
	header += "\n"
	b := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), byte(len(header)>>8))
	b = append(b, header...)
	b, _ = binary.Append(b, binary.LittleEndian, values)
	return b
}

// writeNPZ writes the named arrays into a new .npz file.
func writeNPZ(t *testing.T, arrays map[string][]byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "g.npz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	for name, data := range arrays {
		w, err := z.Create(name + ".npy")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadGraph_IntegerDtypes(t *testing.T) {
	path := writeNPZ(t, map[string][]byte{
		"indptr":  npyInts("<u2", []uint16{0, 2, 3}),
		"indices": npyInts("<i4", []int32{1, 0, 1}),
	})
	g, err := LoadGraph(path, false)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(g.Indptr, []int64{0, 2, 3}) || !slices.Equal(g.Indices, []int32{1, 0, 1}) {
		t.Errorf("got %+v", g)
	}
}

func TestGraph_LoadWeights(t *testing.T) {
	for _, weights := range [][]byte{npyInts("<f4", []float32{0.5, 0, 2}), npyInts("<f8", []float64{0.5, 0, 2})} {
		path := writeNPZ(t, map[string][]byte{
			"indptr": npyInts("<i8", []int64{0, 2, 3}), "indices": npyInts("<i4", []int32{1, 0, 1}), "weights": weights,
		})
		w, err := (&Spec{Kind: "sampling", Graph: path, Weighted: true}).New()
		if err != nil {
			t.Fatal(err)
		}
		if g := w.(*NeighborSampling).o.Graph; !slices.Equal(g.Weights, []float32{0.5, 0, 2}) {
			t.Errorf("weights %v", g.Weights)
		}
	}
	for want, weights := range map[string][]byte{
		": weights (2) must be as many as indices (1)":                                        npyInts("<f4", []float32{1, 2}),
		": weights[0] (-1) must be finite and not negative":                                   npyInts("<f4", []float32{-1}),
		": array weights: array of rank 1 and int32 must be of rank 1 and float32 or float64": npyInts("<i4", []int32{1}),
	} {
		path := writeNPZ(t, map[string][]byte{"weights": weights})
		g := &Graph{Indptr: []int64{0, 1}, Indices: []int32{0}}
		if err := g.LoadWeights(path); err == nil || err.Error() != "workload: graph "+path+want || g.Weights != nil {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestLoadGraph_Errors(t *testing.T) {
	// An index of 2^32 must not become 0 on its way to 32 bits.
	wide := writeNPZ(t, map[string][]byte{
		"indptr":  npyInts("<i8", []int64{0, 2}),
		"indices": npyInts("<i8", []int64{0, 1 << 32}),
	})
	if _, err := LoadGraph(wide, false); err == nil ||
		err.Error() != "workload: graph "+wide+": indices[1] (4294967296) must be in [0, 1)" {
		t.Errorf("wide index: %v", err)
	}
	fall := writeNPZ(t, map[string][]byte{
		"indptr":  npyInts("<i8", []int64{0, 2, 1}),
		"indices": npyInts("<i8", []int64{0, 1}),
	})
	if _, err := LoadGraph(fall, false); err == nil ||
		err.Error() != "workload: graph "+fall+": indptr[2] (1) must be at least indptr[1] (2)" {
		t.Errorf("falling indptr: %v", err)
	}
	half := writeNPZ(t, map[string][]byte{"indptr": npyInts("<i8", []int64{0, 0})})
	if _, err := LoadGraph(half, false); err == nil ||
		!strings.HasPrefix(err.Error(), "workload: graph "+half+": array indices: ") {
		t.Errorf("missing array: %v", err)
	}
	absent := filepath.Join(t.TempDir(), "absent.npz")
	if _, err := LoadGraph(absent, false); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), absent) {
		t.Errorf("missing file: %v", err)
	}
	if _, err := LoadGraph("g.npy", false); err == nil ||
		err.Error() != `workload: graph g.npy: file type (".npy") must be .npz, with arrays indptr and indices, or of an edge list: .el, .wel, .edges, .edgelist, .txt, .tsv, .csv` {
		t.Errorf("other type: %v", err)
	}
}
