package admission

import (
	"cmp"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/race"
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

// everyPolicy makes one of each, for one table of rows whose graph is a ring.
func everyPolicy(t testing.TB, rows int) iter.Seq2[string, Policy] {
	ring := Graph{Indptr: make([]int64, rows+1), Indices: make([]int32, rows)}
	for v := range rows {
		ring.Indptr[v+1], ring.Indices[v] = int64(v+1), int32((v+1)%rows)
	}
	return func(yield func(string, Policy) bool) {
		for _, name := range Names() {
			p, err := newPolicy(name, Inputs{Graphs: []Graph{ring}})
			if err != nil {
				t.Fatal(err)
			}
			if !yield(name, p) {
				return
			}
		}
	}
}

func TestNew_Names(t *testing.T) {
	for name, p := range everyPolicy(t, 1) {
		if p.Name() != name {
			t.Errorf("%s is called %s", name, p.Name())
		}
	}
	if !slices.Contains(Names(), Default) || !slices.IsSorted(Names()) {
		t.Errorf("names %v, default %s", Names(), Default)
	}
}

func TestLookup_Unknown(t *testing.T) {
	want := `unknown policy ("mru") must be one of ` + strings.Join(Names(), ", ")
	if _, err := Lookup("mru"); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestRegister_Twice(t *testing.T) {
	defer func() {
		if r := recover(); r != "admission: policy freq is registered twice" {
			t.Errorf("panicked with %v", r)
		}
	}()
	register(Spec{Name: "freq"})
}

// TestPolicy_RankStopsEarly: the cache may stop asking at any key.
func TestPolicy_RankStopsEarly(t *testing.T) {
	for name, p := range everyPolicy(t, 3) {
		start(t, p, problem([]int64{3}, nil))
		p.Observe(0, []int64{2, 1, 1, 0, 0, 0})
		for range p.Rank() {
			break
		}
		if got := rank(t, p); len(got) != 3 {
			t.Errorf("%s yields %#x after a Rank that stopped early", name, got)
		}
	}
}

// TestPolicy_CloseAnyTime: before Start, after it, and more than once.
func TestPolicy_CloseAnyTime(t *testing.T) {
	for _, p := range everyPolicy(t, 1) {
		p.Close()
		p.Close()
	}
	for _, p := range everyPolicy(t, 1) {
		start(t, p, problem([]int64{1}, nil))
		p.Observe(0, []int64{0})
		p.Close()
		p.Close()
	}
}

// TestPolicy_Lifetime drives every policy as a cache does, refresh after refresh, and checks what holds of all: each key
// comes once and is a row; rows that nobody asked for are offered only by policies that know the graph.
func TestPolicy_Lifetime(t *testing.T) {
	race.SkipSequential(t)
	const rows = 300
	for _, capacity := range []int64{0, 1, 112, 5_000, 1 << 40} {
		for name, p := range everyPolicy(t, rows) {
			spec, _ := Lookup(name)
			t.Run(fmt.Sprintf("%s/%d", name, capacity), func(t *testing.T) {
				problem := problem([]int64{rows}, map[uint64]int{key(0, 7): 1, key(0, 8): 3000})
				problem.Capacity = capacity
				start(t, p, problem)
				r := rand.New(rand.NewPCG(1, uint64(capacity)))
				seen := map[uint64]bool{}
				for cycle := range 30 {
					for range r.IntN(4) {
						batch := make([]int64, r.IntN(200))
						for i := range batch {
							batch[i] = int64(r.IntN(rows) * r.IntN(rows) / rows)
							seen[key(0, batch[i])] = true
						}
						p.Observe(0, batch)
					}
					for _, k := range rank(t, p) {
						if table, row := hashmap.SplitKey(k); table != 0 || row < 0 || row >= rows {
							t.Fatalf("cycle %d: key %#x is no row", cycle, k)
						}
						if spec.Learns != FromGraph && !seen[k] {
							t.Fatalf("cycle %d: row %#x was never accessed", cycle, k)
						}
					}
					if e, ok := p.(Explainer); ok {
						for row := range int64(rows) {
							if e := e.Explain(key(0, row)); e.Frequency < 0 || e.Score < 0 || e.Victim < 0 {
								t.Fatalf("cycle %d: row %d: %+v", cycle, row, e)
							}
						}
					}
					if r.IntN(5) == 0 {
						capacity = capacity/2 + r.Int64N(1000)
						p.Resize(capacity)
					}
				}
			})
		}
	}
}

// TestPolicy_Reproducible: equal accesses give equal rankings, however they are batched.
func TestPolicy_Reproducible(t *testing.T) {
	race.SkipSequential(t)
	const rows = 500
	ranks := map[string][][]uint64{}
	for split := range 2 {
		for name, p := range everyPolicy(t, rows) {
			start(t, p, problem([]int64{rows}, nil))
			r := rand.New(rand.NewPCG(3, 4))
			for range 20 {
				batch := make([]int64, 700)
				for i := range batch {
					batch[i] = int64(r.IntN(rows) * r.IntN(rows) / rows)
				}
				if split == 0 {
					p.Observe(0, batch)
				} else {
					for i := 0; i < len(batch); i += 33 {
						p.Observe(0, batch[i:min(i+33, len(batch))])
					}
				}
				ranks[name] = append(ranks[name], rank(t, p))
			}
		}
	}
	for name, r := range ranks {
		for i := range 20 {
			if !slices.Equal(r[i], r[20+i]) {
				t.Errorf("%s: ranking %d differs", name, i)
			}
		}
	}
}

// TestPolicy_ResizeChangesWhatIsHeld: policies that hold a set of their own hold as many rows as fit.
func TestPolicy_ResizeChangesWhatIsHeld(t *testing.T) {
	for _, name := range []string{"lru", "glru-2q", "glru-arc"} {
		p, _ := newPolicy(name, Inputs{})
		problem := problem([]int64{1000}, nil)
		problem.Capacity = 20 * 112
		start(t, p, problem)
		for _, places := range []int{20, 50, 10, 30} {
			p.Resize(int64(places) * 112)
			for row := range int64(1000) {
				p.Observe(0, []int64{row})
			}
			if got := len(rank(t, p)); got != places {
				t.Errorf("%s holds %d rows, has %d places", name, got, places)
			}
		}
	}
}

// newPolicy returns the named policy.
func newPolicy(name string, in Inputs) (Policy, error) {
	spec, err := Lookup(name)
	if err != nil {
		return nil, err
	}
	return spec.New(in)
}

// TestScores_SameOnAllProcessors: rows are in the order of their values, then of their hashes, whoever sorts them.
func TestScores_SameOnAllProcessors(t *testing.T) {
	for _, values := range []int{1, 3, 100_000} { // many ties, and few
		r := rand.New(rand.NewPCG(1, 2))
		all := make([]scored, 300_000)
		for i := range all {
			all[i] = scored{hashmap.Hash(hashmap.Key(3, int64(i))), float64(r.IntN(values))}
		}
		want := slices.Clone(all)
		slices.SortFunc(want, func(a, b scored) int {
			return cmp.Or(cmp.Compare(b.value, a.value), cmp.Compare(a.hash, b.hash))
		})
		for _, workers := range []int{1, 2, 7, 16, 1000} {
			got := slices.Clone(all)
			if sortScored(got, workers); !slices.Equal(got, want) {
				t.Errorf("%d values, %d goroutines: another order", values, workers)
			}
		}
	}
}
