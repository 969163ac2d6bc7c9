package workload

import (
	"fmt"
	"hash/fnv"
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/tensorcache/tensorcache/internal/race"
)

// atProcs runs fn under a given GOMAXPROCS.
func atProcs[T any](n int, fn func() T) T {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(n))
	return fn()
}

// mustGraph generates a graph that the test takes for valid.
func mustGraph(t testing.TB, o GraphOptions) *Graph {
	t.Helper()
	g, err := PowerLaw(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestPowerLaw_Deterministic(t *testing.T) {
	o := GraphOptions{Vertices: 20_000, Seed: 7}
	one := atProcs(1, func() *Graph { return mustGraph(t, o) })
	two := atProcs(2, func() *Graph { return mustGraph(t, o) })
	if !slices.Equal(one.Indptr, two.Indptr) || !slices.Equal(one.Indices, two.Indices) {
		t.Error("the graph depends on GOMAXPROCS")
	}
	o.Seed++
	other := mustGraph(t, o)
	if slices.Equal(one.Indptr, other.Indptr) || slices.Equal(one.Indices, other.Indices) {
		t.Error("another seed gives the same graph")
	}
}

func TestPowerLaw_Pinned(t *testing.T) {
	g := mustGraph(t, GraphOptions{Vertices: 1000, Seed: 1})
	h := fnv.New64a()
	fmt.Fprint(h, g.Indptr, g.Indices)
	if got, want := h.Sum64(), uint64(0x41889b632315722d); got != want {
		t.Errorf("graph of seed 1 hashes to %#x, want %#x: published results would change", got, want)
	}
}

func TestPowerLaw_OutDegreesArePoisson(t *testing.T) {
	race.SkipSequential(t)
	const n, mean = 100_000, 15
	g := mustGraph(t, GraphOptions{Vertices: n, MeanDegree: mean, Seed: 3})
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	if g.Vertices() != n || g.Edges() != n*mean {
		t.Fatalf("got %d vertices, %d edges", g.Vertices(), g.Edges())
	}
	var square float64
	for v := range n {
		d := float64(g.Indptr[v+1]-g.Indptr[v]) - mean
		square += d * d
	}
	// The variance of a Poisson variable is its mean; its estimate over n vertices
	// has a standard deviation of about mean × sqrt(2/n), here 0.07.
	if variance := square / n; math.Abs(variance-mean) > 0.35 {
		t.Errorf("variance of out-degrees %.2f, want %d", variance, mean)
	}
}

// TestPowerLaw_TargetsFollowTheLaw compares, for rank ranges of doubling width,
// the share of edges with the share of the law.
func TestPowerLaw_TargetsFollowTheLaw(t *testing.T) {
	o := GraphOptions{Vertices: 50_000, Seed: 5}
	g := mustGraph(t, o)
	in := g.InDegrees()
	byRank := rankPermutation(o.Vertices, o.Seed)
	var sum float64
	for r := 1; r <= o.Vertices; r++ {
		sum += math.Pow(float64(r), -targetExponent)
	}
	for lo := 1; lo <= o.Vertices; lo *= 2 {
		var got, law float64
		for r := lo; r < 2*lo && r <= o.Vertices; r++ {
			got += float64(in[byRank[r-1]])
			law += math.Pow(float64(r), -targetExponent)
		}
		want := law / sum * float64(g.Edges())
		// The count is binomial: five standard deviations.
		if dev := math.Abs(got - want); dev > 5*math.Sqrt(want)+1 {
			t.Errorf("ranks %d to %d: %.0f edges, want %.0f", lo, 2*lo-1, got, want)
		}
	}
}

// TestPowerLaw_SourceAndTargetAreIndependent checks that the in-place writing of
// targets does not tie them to the place of their source.
func TestPowerLaw_SourceAndTargetAreIndependent(t *testing.T) {
	o := GraphOptions{Vertices: 50_000, Seed: 11}
	g := mustGraph(t, o)
	top := make([]bool, o.Vertices)
	for _, v := range rankPermutation(o.Vertices, o.Seed)[:500] {
		top[v] = true
	}
	const parts = 10
	var count [parts]float64
	var total float64
	for i, v := range g.Indices {
		if top[v] {
			count[i*parts/g.Edges()]++
			total++
		}
	}
	for i, c := range count {
		if want := total / parts; math.Abs(c-want) > 5*math.Sqrt(want) {
			t.Errorf("part %d of the sources has %.0f edges to the top ranks, want %.0f", i, c, want)
		}
	}
}

func TestPowerLaw_RanksAreShuffled(t *testing.T) {
	const n = 10_000
	p := rankPermutation(n, 1)
	fixed := 0
	for i, v := range p {
		if int(v) == i {
			fixed++
		}
	}
	if fixed > 10 { // expected: 1
		t.Errorf("%d of %d vertices have their own number as rank", fixed, n)
	}
	slices.Sort(p)
	for i, v := range p {
		if int(v) != i {
			t.Fatalf("not a permutation at %d", i)
		}
	}
}

func TestPowerLaw_SmallAndSteep(t *testing.T) {
	for _, o := range []GraphOptions{
		{Vertices: 1, MeanDegree: 1},
		{Vertices: 1, MeanDegree: 100_000}, // more edges than a block, one vertex
		{Vertices: 2, MeanDegree: 3},
	} {
		g := mustGraph(t, o)
		if err := g.Validate(); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
		if g.Edges() != o.Vertices*o.MeanDegree {
			t.Errorf("%+v: %d edges", o, g.Edges())
		}
	}
}

func TestPowerLaw_ReportsEveryFault(t *testing.T) {
	for _, c := range []struct {
		o    GraphOptions
		want string
	}{
		{GraphOptions{Vertices: -1, MeanDegree: -2},
			"workload: power law: Vertices (-1) must be in [1, 2147483647]\n" +
				"workload: power law: MeanDegree (-2) must be at least 1"},
		{GraphOptions{Vertices: 1 << 30, MeanDegree: 1 << 50},
			"workload: power law: Vertices × MeanDegree (1073741824 × 1125899906842624) must be at most 274877906944 edges"},
	} {
		if _, err := PowerLaw(c.o); err == nil || err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
}

func TestGraphOptions_Defaults(t *testing.T) {
	var o GraphOptions
	if err := o.prepare(); err != nil || o != (GraphOptions{Vertices: 500_000, MeanDegree: 15}) {
		t.Errorf("got %+v, %v", o, err)
	}
}

func TestAliasTable_IsExact(t *testing.T) {
	weights := []float64{0, 3, 1, 0, 0.5, 20, 1, 7.5}
	var sum float64
	for _, w := range weights {
		sum += w
	}
	table := newAliasTable(slices.Clone(weights))
	got := make([]float64, len(weights))
	for i, c := range table {
		keep := float64(c.keep) / (1 << 64)
		got[i] += keep
		got[c.alias] += 1 - keep
	}
	for i, w := range weights {
		if want := w / sum * float64(len(weights)); math.Abs(got[i]-want) > 1e-12 {
			t.Errorf("weight %d: probability mass %g, want %g", i, got[i], want)
		}
	}
}

func BenchmarkPowerLaw(b *testing.B) {
	edges := 0
	for b.Loop() {
		edges += mustGraph(b, GraphOptions{Seed: 1}).Edges()
	}
	b.ReportMetric(float64(edges)/b.Elapsed().Seconds(), "edges/s")
}
