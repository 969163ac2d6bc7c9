package workload

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"sync"
	"testing"
)

// chiSquare is the statistic of counts that should all be want.
func chiSquare(counts []int, want float64) float64 {
	var x float64
	for _, c := range counts {
		d := float64(c) - want
		x += d * d / want
	}
	return x
}

// chiLimit is five standard deviations above the mean of a chi-square variable.
func chiLimit(freedom int) float64 {
	return float64(freedom) + 5*math.Sqrt(2*float64(max(freedom, 1))) + 10
}

// mustSampling makes a workload that the test takes for valid.
func mustSampling(t testing.TB, o SamplingOptions) *NeighborSampling {
	t.Helper()
	w, err := NewNeighborSampling(o)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// checkSampling checks every batch of w: no duplicates, and each hop made of
// out-neighbours of the hop before, at most fanout for each of its vertices.
// The hops are told apart by workloads of fewer hops, whose batches are
// prefixes because they draw the same stream in the same order.
func checkSampling(t *testing.T, w *NeighborSampling) {
	t.Helper()
	g, n := w.o.Graph, w.o.Graph.Vertices()
	c := w.NewCursor()
	for i := range w.Batches() {
		batch := c.Batch(i, nil)
		seen := make(map[int64]bool, len(batch))
		for _, v := range batch {
			if v < 0 || v >= int64(n) || seen[v] {
				t.Fatalf("batch %d: vertex %d out of range or repeated", i, v)
			}
			seen[v] = true
		}
		frontier := w.NewCursor().(*samplingCursor).appendSeeds(i, nil)
		if len(frontier) > w.o.BatchSize || !slices.Equal(frontier, batch[:len(frontier)]) {
			t.Fatalf("batch %d does not start with its %d seeds", i, len(frontier))
		}
		end := len(frontier)
		for h, fanout := range w.o.Fanouts {
			o := w.o
			o.Fanouts = w.o.Fanouts[:h+1]
			prefix := mustSampling(t, o).NewCursor().Batch(i, nil)
			if !slices.Equal(prefix, batch[:len(prefix)]) {
				t.Fatalf("batch %d: hop %d is not a prefix", i, h+1)
			}
			neighbors := make(map[int64]bool)
			most := 0
			for _, v := range frontier {
				list := g.Indices[g.Indptr[v]:g.Indptr[v+1]]
				most += min(fanout, len(list))
				for _, u := range list {
					neighbors[int64(u)] = true
				}
				if len(list) > fanout {
					continue
				}
				for _, u := range list { // all of a short list are taken
					if !slices.Contains(prefix, int64(u)) {
						t.Fatalf("batch %d, hop %d: neighbour %d of %d (out-degree %d) is missing", i, h+1, u, v, len(list))
					}
				}
			}
			frontier = prefix[end:]
			end = len(prefix)
			if len(frontier) > most {
				t.Fatalf("batch %d, hop %d: %d vertices, at most %d were sampled", i, h+1, len(frontier), most)
			}
			for _, v := range frontier {
				if !neighbors[v] {
					t.Fatalf("batch %d, hop %d: %d is no out-neighbour of the frontier", i, h+1, v)
				}
			}
		}
		if end != len(batch) {
			t.Fatalf("batch %d has %d vertices beyond its last hop", i, len(batch)-end)
		}
	}
}

func TestNeighborSampling_Properties(t *testing.T) {
	g := mustGraph(t, GraphOptions{Vertices: 3000, MeanDegree: 8, Seed: 1})
	for _, fanouts := range [][]int{{15, 10}, {3}, {4, 3, 2}, {1, 1, 1, 1}, {1000}} {
		t.Run(fmt.Sprint(fanouts), func(t *testing.T) {
			checkSampling(t, mustSampling(t, SamplingOptions{Graph: g, Fanouts: fanouts, BatchSize: 20, Batches: 12, Seed: 4}))
		})
	}
}

// tree returns a graph in which vertex v has the out-neighbours v×arity+1 to
// v×arity+arity, as far as they are below n: no vertex has two parents.
func tree(n, arity int) *Graph {
	g := &Graph{Indptr: []int64{0}}
	for v := range n {
		for k := 1; k <= arity && v*arity+k < n; k++ {
			g.Indices = append(g.Indices, int32(v*arity+k))
		}
		g.Indptr = append(g.Indptr, int64(len(g.Indices)))
	}
	return g
}

// TestNeighborSampling_FanoutIsExact counts children in a tree, where
// deduplication cannot hide that a vertex was sampled too often or too rarely.
func TestNeighborSampling_FanoutIsExact(t *testing.T) {
	const n, arity = 20_000, 7
	fanouts := []int{3, 9, 2}
	w := mustSampling(t, SamplingOptions{Graph: tree(n, arity), Fanouts: fanouts, BatchSize: 1, Batches: 3000, Seed: 8})
	c := w.NewCursor()
	deep := 0
	var batch []int64
	for i := range w.Batches() {
		batch = c.Batch(i, batch[:0])
		hop := map[int64]int{batch[0]: 0}
		children := map[int64]int{}
		for _, v := range batch[1:] {
			parent := (v - 1) / arity
			h, ok := hop[parent]
			if !ok {
				t.Fatalf("batch %d: %d came before its parent", i, v)
			}
			hop[v] = h + 1
			children[parent]++
			deep = max(deep, h+1)
		}
		for v, h := range hop {
			want := 0
			if h < len(fanouts) {
				want = min(fanouts[h], max(min(arity, n-1-int(v)*arity), 0))
			}
			if children[v] != want {
				t.Fatalf("batch %d: %d of hop %d has %d children, want %d", i, v, h, children[v], want)
			}
		}
	}
	if deep != len(fanouts) {
		t.Errorf("deepest hop %d, want %d", deep, len(fanouts))
	}
}

// TestNeighborSampling_PlacesAreUniform samples 2 of 6 neighbours of a star's
// centre: each of the 15 pairs must be as frequent as the others.
func TestNeighborSampling_PlacesAreUniform(t *testing.T) {
	g := &Graph{Indptr: []int64{0, 6, 6, 6, 6, 6, 6, 6}, Indices: []int32{1, 2, 3, 4, 5, 6}}
	w := mustSampling(t, SamplingOptions{Graph: g, Fanouts: []int{2}, BatchSize: 1, Batches: 210_000, Seed: 6})
	c := w.NewCursor()
	counts := make(map[[2]int64]int)
	total := 0
	var batch []int64
	for i := range w.Batches() {
		if batch = c.Batch(i, batch[:0]); batch[0] != 0 {
			continue
		}
		if len(batch) != 3 {
			t.Fatalf("batch %d: %v", i, batch)
		}
		counts[[2]int64{min(batch[1], batch[2]), max(batch[1], batch[2])}]++
		total++
	}
	if total != 30_000 {
		t.Fatalf("the centre was %d times a seed, want 30000", total)
	}
	all := make([]int, 0, 15)
	for _, n := range counts {
		all = append(all, n)
	}
	if len(all) != 15 {
		t.Fatalf("%d pairs occur, want 15", len(all))
	}
	if x, limit := chiSquare(all, float64(total)/15), chiLimit(14); x > limit {
		t.Errorf("chi-square %.0f, want at most %.0f: %v", x, limit, counts)
	}
}

func TestNeighborSampling_EpochCoversEveryVertexOnce(t *testing.T) {
	const n, epochs = 103, 10
	g := &Graph{Indptr: make([]int64, n+1)} // no edges: batches are seeds
	c := mustSampling(t, SamplingOptions{Graph: g, BatchSize: 1, Batches: n * epochs, Seed: 2}).NewCursor()
	var seeds []int64
	for i := range n * epochs {
		seeds = c.Batch(i, seeds)
	}
	for e := range epochs {
		epoch := seeds[e*n : (e+1)*n]
		if e > 0 && slices.Equal(epoch, seeds[:n]) {
			t.Errorf("epoch %d has the order of epoch 0", e)
		}
		sorted := slices.Clone(epoch)
		slices.Sort(sorted)
		for v, got := range sorted {
			if got != int64(v) {
				t.Fatalf("epoch %d is no permutation of the vertices", e)
			}
		}
	}
	// Larger batches cut the same sequence; only repeats across epochs go.
	c = mustSampling(t, SamplingOptions{Graph: g, BatchSize: 10, Batches: n, Seed: 2}).NewCursor()
	for i := range n {
		var want []int64
		for _, v := range seeds[i*10 : (i+1)*10] {
			if !slices.Contains(want, v) {
				want = append(want, v)
			}
		}
		if got := c.Batch(i, nil); !slices.Equal(got, want) {
			t.Errorf("batch %d: %v, want %v", i, got, want)
		}
	}
}

func TestNeighborSampling_BatchLargerThanGraph(t *testing.T) {
	g := &Graph{Indptr: []int64{0, 1, 2, 2}, Indices: []int32{1, 2}}
	w := mustSampling(t, SamplingOptions{Graph: g, Batches: 4})
	c := w.NewCursor()
	for i := range w.Batches() {
		got := c.Batch(i, nil)
		slices.Sort(got)
		if !slices.Equal(got, []int64{0, 1, 2}) {
			t.Errorf("batch %d: %v", i, got)
		}
	}
}

func TestNeighborSampling_MultiEdgesAndSelfLoops(t *testing.T) {
	g := &Graph{Indptr: []int64{0, 5, 5}, Indices: []int32{1, 1, 0, 1, 1}}
	for _, fanout := range []int{2, 4, 5} {
		checkSampling(t, mustSampling(t, SamplingOptions{Graph: g, Fanouts: []int{fanout, fanout}, BatchSize: 1, Batches: 50}))
	}
}

func TestNeighborSampling_RandomAccess(t *testing.T) {
	g := mustGraph(t, GraphOptions{Vertices: 5000, Seed: 1})
	w := mustSampling(t, SamplingOptions{Graph: g, BatchSize: 64, Batches: 100, Seed: 3})
	inOrder := make([][]int64, w.Batches())
	c := w.NewCursor()
	for i := range inOrder {
		inOrder[i] = c.Batch(i, nil)
	}
	for i := w.Batches() - 1; i >= 0; i-- {
		if !slices.Equal(c.Batch(i, nil), inOrder[i]) {
			t.Fatalf("batch %d differs when computed backwards", i)
		}
		if !slices.Equal(w.NewCursor().Batch(i, nil), inOrder[i]) {
			t.Fatalf("batch %d differs on a new cursor", i)
		}
	}
	var wg sync.WaitGroup
	for start := range 4 {
		wg.Go(func() {
			c := w.NewCursor()
			for i := start; i < len(inOrder); i += 4 {
				if !slices.Equal(c.Batch(i, nil), inOrder[i]) {
					t.Errorf("batch %d differs on a concurrent cursor", i)
				}
			}
		})
	}
	wg.Wait()
	other := mustSampling(t, SamplingOptions{Graph: g, BatchSize: 64, Batches: 100, Seed: 4})
	if slices.Equal(other.NewCursor().Batch(0, nil), inOrder[0]) {
		t.Error("another seed gives the same batch")
	}
	if slices.Equal(inOrder[0], inOrder[1]) {
		t.Error("two batches are the same")
	}
}

func TestNeighborSampling_Pinned(t *testing.T) {
	w := mustSampling(t, SamplingOptions{Graph: tree(1000, 30), BatchSize: 8, Seed: 1})
	h := fnv.New64a()
	c := w.NewCursor()
	for i := range w.Batches() {
		fmt.Fprint(h, c.Batch(i, nil))
	}
	if got, want := h.Sum64(), uint64(0x8974aa0f4925432f); got != want {
		t.Errorf("batches of seed 1 hash to %#x, want %#x: published results would change", got, want)
	}
}

func TestNeighborSampling_AppendsWithoutAllocation(t *testing.T) {
	g := mustGraph(t, GraphOptions{Vertices: 2000, Seed: 1})
	w := mustSampling(t, SamplingOptions{Graph: g, Seed: 3})
	c := w.NewCursor()
	plain := c.Batch(5, nil)
	got := c.Batch(5, []int64{-7, int64(plain[0])})
	if !slices.Equal(got[:2], []int64{-7, plain[0]}) || !slices.Equal(got[2:], plain) {
		t.Error("Batch does not append to what dst held")
	}
	dst := make([]int64, 0, 2000)
	i := 0
	if n := testing.AllocsPerRun(20, func() { dst = c.Batch(i, dst[:0]); i++ }); n != 0 {
		t.Errorf("%v allocations a batch, want 0", n)
	}
}

func TestNeighborSampling_OptionErrors(t *testing.T) {
	one := &Graph{Indptr: []int64{0, 0}}
	for _, c := range []struct {
		o    SamplingOptions
		want string
	}{
		{SamplingOptions{}, "workload: sampling: Graph (nil) must be set"},
		{SamplingOptions{Graph: &Graph{}}, "workload: sampling: graph: indptr length (0) must be at least 2, for one vertex"},
		{SamplingOptions{Graph: &Graph{Indptr: []int64{0, 1}, Indices: []int32{4}}, Fanouts: []int{2, 0}, BatchSize: -1, Batches: -2},
			"workload: sampling: graph: indices[0] (4) must be in [0, 1)\n" +
				"workload: sampling: Fanouts[1] (0) must be at least 1\n" +
				"workload: sampling: BatchSize (-1) must be in [1, 2147483647]\n" +
				"workload: sampling: Batches (-2) must be at least 1"},
		{SamplingOptions{Graph: one, Batches: 1 << 40, BatchSize: 1 << 40},
			"workload: sampling: BatchSize (1099511627776) must be in [1, 2147483647]\n" +
				"workload: sampling: Batches × BatchSize (1099511627776 × 1099511627776) must be at most 9223372036854775807 seeds"},
	} {
		if _, err := NewNeighborSampling(c.o); err == nil || err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
}

func TestNeighborSampling_Defaults(t *testing.T) {
	w := mustSampling(t, SamplingOptions{Graph: tree(10, 2)})
	if !slices.Equal(w.o.Fanouts, []int{15, 10}) || w.o.BatchSize != 256 || w.Batches() != 200 {
		t.Errorf("got %+v", w.o)
	}
	if w.Kind() != "neighbor-sampling" {
		t.Errorf("kind %q", w.Kind())
	}
}

func TestCursor_PanicsOutOfRange(t *testing.T) {
	replay, err := NewReplay([]int64{1, 2, 3}, 2)
	if err != nil {
		t.Fatal(err)
	}
	sampling := mustSampling(t, SamplingOptions{Graph: tree(10, 2), Batches: 2})
	for _, w := range []Workload{replay, sampling} {
		for _, i := range []int{-1, 2} {
			func() {
				defer func() {
					want := fmt.Sprintf("workload: batch (%d) must be in [0, 2)", i)
					if got := recover(); got != want {
						t.Errorf("%s: panic %v, want %s", w.Kind(), got, want)
					}
				}()
				w.NewCursor().Batch(i, nil)
			}()
		}
	}
}

func TestStampSet_SurvivesWrapAround(t *testing.T) {
	s := newStampSet(3)
	s.add(1)
	s.stamp = math.MaxUint32
	s.add(2)
	s.clear()
	for x := range 3 {
		if !s.add(x) {
			t.Errorf("%d is a member of an emptied set", x)
		}
		if s.add(x) {
			t.Errorf("%d was added and is missing", x)
		}
	}
}

func BenchmarkBatch(b *testing.B) {
	g := mustGraph(b, GraphOptions{Seed: 1})
	w := mustSampling(b, SamplingOptions{Graph: g, Seed: 1})
	c := w.NewCursor()
	dst := c.Batch(0, nil)
	dst = slices.Grow(dst, len(dst))
	ids := 0
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		dst = c.Batch(i%w.Batches(), dst[:0])
		ids += len(dst)
		i++
	}
	b.ReportMetric(float64(ids)/b.Elapsed().Seconds(), "ids/s")
	b.ReportMetric(float64(ids)/float64(b.N), "ids/batch")
}
