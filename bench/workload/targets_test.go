package workload

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tensorcache/tensorcache/internal/race"
)

// TestVisitTargets_EqualsInDegrees: the parts of a graph's file say how many edges point to each vertex, as the graph in memory does.
func TestVisitTargets_EqualsInDegrees(t *testing.T) {
	race.SkipSequential(t)
	csr := func(indptr []int64, indices []int32) string {
		return writeNPZ(t, map[string][]byte{"indptr": npyInts("<i8", indptr), "indices": npyInts("<i4", indices)})
	}
	edges := filepath.Join(t.TempDir(), "edges.txt")
	if err := os.WriteFile(edges, []byte("0 1\n2 1\n3 0\n0 3\n4 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	big := make([]int64, 70_001) // of several parts
	indices := make([]int32, 0, 140_000)
	for v := range big {
		big[v] = int64(2 * v)
		if v < len(big)-1 {
			indices = append(indices, int32(v*7%70_000), int32(v*v%70_000))
		}
	}
	for _, path := range []string{edges, csr([]int64{0, 2, 2, 3}, []int32{1, 2, 1}), csr(big, indices)} {
		g, err := LoadGraph(path, false)
		if err != nil {
			t.Fatal(err)
		}
		var got []uint32
		err = VisitTargets(path, false, func(vertices int, listed bool) error {
			if listed != g.Listed {
				t.Errorf("%s: listed %v", path, listed)
			}
			got = make([]uint32, vertices)
			return nil
		}, func(targets []int64) {
			for _, v := range targets {
				got[v]++
			}
		})
		if err != nil || !slices.Equal(got, g.InDegrees()) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestVisitTargets_Faults: what LoadGraph refuses, VisitTargets refuses.
func TestVisitTargets_Faults(t *testing.T) {
	csr := func(indptr []int64, indices []int32) string {
		return writeNPZ(t, map[string][]byte{"indptr": npyInts("<i8", indptr), "indices": npyInts("<i4", indices)})
	}
	none := func(int, bool) error { return nil }
	for name, path := range map[string]string{
		"one vertex too many": csr([]int64{0, 1}, []int32{1}), "indptr begins at 1": csr([]int64{1, 1}, []int32{0}),
		"indptr decreases": csr([]int64{0, 2, 1}, []int32{0}), "indptr ends early": csr([]int64{0, 0, 1}, []int32{0, 0}),
		"no vertex": csr([]int64{0}, []int32{0}), "negative": csr([]int64{0, 1}, []int32{-1}), "another file": filepath.Join(t.TempDir(), "graph.csr"),
	} {
		_, want := LoadGraph(path, false)
		if err := VisitTargets(path, false, none, func([]int64) {}); err == nil || want == nil {
			t.Errorf("%s: error %v, of LoadGraph %v", name, err, want)
		}
	}
	stop := errors.New("stop")
	if err := VisitTargets(csr([]int64{0, 1}, []int32{0}), false, func(int, bool) error { return stop }, nil); !errors.Is(err, stop) {
		t.Errorf("error %v", err)
	}
}
