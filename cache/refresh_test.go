package cache_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/slab/placement"
)

// scripted is a policy that yields a given ranking and counts what it observes.
type scripted struct {
	mu       sync.Mutex
	ranking  []uint64
	observed map[uint64]int
	capacity int64
	panics   string        // the method that does
	hold     chan struct{} // Observe waits for it to be closed; nil: it does not
}

func (p *scripted) may(method string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.panics == method {
		panic("scripted to panic in " + method)
	}
}

func (p *scripted) set(panics string, ranking []uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.panics, p.ranking = panics, ranking
}

func (p *scripted) Name() string { return "scripted" }
func (p *scripted) Start(problem admission.Problem) error {
	p.may("Start")
	p.capacity, p.observed = problem.Capacity, map[uint64]int{}
	return nil
}
func (p *scripted) Observe(table int, rows []int64) {
	p.may("Observe")
	if p.hold != nil {
		<-p.hold
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range rows {
		p.observed[hashmap.Key(table, r)]++
	}
}
func (p *scripted) Rank() iter.Seq[uint64] {
	p.may("Rank")
	return func(yield func(uint64) bool) {
		for i, k := range p.ranking {
			if i == len(p.ranking)/2 {
				p.may("ranking")
			}
			if !yield(k) {
				return
			}
		}
	}
}
func (p *scripted) Resize(capacity int64) { p.may("Resize"); p.capacity = capacity }
func (p *scripted) Close()                { p.may("Close") }

// rowKeys returns the keys of rows [from, to) of table 0.
func rowKeys(from, to int64) (keys []uint64) {
	for r := from; r < to; r++ {
		keys = append(keys, hashmap.Key(0, r))
	}
	return keys
}

// reasonsOf gathers rows [from, to) of table 0 and returns their hits, and misses by reason.
func reasonsOf(t testing.TB, c *cache.Cache, data []byte, from, to int64) (hits int64, misses [slab.NumReasons]int64) {
	t.Helper()
	rows := make([]int64, to-from)
	for i := range rows {
		rows[i] = from + int64(i)
	}
	out := make([]byte, len(rows)*c.RowBytes(0))
	before := stats(t, c)
	if err := c.Gather(ctx, cache.Request{Rows: rows, Out: out}); err != nil {
		t.Fatal(err)
	}
	checkRows(t, data, c.RowBytes(0), rows, out)
	s := stats(t, c).Sub(before).Tables[0]
	return s.Hits, s.MissesByReason
}

func refresh(t testing.TB, c *cache.Cache) {
	t.Helper()
	if err := c.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestRefresh_FollowsTheRanking: a cold cache is filled in the order of the ranking. Later cycles evict the rows ranked lowest, up to
// MaxChurn in a cycle, and misses have the right reasons.
func TestRefresh_FollowsTheRanking(t *testing.T) {
	const rows, rowBytes, cached = 1000, 64, 100
	data := normalTable(rows, rowBytes/4, 1)
	for _, devices := range []int{1, 4} {
		p := &scripted{}
		c := newCache(t, cache.Options{
			Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Codec: "none", Admission: cache.AdmissionOptions{Policy: p, Cold: true}, Devices: cache.DeviceOptions{Count: devices},
			Budget: int64(cached*(rowBytes+40) + 1000), Refresh: cache.RefreshOptions{MaxChurn: 0.25},
		})
		if hits, misses := reasonsOf(t, c, data, 0, rows); hits != 0 || misses[slab.Cold] != rows {
			t.Fatalf("cold: %d hits, misses %v", hits, misses)
		}
		refresh(t, c) // nothing is ranked
		if s := stats(t, c); s.PayloadBytes != 0 || s.Changes.Cycles != 1 {
			t.Fatalf("%d bytes admitted by an empty ranking, %+v", s.PayloadBytes, s.Changes)
		}
		p.set("", rowKeys(0, 50))
		refresh(t, c)
		if hits, misses := reasonsOf(t, c, data, 0, 60); hits != 50 || misses[slab.Cold] != 10 {
			t.Fatalf("50 ranked: %d hits, misses %v", hits, misses)
		}
		p.set("", rowKeys(0, rows))
		refresh(t, c)
		full := stats(t, c).Tables[0].CachedRows
		if full < 50 || full >= 600 {
			t.Fatalf("%d rows cached", full)
		}
		hits, misses := reasonsOf(t, c, data, 0, rows)
		if hits != full || misses != [slab.NumReasons]int64{slab.Rejected: rows - full} {
			t.Fatalf("full: %d hits, misses %v", hits, misses)
		}
		// Rows of the second half are admitted, a quarter of the slots in each cycle. Rows that are not ranked are evicted first.
		p.set("", append(rowKeys(500, rows), rowKeys(0, 25)...))
		before := stats(t, c)
		refresh(t, c)
		n := stats(t, c).Sub(before).Changes
		if quarter := full / 4; n.EvictedRows < quarter-4 || n.EvictedRows > quarter+4*int64(devices) || n.AdmittedRows > n.EvictedRows+4*int64(devices) || n.AdmittedRows < n.EvictedRows-4 {
			t.Fatalf("one cycle: %+v, %d rows cached", n, full)
		}
		if hits, misses := reasonsOf(t, c, data, 25, 500); misses[slab.Evicted] == 0 || misses[slab.Evicted] > n.EvictedRows || hits+misses[slab.Rejected]+misses[slab.Evicted] != 475 {
			t.Fatalf("after one cycle: %d hits, misses %v, %d evicted", hits, misses, n.EvictedRows)
		}
		if hits, _ := reasonsOf(t, c, data, 0, 25); hits != 25 {
			t.Fatalf("%d of 25 ranked rows are left", hits)
		}
		for range 8 {
			refresh(t, c)
		}
		now := stats(t, c).Tables[0].CachedRows
		if hits, _ := reasonsOf(t, c, data, 500, rows); hits != now || now != full {
			t.Fatalf("in the end: %d hits of %d cached rows, %d before", hits, now, full)
		}
	}
}

func TestRefresh_BytesPerCycle(t *testing.T) {
	const rows, rowBytes = 1000, 64
	data := normalTable(rows, rowBytes/4, 1)
	p := &scripted{ranking: rowKeys(0, rows)}
	c := newCache(t, cache.Options{
		Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Codec: "none", Admission: cache.AdmissionOptions{Policy: p, Cold: true}, Budget: 60_000,
		Refresh: cache.RefreshOptions{MaxBytes: 10 * rowBytes},
	})
	for i := range int64(5) {
		refresh(t, c)
		if s := stats(t, c); s.Changes.AdmittedRows != 10*(i+1) || s.Changes.RefreshedBytes != 10*rowBytes*(i+1) || s.PayloadBytes != s.Changes.RefreshedBytes {
			t.Fatalf("cycle %d: %+v", i, s.Changes)
		}
	}
}

// TestRefresh_LearnsInTheBackground: background cycles of a cold cache admit the rows that are looked up, and others when the lookups change.
func TestRefresh_LearnsInTheBackground(t *testing.T) {
	const rows, rowBytes, hot = 4000, 64, 200
	data := normalTable(rows, rowBytes/4, 1)
	for _, devices := range []int{1, 3} {
		p := &recent{}
		c := newCache(t, cache.Options{
			Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Admission: cache.AdmissionOptions{Policy: p, Cold: true}, Devices: cache.DeviceOptions{Count: devices}, Budget: 45_000,
			Refresh: cache.RefreshOptions{Interval: time.Millisecond, MaxChurn: 0.5},
		})
		r := rand.New(rand.NewPCG(1, 1))
		for phase := range int64(2) {
			deadline := time.Now().Add(time.Minute)
			for {
				ids := make([]int64, 1000)
				for i := range ids {
					ids[i] = phase*2000 + r.Int64N(hot)
				}
				before := stats(t, c)
				out := make([]byte, len(ids)*rowBytes)
				if err := c.Gather(ctx, cache.Request{Rows: ids, Out: out}); err != nil {
					t.Fatal(err)
				}
				checkRows(t, data, rowBytes, ids, out)
				s := stats(t, c).Sub(before).Tables[0]
				if s.Hits*10 > s.Lookups*9 {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("phase %d: %d hits of %d lookups, %+v", phase, s.Hits, s.Lookups, stats(t, c).Changes)
				}
			}
		}
		if s := stats(t, c); s.Changes.SampledAccesses == 0 || s.AdmittedAge < 0 {
			t.Fatalf("%+v", s)
		}
	}
}

// recent ranks rows by how often they were among the last 5000 accesses.
type recent struct{ last []uint64 }

func (p *recent) Name() string                  { return "recent" }
func (p *recent) Start(admission.Problem) error { return nil }
func (p *recent) Observe(table int, rows []int64) {
	for _, r := range rows {
		p.last = append(p.last, hashmap.Key(table, r))
	}
	p.last = p.last[max(0, len(p.last)-5000):]
}
func (p *recent) Rank() iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		seen := map[uint64]bool{}
		for i := len(p.last) - 1; i >= 0; i-- {
			if k := p.last[i]; !seen[k] {
				if seen[k] = true; !yield(k) {
					return
				}
			}
		}
	}
}
func (p *recent) Resize(int64) {}
func (p *recent) Close()       {}

// TestRefresh_Samples: the policy observes about the configured share of accesses, and OnKeys receives every access to the sampled keys.
func TestRefresh_Samples(t *testing.T) {
	const rows, rowBytes = 2000, 32
	data := normalTable(rows, rowBytes/4, 1)
	p := &scripted{}
	keys := map[int64]int{}
	c := newCache(t, cache.Options{
		Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Admission: cache.AdmissionOptions{Policy: p}, Budget: 20_000,
		Refresh: cache.RefreshOptions{Accesses: 0.25, Keys: 0.1, OnKeys: func(table int, rows []int64) {
			for _, r := range rows {
				keys[r]++
			}
		}},
	})
	ids := make([]int64, rows)
	for i := range ids {
		ids[i] = int64(i)
	}
	for range 10 {
		if err := c.Gather(ctx, cache.Request{Rows: ids, Out: make([]byte, rows*rowBytes)}); err != nil {
			t.Fatal(err)
		}
	}
	refresh(t, c)
	sum := 0
	for _, n := range p.observed {
		sum += n
	}
	if sum < 4500 || sum > 5500 { // 5000 ± 8 standard deviations
		t.Errorf("%d of 20000 accesses observed at a rate of 1/4", sum)
	}
	if len(keys) < 100 || len(keys) > 320 {
		t.Errorf("%d of 2000 keys sampled at a rate of 1/10", len(keys))
	}
	for r, n := range keys {
		if n != 10 {
			t.Errorf("row %d: %d of 10 accesses", r, n)
		}
	}
	if n := stats(t, c).Changes; n.LostAccesses != 0 || n.SampledAccesses < int64(sum) {
		t.Errorf("%+v", n)
	}
}

// TestRefresh_OverrunsAreCounted: while the policy is busy, samples beyond what waits for it and the length of the ring are lost, and counted.
func TestRefresh_OverrunsAreCounted(t *testing.T) {
	const rows, batches = 100_000, 10 // a ring has 131,072 records; one is observed, four wait, and one may be full
	p := &scripted{hold: make(chan struct{})}
	c := newCache(t, cache.Options{
		Tables: []cache.Table{fromBytes(t, "x", make([]byte, 4*rows), 4)}, Admission: cache.AdmissionOptions{Policy: p}, Budget: 200_000,
		Refresh: cache.RefreshOptions{Accesses: 1},
	})
	ids := make([]int64, rows)
	for range batches {
		if err := c.Gather(ctx, cache.Request{Rows: ids, Out: make([]byte, 4*rows)}); err != nil {
			t.Fatal(err)
		}
	}
	close(p.hold)
	// A record that was not written before the ring wrapped around is counted as lost by the second drain that misses it.
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		refresh(t, c)
		if n := stats(t, c).Changes; n.SampledAccesses+n.LostAccesses == batches*rows {
			break
		}
	}
	if n := stats(t, c).Changes; n.SampledAccesses+n.LostAccesses != batches*rows || n.LostAccesses < rows || int64(p.observed[0]) != n.SampledAccesses {
		t.Errorf("%+v, %d observed", n, p.observed[0])
	}
}

func TestSetBudget_ShrinksAndGrows(t *testing.T) {
	const rows, rowBytes = 1000, 64
	data := normalTable(rows, rowBytes/4, 1)
	for _, devices := range []int{1, 3} {
		p := &scripted{ranking: rowKeys(0, rows)}
		c := newCache(t, cache.Options{
			Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Codec: "none", Admission: cache.AdmissionOptions{Policy: p}, Budget: 40_000, Devices: cache.DeviceOptions{Count: devices},
		})
		full := stats(t, c)
		for _, budget := range []int64{39_000, 25_000, full.MetadataBytes/int64(devices) + 10*rowBytes, 40_000} {
			if err := c.SetBudget(ctx, budget); err != nil {
				t.Fatal(err)
			}
			s := stats(t, c) // checks that the budget is kept
			if s.BudgetBytes != budget*int64(devices) || p.capacity > s.BudgetBytes-s.MetadataBytes {
				t.Fatalf("budget %d: %d in all, the policy has %d", budget, s.BudgetBytes, p.capacity)
			}
			want := (s.BudgetBytes - s.MetadataBytes) / rowBytes
			if budget < 40_000 && (s.Tables[0].CachedRows > want || s.Tables[0].CachedRows < want-2*int64(devices)) {
				t.Fatalf("budget %d: %d rows cached, want %d", budget, s.Tables[0].CachedRows, want)
			}
			if hits, _ := reasonsOf(t, c, data, 0, rows); hits != s.Tables[0].CachedRows {
				t.Fatalf("budget %d: %d hits, %d rows cached", budget, hits, s.Tables[0].CachedRows)
			}
		}
		for range 12 {
			refresh(t, c)
		}
		if s := stats(t, c); s.Tables[0].CachedRows < full.Tables[0].CachedRows-int64(devices) {
			t.Fatalf("%d rows cached after growing back, %d before", s.Tables[0].CachedRows, full.Tables[0].CachedRows)
		}
		if err := c.SetBudget(ctx, 100); !errors.Is(err, cache.ErrBudget) {
			t.Errorf("100 B: %v", err)
		}
		for _, huge := range []int64{1<<59 + 1, math.MaxInt64} {
			if err := c.SetBudget(ctx, huge); !errors.Is(err, cache.ErrOptions) || err.Error() != fmt.Sprintf("cache: GPUMemory (%d B) must be at most 2^59 B", huge) {
				t.Errorf("huge budget: %v", err)
			}
		}
	}
}

// TestSetBudget_OversizeRows: the budget includes the row bits of oversize rows.
func TestSetBudget_OversizeRows(t *testing.T) {
	race.SkipSequential(t)
	const rows, rowBytes = 4000, 5000
	data := make([]byte, rows*rowBytes)
	copy(data, noise(1, rowBytes, 1))
	p := &scripted{ranking: rowKeys(0, rows)}
	c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Codec: "ibp8", Admission: cache.AdmissionOptions{Policy: p}, Budget: 6_000, Devices: cache.DeviceOptions{Backend: "host"}})
	if _, misses := reasonsOf(t, c, data, 0, 1); misses[slab.Oversize] != 1 {
		t.Fatalf("misses by reason %v", misses)
	}
	for budget := int64(6_000); ; budget -= 100 {
		err := c.SetBudget(ctx, budget)
		if errors.Is(err, cache.ErrBudget) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		refresh(t, c)
		stats(t, c) // checks that the budget is kept
	}
}

// TestRefresh_PolicyPanics: if a method of the policy panics, the cache reports it and serves on.
func TestRefresh_PolicyPanics(t *testing.T) {
	data := normalTable(500, 16, 1)
	ids := []int64{1, 2, 3, 499}
	for _, method := range []string{"Observe", "Rank", "ranking", "Resize", "Close"} {
		p := &scripted{ranking: rowKeys(0, 200)}
		c := newCache(t, cache.Options{
			Tables: []cache.Table{fromBytes(t, "x", data, 64)}, Admission: cache.AdmissionOptions{Policy: p}, Budget: 20_000, Refresh: cache.RefreshOptions{Accesses: 1},
		})
		cached := stats(t, c).Tables[0].CachedRows
		p.set(method, rowKeys(300, 500))
		out := make([]byte, len(ids)*64)
		if err := c.Gather(ctx, cache.Request{Rows: ids, Out: out}); err != nil {
			t.Fatal(err)
		}
		var err error
		if method == "Resize" {
			err = c.SetBudget(ctx, 15_000)
		} else {
			err = c.Refresh(ctx)
		}
		if method != "Close" {
			want := "cache: admission policy failed: scripted: panic: scripted to panic in " + method
			if !errors.Is(err, cache.ErrPolicy) || err.Error() != want {
				t.Errorf("%s: %v", method, err)
			}
			p.set("", nil)
			if err := c.Refresh(ctx); !errors.Is(err, cache.ErrPolicy) {
				t.Errorf("%s: a later Refresh: %v", method, err)
			}
			s := stats(t, c)
			if s.PolicyError != want || s.RefreshError != want {
				t.Errorf("%s: %q, %q", method, s.PolicyError, s.RefreshError)
			}
			if method != "Resize" && s.Tables[0].CachedRows != cached {
				t.Errorf("%s: %d rows cached, %d before", method, s.Tables[0].CachedRows, cached)
			}
			if err := c.SetBudget(ctx, 12_000); !errors.Is(err, cache.ErrPolicy) {
				t.Errorf("%s: SetBudget: %v", method, err)
			}
		}
		stats(t, c)
		if err := errors.Join(c.Update(ctx, 0, []int64{3}, data[:64]), c.Gather(ctx, cache.Request{Rows: ids, Out: out})); err != nil {
			t.Errorf("%s: %v", method, err)
		}
		checkRows(t, data, 64, []int64{1, 2, 0, 499}, out)
		if err := c.Close(); err != nil {
			t.Errorf("%s: %v", method, err)
		}
	}
	for _, method := range []string{"Start", "Observe", "Rank"} {
		p := &scripted{panics: method, ranking: rowKeys(0, 10)}
		_, err := cache.New(cache.Options{
			Tables: []cache.Table{fromBytes(t, "x", data, 64)}, Admission: cache.AdmissionOptions{Policy: p, Training: batches(0, ids)}, Budget: 20_000,
		})
		if !errors.Is(err, cache.ErrPolicy) || !strings.Contains(err.Error(), method) {
			t.Errorf("New: %s: %v", method, err)
		}
	}
}

// TestRefresh_OddRankings: rankings with unknown keys and duplicates do no harm.
func TestRefresh_OddRankings(t *testing.T) {
	data := normalTable(500, 16, 1)
	p := &scripted{ranking: []uint64{5, 5, hashmap.Key(0, 500), hashmap.Key(0, 1<<50), hashmap.Key(1, 3), hashmap.Key(255, 1<<56-1), 5, 7}}
	c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "x", data, 64)}, Admission: cache.AdmissionOptions{Policy: p, Cold: true}, Budget: 20_000})
	refresh(t, c)
	if s := stats(t, c); s.Tables[0].CachedRows != 2 {
		t.Fatalf("%d rows cached", s.Tables[0].CachedRows)
	}
}

func TestRefresh_Canceled(t *testing.T) {
	data := normalTable(500, 16, 1)
	c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "x", data, 64)}, Admission: cache.AdmissionOptions{Policy: &scripted{ranking: rowKeys(0, 400)}, Cold: true}, Budget: 20_000})
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if err := c.Refresh(canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("Refresh: %v", err)
	}
	refresh(t, c)
	c.Close()
	if err := c.Refresh(ctx); !errors.Is(err, cache.ErrClosed) {
		t.Errorf("Refresh after Close: %v", err)
	}
	if err := c.SetBudget(ctx, 10_000); !errors.Is(err, cache.ErrClosed) {
		t.Errorf("SetBudget after Close: %v", err)
	}
}

// TestRefresh_FragmentationIsBounded: after any number of cycles over rows of many lengths, the free pieces that are too
// short for the longest row are at most a sixteenth of the slab and a window.
func TestRefresh_FragmentationIsBounded(t *testing.T) {
	race.SkipSequential(t)
	t.Run("1 device", func(t *testing.T) { testFragmentation(t, 1, 0) })
	// Rows of the first device are never ranked. It has nothing to move, which must not stop the compaction of the others.
	t.Run("2 devices", func(t *testing.T) { testFragmentation(t, 2, 1) })
}

// testFragmentation is TestRefresh_FragmentationIsBounded with rows of one device.
func testFragmentation(t *testing.T, devices, owner int) {
	const rows, rowBytes = 20_000, 400
	r := rand.New(rand.NewPCG(1, 1))
	data := make([]byte, rows*rowBytes)
	for i := range rows { // rows take about any length as stored
		for j := range r.IntN(rowBytes + 1) {
			data[i*rowBytes+j] = byte(r.Uint32())
		}
	}
	p := &scripted{}
	c := newCache(t, cache.Options{
		Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Codec: "ibp8", Admission: cache.AdmissionOptions{Policy: p, Cold: true}, Budget: 1 << 20,
		Refresh: cache.RefreshOptions{MaxChurn: 0.3}, Devices: cache.DeviceOptions{Count: devices, Backend: "host"},
	})
	worst := int64(0)
	for cycle := range 60 {
		var ranking []uint64
		from := int64(cycle) * 37 % 15_000
		for _, i := range r.Perm(rows)[:4000*devices] {
			key := hashmap.Key(0, int64(i))
			if row := int64(i); row >= from && row < from+6000 && placement.NewPartition(slices.Repeat([]int64{1}, devices)).Owner(key) == owner {
				ranking = append(ranking, key)
			}
		}
		p.set("", ranking)
		if cycle%7 == 3 { // most rows go, and leave pieces
			if err := c.SetBudget(ctx, 700_000); err != nil {
				t.Fatal(err)
			}
		} else if cycle%7 == 5 {
			if err := c.SetBudget(ctx, 1<<20); err != nil {
				t.Fatal(err)
			}
		}
		refresh(t, c)
		s := stats(t, c)
		worst = max(worst, s.HoleBytes)
		payload := 1<<20 - s.MetadataBytes/int64(devices)
		if s.HoleBytes > payload/16+16*rowBytes {
			t.Fatalf("cycle %d: %d bytes of holes in a slab of %d, %+v", cycle, s.HoleBytes, payload, s.Changes)
		}
	}
	if n := stats(t, c).Changes; n.MovedRows == 0 {
		t.Errorf("no row was ever moved: %+v", n)
	} else {
		t.Logf("holes at most %d bytes, %+v", worst, n)
	}
	if hits, _ := reasonsOf(t, c, data, 0, rows); hits != stats(t, c).Tables[0].CachedRows {
		t.Errorf("%d hits", hits)
	}
}

// TestRefresh_SettlesDown: while the ranking stays the same, hardly any row is admitted or evicted.
func TestRefresh_SettlesDown(t *testing.T) {
	race.SkipSequential(t)
	const rows, rowBytes = 20_000, 200
	data := normalTable(rows, rowBytes/4, 1)
	for _, devices := range []int{1, 4} {
		c := newCache(t, cache.Options{
			Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Admission: cache.AdmissionOptions{Policy: &scripted{ranking: rowKeys(0, rows)}}, Budget: 300_000, Devices: cache.DeviceOptions{Count: devices},
		})
		cached := stats(t, c).Tables[0].CachedRows
		for range 10 {
			refresh(t, c)
		}
		s := stats(t, c)
		t.Logf("%d devices: %d rows cached, then %d, %+v", devices, cached, s.Tables[0].CachedRows, s.Changes)
		if s.Tables[0].CachedRows < cached-cached/100 || s.Changes.EvictedRows > cached/50 {
			t.Errorf("%d devices: %d rows cached, then %d, %+v", devices, cached, s.Tables[0].CachedRows, s.Changes)
		}
	}
}
