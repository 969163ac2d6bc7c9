package admission

import (
	"math"
	"testing"
)

func TestStaticFrequency_MoreFrequentFirst(t *testing.T) {
	for _, p := range []Policy{NewStaticFrequency(), NewStaticOptimal()} {
		start(t, p, problem([]int64{10, 5}, nil))
		p.Observe(0, []int64{7, 3, 3})
		p.Observe(1, []int64{4, 4, 4, 2})
		p.Observe(0, []int64{3, 3, 9})
		p.Observe(0, nil)
		// Equal frequencies by hash. Rows that nobody asked for are not offered.
		wantRank(t, p, key(0, 3), key(1, 4), key(1, 2), key(0, 7), key(0, 9))
		wantRank(t, p, key(0, 3), key(1, 4), key(1, 2), key(0, 7), key(0, 9)) // Rank changes nothing
	}
}

// TestStaticFrequency_Value tells the two policies apart: static-optimal counts hits per slot byte, static-freq the time that they save,
// here 10 ns of a miss up to 100 bytes, and more of longer ones.
func TestStaticFrequency_Value(t *testing.T) {
	stored := map[uint64]int{
		key(0, 0): 96,
		key(0, 1): 960,
		key(0, 2): 192,
	}
	of := problem([]int64{3}, stored)
	of.Costs = []Cost{{MissRow: 10e-9, MissByte: 0.1e-9}}
	freq, optimal := start(t, NewStaticFrequency(), of), start(t, NewStaticOptimal(), of)
	for _, p := range []Policy{freq, optimal} {
		p.Observe(0, repeat(0, 5)) // 5 × 10 ns ÷ 96 = 0.52 ns, 5 ÷ 96 = 0.052 hits
		p.Observe(0, repeat(1, 8)) // 8 × 96 ns ÷ 960 = 0.8 ns, 8 ÷ 960 = 0.008 hits
		p.Observe(0, repeat(2, 7)) // 7 × 19.2 ns ÷ 192 = 0.7 ns, 7 ÷ 192 = 0.036 hits
	}
	wantRank(t, freq, key(0, 1), key(0, 2), key(0, 0))
	wantRank(t, optimal, key(0, 0), key(0, 2), key(0, 1))
}

func TestStaticFrequency_NothingSeen(t *testing.T) {
	for _, p := range []Policy{NewStaticFrequency(), NewStaticOptimal()} {
		wantRank(t, start(t, p, problem([]int64{10, 0}, nil)))
	}
}

func TestStaticDegree_DegreeTimesSavedTime(t *testing.T) {
	stored := map[uint64]int{
		key(0, 1): 17,  // 10 × 1.7 ns ÷ 32 = 0.53 ns
		key(0, 3): 320, // 6 × 32 ns ÷ 320 = 0.6 ns
	}
	of := problem([]int64{5, 3}, stored)
	of.Costs = []Cost{{MissByte: 0.1e-9}, {MissByte: 0.1e-9}}
	p := start(t, NewStaticDegree([]uint32{0, 10, 0, 6}, []uint32{6, 1, 6}), of)
	p.Observe(0, repeat(2, 1000)) // says nothing
	// 6 × 10 ns ÷ 112 = 0.536 ns of table 1's two rows lies between.
	wantRank(t, p, key(0, 3), key(1, 2), key(1, 0), key(0, 1), key(1, 1))
}

func TestStaticDegree_BadDegrees(t *testing.T) {
	for want, c := range map[string]struct {
		p    Policy
		rows []int64
	}{
		"admission: in-degrees of 0 tables must be given for 1 tables":         {NewStaticDegree(), []int64{4}},
		"admission: in-degrees of 2 tables must be given for 1 tables":         {NewStaticDegree(nil, nil), []int64{4}},
		"admission: in-degrees of table 1 (3) must not outnumber its rows (2)": {NewStaticDegree(nil, make([]uint32, 3)), []int64{4, 2}},
	} {
		if err := c.p.Start(problem(c.rows, nil)); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if err := NewStaticDegree(make([]uint32, 4)).Start(problem([]int64{4}, nil)); err != nil {
		t.Errorf("one degree a row: %v", err)
	}
}

// TestStaticFrequency_Frozen: a ranking that was used stays, whatever is accessed later; an empty one does not count.
func TestStaticFrequency_Frozen(t *testing.T) {
	p := start(t, NewStaticFrequency(), problem([]int64{5}, nil))
	wantRank(t, p)
	p.Observe(0, []int64{3, 3, 1})
	wantRank(t, p, key(0, 3), key(0, 1))
	p.Observe(0, repeat(2, 9))
	p.Resize(1)
	wantRank(t, p, key(0, 3), key(0, 1))
}

// TestPageRank_FlowsBalance: what each vertex has is what flows in from its predecessors and from the start.
func TestPageRank_FlowsBalance(t *testing.T) {
	g := Graph{ // 0 → 1 (twice), 2; 1 → 2; 2 nowhere; 3 → 3, 0; 4 alone
		Indptr: []int64{0, 3, 4, 4, 6, 6}, Indices: []int32{1, 1, 2, 2, 3, 0},
	}
	for name, seeds := range map[string][]int32{"all": nil, "some": {0, 3, 3}} {
		g.Seeds = seeds
		start := [5]float64{.2, .2, .2, .2, .2}
		if seeds != nil {
			start = [5]float64{0: 1. / 3, 3: 2. / 3}
		}
		r := pageRank(&g)
		again := 1 - pageRankDamping*float64(r[0]+r[1]+r[3]) // the other two go nowhere
		for v, in := range [5]float64{float64(r[3]) / 2, float64(r[0]) * 2 / 3, float64(r[0])/3 + float64(r[1]), float64(r[3]) / 2, 0} {
			if want := pageRankDamping*in + again*start[v]; math.Abs(float64(r[v])-want) > 1e-6 {
				t.Errorf("%s: vertex %d has %g, want %g", name, v, r[v], want)
			}
		}
	}
	if r := pageRank(&Graph{}); len(r) != 0 {
		t.Errorf("no vertices: %v", r)
	}
}

func TestStaticPageRank_RanksTimesSavedTime(t *testing.T) {
	star := Graph{Indptr: []int64{0, 1, 2, 3, 3}, Indices: []int32{3, 3, 3}, Seeds: []int32{0, 1, 2, 2}}
	stored := map[uint64]int{key(0, 0): 17} // a slot of 32: half the value of others
	of := problem([]int64{5}, stored)
	of.Costs = []Cost{{MissByte: 0.1e-9}} // by bytes alone
	p := start(t, NewStaticPageRank(star), of)
	wantRank(t, p, key(0, 3), key(0, 2), key(0, 1), key(0, 0))
	if err := NewStaticPageRank(star).Start(problem([]int64{3}, nil)); err == nil || err.Error() != "admission: graphs of table 0 (4) must not outnumber its rows (3)" {
		t.Errorf("got %v", err)
	}
}
