package sim

import (
	"encoding/csv"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/realdata"
)

func mooncake(t testing.TB, share float64) *Stream {
	s, err := Mooncake(realdata.Trace(t, "mooncake_conversation.jsonl.gz"), share)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// replay returns a stream of rows of one size.
func replay(t testing.TB, ids []int64, batch int, rows, places int64) *Stream {
	t.Helper()
	w, err := workload.NewReplay(ids, batch)
	if err != nil {
		t.Fatal(err)
	}
	return unit("test", w, rows, places)
}

// script is a policy that offers lists of rows, one a refresh.
type script struct {
	admission.Policy
	lists    [][]int64
	observed []int64
}

func (p *script) Start(admission.Problem) error   { return nil }
func (p *script) Observe(table int, rows []int64) { p.observed = append(p.observed, rows...) }
func (p *script) Close()                          {}
func (p *script) Rank() iter.Seq[uint64] {
	list := p.lists[0]
	p.lists = p.lists[1:]
	return func(yield func(uint64) bool) {
		for _, r := range list {
			if !yield(hashmap.Key(0, r)) {
				return
			}
		}
	}
}

func TestRun_AdmitsThePrefixThatFits(t *testing.T) {
	ids := slices.Repeat([]int64{0, 1, 2, 3, 4, 5}, 5)
	p := &script{lists: [][]int64{{3, 1, 4}, {0, 3}, {}, {5, 4, 3, 2, 1, 0}, {}}}
	out, err := Run(replay(t, ids, 6, 6, 2), p, Options{Every: 1})
	if err != nil {
		t.Fatal(err)
	}
	// Admitted after each batch: 3 1, 0 3 (1 is not ranked, so it goes), 0 3 (nothing new), 5 4, 5 4.
	if want := []float64{0, 1. / 3, 1. / 3, 1. / 3, 1. / 3}; !slices.Equal(out.ByBatch, want) || out.Hits != 8 || out.Lookups != 30 {
		t.Errorf("%+v", out)
	}
	if out.Churned != 5*unitSlot || out.Refreshes != 5 || !slices.Equal(p.observed, ids) {
		t.Errorf("%+v, observed %v", out, p.observed)
	}
}

func TestRun_ChurnLimit(t *testing.T) {
	ids := slices.Repeat([]int64{0, 1, 2, 3, 4, 5, 6, 7}, 4)
	p := &script{lists: [][]int64{{0, 1, 2, 3}, {4, 5, 6, 7, 3, 2}, {4, 5, 6, 7, 2, 0}, {}}}
	s := replay(t, ids, 8, 8, 4)
	out, err := Run(s, p, Options{Every: 1, Churn: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	// 0 1; then 4 5 beside them, as there is room; then 6 7 for 1, which is not ranked, and 0, which is ranked last.
	if want := []float64{0, 2. / 8, 4. / 8, 4. / 8}; !slices.Equal(out.ByBatch, want) || out.Churned != 6*unitSlot {
		t.Errorf("%+v", out)
	}
}

// TestRun_Warmup: warm-up batches are observed but not measured, and a static cache is filled after them.
func TestRun_Warmup(t *testing.T) {
	s := replay(t, slices.Repeat([]int64{0, 1}, 8), 2, 2, 2)
	s.Warmup = 3
	p := &script{lists: [][]int64{{1}}}
	out, err := Run(s, p, Options{Every: 1, Static: true})
	if err != nil || out.Lookups != 10 || out.Hits != 5 || len(out.ByBatch) != 5 || len(p.observed) != 16 {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestRun_Sampling(t *testing.T) {
	ids := make([]int64, 100_000)
	p := &script{}
	if _, err := Run(replay(t, ids, 1000, 1, 1), p, Options{Every: 1000, Sampling: 0.25, Seed: 3}); err != nil || len(p.observed) < 24_500 || len(p.observed) > 25_500 {
		t.Errorf("%d of 100,000 accesses were observed: %v", len(p.observed), err)
	}
}

func TestRun_BadOptions(t *testing.T) {
	_, err := Run(nil, nil, Options{Every: -1, Churn: -1, Sampling: 2})
	want := "sim: Every (-1) must be at least 1\nsim: Churn (-1) must be above 0\nsim: Sampling (2) must be above 0 and at most 1"
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

// TestOptimal_BruteForce compares with the best of all sets, for rows of one size.
func TestOptimal_BruteForce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const rows = 8
		ids := rapid.SliceOfN(rapid.Int64Range(0, rows-1), 1, 60).Draw(rt, "ids")
		places := rapid.Int64Range(0, rows).Draw(rt, "places")
		s := replay(t, ids, 5, rows, places)
		s.Phase = rapid.IntRange(0, 4).Draw(rt, "phase")
		phase := 5 * s.Phase
		if phase == 0 {
			phase = len(ids)
		}
		best := 0
		for part := range slices.Chunk(ids, phase) {
			most := 0
			for set := range 1 << rows {
				size, hits := 0, 0
				for r := range rows {
					size += set >> r & 1
				}
				for _, r := range part {
					hits += set >> r & 1
				}
				if size <= int(places) {
					most = max(most, hits)
				}
			}
			best += most
		}
		if out := Optimal(s); out.Hits != int64(best) || out.Lookups != int64(len(ids)) {
			rt.Fatalf("%d hits of %d, want %d of %d", out.Hits, out.Lookups, best, len(ids))
		}
	})
}

// TestBelady_Reference: the misses are those published for the trace.
func TestBelady_Reference(t *testing.T) {
	s := mooncake(t, 0.05)
	f, err := os.Open(realdata.Trace(t, "EXPECTED.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	figures, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, row := range figures {
		if row[0] != "mooncake_conversation" || row[1] != "beladybypass" {
			continue
		}
		places, _ := strconv.Atoi(row[2])
		out := Belady(s, places)
		if got := fmt.Sprintf("%.9f", 1-out.HitRatio()); got != row[4] || out.Lookups != 288_500 {
			t.Errorf("%d places: %s of %d missed, want %s", places, got, out.Lookups, row[4])
		}
		compared++
	}
	if compared < 4 {
		t.Errorf("%d figures were compared", compared)
	}
}

// TestBelady_IsTheCeiling: of caches filled on demand, none hits more.
func TestBelady_IsTheCeiling(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	ids := make([]int64, 5000)
	for i := range ids {
		ids[i] = r.Int64N(200) * r.Int64N(200) / 200
	}
	s := replay(t, ids, 1, 200, 30)
	ceiling := Belady(s, 30)
	for _, name := range []string{"lru", "glru-2q", "glru-arc", "freq", "tinylfu"} {
		p := newPolicy(t, name)
		out, err := Run(s, p, Options{Every: 1})
		if err != nil || out.Hits > ceiling.Hits || out.Hits < ceiling.Hits/4 {
			t.Errorf("%s hits %d times, Belady %d: %v", name, out.Hits, ceiling.Hits, err)
		}
	}
}

func TestMooncake_BadFile(t *testing.T) {
	for name, content := range map[string]string{"none": "", "plain.gz": "{}"} {
		path := filepath.Join(t.TempDir(), name)
		if name != "none" {
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if s, err := Mooncake(path, 0.05); err == nil {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// newPolicy returns a policy that needs no inputs.
func newPolicy(t *testing.T, name string) admission.Policy {
	t.Helper()
	spec, err := admission.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	p, err := spec.New(admission.Inputs{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}
