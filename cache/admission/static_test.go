package admission

import (
	"slices"
	"testing"

	"github.com/tensorcache/tensorcache/hashmap"
)

// problem is one whose rows take 100 stored bytes in slots of 112, unless they are named.
func problem(rows []int64, stored map[uint64]int) Problem {
	of := func(key uint64) int {
		if n, ok := stored[key]; ok {
			return n
		}
		return 100
	}
	return Problem{
		Rows: rows, Capacity: 10_000,
		StoredBytes: of, SlotBytes: func(key uint64) int { return (of(key) + 15) / 16 * 16 },
	}
}

func start(t testing.TB, p Policy, problem Problem) Policy {
	t.Helper()
	if err := p.Start(problem); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// rank collects a ranking and checks that no key comes twice.
func rank(t testing.TB, p Policy) []uint64 {
	t.Helper()
	keys := slices.Collect(p.Rank())
	seen := map[uint64]bool{}
	for _, k := range keys {
		if seen[k] {
			t.Fatalf("%s yields key %#x twice", p.Name(), k)
		}
		seen[k] = true
	}
	return keys
}

func wantRank(t testing.TB, p Policy, want ...uint64) {
	t.Helper()
	if got := rank(t, p); !slices.Equal(got, want) {
		t.Errorf("%s ranks %#x, want %#x", p.Name(), got, want)
	}
}

func key(table int, row int64) uint64 { return hashmap.Key(table, row) }

// repeat returns row n times.
func repeat(row int64, n int) []int64 { return slices.Repeat([]int64{row}, n) }

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

// TestPolicy_RankStopsEarly: the cache may stop asking at any key.
func TestPolicy_RankStopsEarly(t *testing.T) {
	for _, p := range []Policy{NewStaticFrequency(), NewStaticOptimal(), NewStaticDegree([]uint32{3, 2, 1}), NewTinyLFU()} {
		start(t, p, problem([]int64{3}, nil))
		p.Observe(0, []int64{0, 0, 0, 1, 1, 2})
		for k := range p.Rank() {
			if k != key(0, 0) {
				t.Errorf("%s yields %#x first", p.Name(), k)
			}
			break
		}
		if got := rank(t, p); len(got) != 3 {
			t.Errorf("%s yields %#x after a Rank that stopped early", p.Name(), got)
		}
	}
}

func TestPolicy_Names(t *testing.T) {
	for want, p := range map[string]Policy{
		"static-freq": NewStaticFrequency(), "static-optimal": NewStaticOptimal(), "static-degree": NewStaticDegree(), "tinylfu": NewTinyLFU(),
	} {
		if p.Name() != want {
			t.Errorf("got %s, want %s", p.Name(), want)
		}
	}
}

// TestPolicy_CloseAnyTime: before Start, after it, and more than once.
func TestPolicy_CloseAnyTime(t *testing.T) {
	for _, p := range []Policy{NewStaticFrequency(), NewStaticOptimal(), NewStaticDegree([]uint32{1}), NewTinyLFU()} {
		p.Close()
	}
	for _, p := range []Policy{NewStaticFrequency(), NewStaticOptimal(), NewStaticDegree([]uint32{1}), NewTinyLFU()} {
		start(t, p, problem([]int64{1}, nil))
		p.Observe(0, []int64{0})
		p.Close()
		p.Close()
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
