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

// TestStaticFrequency_Value tells the two policies apart: static-optimal counts hits per slot byte, static-freq the
// host bytes that they save.
func TestStaticFrequency_Value(t *testing.T) {
	stored := map[uint64]int{
		key(0, 0): 17,  // a slot of 32, nearly half of it padding
		key(0, 1): 320, // no padding
		key(0, 2): 16,  // no padding
	}
	freq, optimal := start(t, NewStaticFrequency(), problem([]int64{3}, stored)), start(t, NewStaticOptimal(), problem([]int64{3}, stored))
	for _, p := range []Policy{freq, optimal} {
		p.Observe(0, repeat(0, 9)) // 9 × 17 ÷ 32 = 4.8 bytes, 9 ÷ 32 = 0.28 hits
		p.Observe(0, repeat(1, 6)) // 6 bytes, 6 ÷ 320 = 0.019 hits
		p.Observe(0, repeat(2, 4)) // 4 bytes, 4 ÷ 16 = 0.25 hits
	}
	wantRank(t, freq, key(0, 1), key(0, 0), key(0, 2))
	wantRank(t, optimal, key(0, 0), key(0, 2), key(0, 1))
}

func TestStaticFrequency_NothingSeen(t *testing.T) {
	for _, p := range []Policy{NewStaticFrequency(), NewStaticOptimal()} {
		wantRank(t, start(t, p, problem([]int64{10, 0}, nil)))
	}
}

func TestStaticDegree_DegreeTimesSavedBytes(t *testing.T) {
	stored := map[uint64]int{
		key(0, 1): 17,  // 10 × 17 ÷ 32 = 5.3
		key(0, 3): 320, // 6
	}
	p := start(t, NewStaticDegree([]uint32{0, 10, 0, 6}, []uint32{6, 1, 6}), problem([]int64{5, 3}, stored))
	p.Observe(0, repeat(2, 1000)) // says nothing
	// 6 × 100 ÷ 112 = 5.36 of table 1's two rows lies between.
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

func TestStaticPageRank_RanksTimesSavedBytes(t *testing.T) {
	star := Graph{Indptr: []int64{0, 1, 2, 3, 3}, Indices: []int32{3, 3, 3}, Seeds: []int32{0, 1, 2, 2}}
	stored := map[uint64]int{key(0, 0): 17} // a slot of 32: half the value of others
	p := start(t, NewStaticPageRank(star), problem([]int64{5}, stored))
	wantRank(t, p, key(0, 3), key(0, 2), key(0, 1), key(0, 0))
	if err := NewStaticPageRank(star).Start(problem([]int64{3}, nil)); err == nil || err.Error() != "admission: graphs of table 0 (4) must not outnumber its rows (3)" {
		t.Errorf("got %v", err)
	}
}
