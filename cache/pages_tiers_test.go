package cache_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/race"
)

// tiersOfRows returns how many rows each tier holds, as Explain has it.
func tiersOfRows(t *testing.T, c *cache.Cache, rows int) map[string]int {
	t.Helper()
	n := map[string]int{}
	for from := 0; from < rows; from += 5000 {
		all, err := c.Explain(0, allOf(rows)[from:min(from+5000, rows)])
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			n[e.Tier]++
			if e.Since.IsZero() || e.Since.After(time.Now()) || e.Since.Before(time.Now().Add(-time.Hour)) {
				t.Fatalf("row %d is on %s since %v", e.Row, e.Tier, e.Since)
			}
		}
	}
	return n
}

// zipfBatches returns batches of a skewed workload: row k of a random order is asked for about as often as 1/k.
func zipfBatches(seed uint64, n, batch, rows int) [][]int64 {
	r := rand.New(rand.NewPCG(seed, 9))
	order, zipf := rand.New(rand.NewPCG(1, 1)).Perm(rows), rand.NewZipf(r, 1.05, 10, uint64(rows-1))
	all := make([][]int64, n)
	for i := range all {
		for range batch {
			all[i] = append(all[i], int64(order[zipf.Uint64()]))
		}
	}
	return all
}

// TestExclusive_HoldsWhatBothHold: of a table of 1.4 times what slab and host tier hold together, they hold 0.95 of that in different rows, while cycles
// follow the workload. What is evicted from the slab goes to the host tier if it is ranked high enough, and all rows read right.
func TestExclusive_HoldsWhatBothHold(t *testing.T) {
	race.SkipSequential(t)
	const rows, rowBytes = 20_000, 120
	data := versionedRows(rows, rowBytes)
	for codec, slot := range map[string]int64{"none": 128, "ibp4": 0} {
		t.Run(codec, func(t *testing.T) {
			table := packed(t, data, rowBytes, codec, nil)
			m := table.Manifest()
			stored := (m.StoredBytes/m.Rows + 15) &^ 15
			if slot != 0 {
				stored = slot
			}
			both := rows * stored * 10 / 14
			training := zipfBatches(1, 20, 2000, rows)
			o := cache.Options{
				Budget: both/3 + 200<<10, Host: cache.HostOptions{Memory: both*2/3 + rows*12 + rows/8}, Refresh: cache.RefreshOptions{Accesses: 1, MaxChurn: 1},
				Admission: cache.AdmissionOptions{Training: func(yield func(int, []int64) bool) {
					for _, b := range training {
						if !yield(0, b) {
							return
						}
					}
				}},
			}
			c := overPages(t, table, o)
			// holds says whether both hold what they have room for; if not, and this is the last look, that is an error.
			holds := func(when string, last bool) bool {
				t.Helper()
				s := stats(t, c)
				tiers, n := s.Tables[0].Tiers, tiersOfRows(t, c, rows)
				room := s.PayloadBytes + s.FreeBytes + tiers.HostCapacity
				mean := float64(m.StoredBytes)/float64(rows) + 7.5 // slots are multiples of 16
				if slot != 0 {
					mean = float64(slot)
				}
				held, most := n["slab"]+n["host"], float64(room)/mean
				ok := float64(held) >= 0.95*most && int64(n["slab"]) == s.Tables[0].CachedRows
				if ok || last {
					t.Logf("%s: %v of %.0f rows for which there is room (%.3f): %+v", when, n, most, float64(held)/most, tiers)
				}
				if last && !ok {
					t.Errorf("%s: slab and host tier hold %d rows, want 0.95 of %.0f; %d rows in the slab, want %d", when, held, most, n["slab"], s.Tables[0].CachedRows)
				}
				return ok
			}
			// hold waits until they do: rows go to the host tier, and are given up, in the background.
			hold := func(when string) {
				t.Helper()
				for begun, last := time.Now(), false; !holds(when, last) && !last; time.Sleep(10 * time.Millisecond) {
					last = time.Since(begun) > time.Minute
				}
			}
			holds("filled", true)
			check(t, c, data, allOf(rows))
			hold("read")
			for round := range 4 { // each time other rows are hot
				for _, b := range zipfBatches(uint64(round), 20, 2000, rows) {
					for i := range b {
						b[i] = (b[i] + int64(round)*3000) % rows
					}
					check(t, c, data, b)
				}
				if err := c.Refresh(ctx); err != nil {
					t.Fatal(err)
				}
				check(t, c, data, allOf(rows))
			}
			hold("after cycles")
			for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
				s := stats(t, c)
				if s.Changes.EvictedRows > 0 && s.Tables[0].Tiers.PromotedRows >= 100 && s.Tables[0].Tiers.DemotedRows > 0 {
					break
				}
				if time.Since(begun) > time.Minute {
					t.Fatalf("no rows have moved: %+v, %+v", s.Changes, s.Tables[0].Tiers)
				}
			}
		})
	}
}

// TestExclusive_EvictedRowGoesBack: a row that a smaller budget evicts is taken up by the host tier in the same cycle, without a page being read for it, unless the slab is
// a GPU's, which the host does not see.
func TestExclusive_EvictedRowGoesBack(t *testing.T) {
	const rows, rowBytes = 20_000, 120
	data := versionedRows(rows, rowBytes)
	hot := allOf(rows)[:2000]
	c := overPages(t, packed(t, data, rowBytes, "none", nil), cache.Options{
		Budget: 400 << 10, Host: cache.HostOptions{Memory: 900 << 10}, Refresh: cache.RefreshOptions{Accesses: 1},
		Admission: cache.AdmissionOptions{Training: func(yield func(int, []int64) bool) { _ = yield(0, slices.Repeat(hot, 5)) }},
	})
	for range 5 {
		check(t, c, data, hot)
	}
	in := func() (n map[string]int) {
		n = map[string]int{}
		all, err := c.Explain(0, hot)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			n[e.Tier]++
		}
		return n
	}
	if n := in(); n["slab"] != len(hot) {
		t.Fatalf("hot rows lie in %v", n)
	}
	before := stats(t, c).Tables[0].Tiers
	if err := c.SetBudget(ctx, 250<<10); err != nil {
		t.Fatal(err)
	}
	n, after := in(), stats(t, c).Tables[0].Tiers
	if n["slab"] == len(hot) || n["slab"] == 0 || n["host"] < (len(hot)-n["slab"])*9/10 {
		t.Errorf("hot rows lie in %v", n)
	}
	if (after.PagesRead != before.PagesRead) != (pagesBackend == cache.BackendCUDA) || after.PromotedRows == before.PromotedRows {
		t.Errorf("%+v, then %+v", before, after)
	}
	check(t, c, data, allOf(rows))
}

// TestFromPages_DeviceLost: what only a lost device had is read from the pages, and later cycles take it up again.
func TestFromPages_DeviceLost(t *testing.T) {
	f := openFaulty(t, nil)
	deviceLost(t, func(*cache.Cache) { f.lose(1) })
}

// onTwoDevices is a cache of two devices over pages, of so many rows, whose budget and host memory hold a part of them.
func onTwoDevices(t *testing.T, rows int) (*cache.Cache, []byte) {
	const rowBytes = 120
	data := versionedRows(rows, rowBytes)
	return overPages(t, packed(t, data, rowBytes, "none", nil), cache.Options{
		Budget: 300 << 10, Devices: cache.DeviceOptions{Count: 2}, Host: cache.HostOptions{Memory: 900 << 10}, Refresh: cache.RefreshOptions{Accesses: 1},
	}), data
}

// deviceLost loses the second of two devices of a cache over pages.
func deviceLost(t *testing.T, lose func(c *cache.Cache)) {
	const rows = 20_000
	c, data := onTwoDevices(t, rows)
	check(t, c, data, allOf(rows))
	before := stats(t, c).Tables[0].CachedRows
	lose(c)
	check(t, c, data, allOf(rows))
	if err := c.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	check(t, c, data, allOf(rows))
	s := stats(t, c)
	if n := tiersOfRows(t, c, rows); !s.Devices[1].Lost || s.Tables[0].CachedRows >= before || n["slab"] == 0 || n["host"] == 0 || n["pages"] == 0 {
		t.Errorf("lost %v: %d rows cached, before %d: %v", s.Devices[1].Lost, s.Tables[0].CachedRows, before, n)
	}
}

// TestFromPages_OtherTablesBeside: a limit of host memory counts tables that are not of pages.
func TestFromPages_OtherTablesBeside(t *testing.T) {
	const rows, rowBytes = 5000, 120
	data := versionedRows(rows, rowBytes)
	paged, err := cache.FromPages(packed(t, data, rowBytes, "none", nil))
	if err != nil {
		t.Fatal(err)
	}
	plain := fromBytes(t, "plain", data, rowBytes)
	o := cache.Options{Tables: []cache.Table{plain, paged}, Budget: 100 << 10, Devices: cache.DeviceOptions{Backend: pagesBackend}, Host: cache.HostOptions{Memory: 800 << 10}}
	c := newCache(t, o)
	s := stats(t, c)
	if got := s.Tables[1].Tiers.HostMemory; got > 800<<10-rows*rowBytes || got < 100<<10 || !s.Tables[1].Tiers.Paged || s.Tables[0].Tiers.Paged {
		t.Errorf("host memory %d: %+v", got, s.Tables)
	}
	for table := range 2 {
		out := make([]byte, rows*rowBytes)
		if err := c.Gather(ctx, cache.Request{Table: table, Rows: allOf(rows), Out: out}); err != nil || !slices.Equal(out, data) {
			t.Errorf("table %d: %v", table, err)
		}
	}
	o.Tables, o.Host.Memory = []cache.Table{fromBytes(t, "plain", data, rowBytes)}, 100<<10
	if _, err := cache.New(o); err == nil || fmt.Sprint(err) != "cache: host memory (102400 B) must hold all rows of tables that are not of pages, as table plain: cachebench pack makes pages" {
		t.Errorf("error %v", err)
	}
	o.Tables = []cache.Table{fromBytes(t, "full", data, rowBytes).Resident()}
	if _, err := cache.New(o); err == nil || fmt.Sprint(err) != "cache: host memory (102400 B) must hold all rows of tables that are not of pages, as resident table full while it is loaded" {
		t.Errorf("error %v", err)
	}
}

// TestDocs_MetricsOfPages: a cache of a table of pages has the metrics that docs/tracing.md lists for it, and sampled batches say what they waited for.
func TestDocs_MetricsOfPages(t *testing.T) {
	b, err := os.ReadFile("../docs/tracing.md")
	if err != nil {
		t.Skip("needs the repository: a test binary runs alone here")
	}
	_, section, _ := strings.Cut(string(b), "\n## Metrics of tables of pages\n")
	section, _, _ = strings.Cut(section, "\n## ")
	names := regexp.MustCompile("(?m)^\\| `([a-z._]+)`").FindAllStringSubmatch(section, -1)
	if len(names) < 9 {
		t.Fatalf("%d metrics are documented", len(names))
	}
	data := versionedRows(pagedRows, pagedRowBytes)
	r := newRecorder(t, sdktrace.AlwaysSample())
	c := overPages(t, packed(t, data, pagedRowBytes, "none", nil), cache.Options{Budget: 100 << 10, Host: cache.HostOptions{Memory: 500 << 10}, Telemetry: r.options()})
	defer cache.ServeApart()() // else a batch this small has no list of its misses
	check(t, c, data, allOf(pagedRows))
	got := r.collect(t)
	for _, name := range names {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(got)), func(key string) bool { return strings.HasPrefix(key, name[1]+"{") }) {
			t.Errorf("%s is documented and not collected: %v", name[1], got)
		}
	}
	s := stats(t, c).Tables[0].Tiers
	if n := got["tensorcache.cold.misses{tensorcache.outcome=read,tensorcache.table.name=features}"]; n != float64(s.AbsentRows) || n == 0 {
		t.Errorf("%v absent rows, of %d", n, s.AbsentRows)
	}
	spans := r.named("gather features")
	if len(spans) != 1 {
		t.Fatalf("%d spans", len(spans))
	}
	at := attributes(spans[0].Attributes())
	if at["tensorcache.batch.misses_absent"].AsInt64() != s.AbsentRows || at["tensorcache.batch.rows_failed"].AsInt64() != 0 || at["tensorcache.cold.seconds"].AsFloat64() <= 0 {
		t.Errorf("span %v", spans[0].Attributes())
	}
	tiers := map[string]int{}
	for _, e := range spans[0].Events() {
		tiers[attributes(e.Attributes)["tensorcache.tier"].AsString()]++
	}
	if tiers["pages"] == 0 || tiers["host"] == 0 || len(tiers) != 2 {
		t.Errorf("events name tiers %v", tiers)
	}
}

// TestFromPages_CostBesideOtherTable: beside a table whose rows all lie in host memory, one of pages gets the more of the slabs the longer an absent row takes: then batches
// take less time together.
func TestFromPages_CostBesideOtherTable(t *testing.T) {
	const rows, rowBytes = 20_000, 120
	data := versionedRows(rows, rowBytes)
	batches := zipfBatches(3, 40, 2000, rows)
	type result struct{ cached, absent, misses [2]int64 }
	serve := func(coldRow time.Duration, inclusive bool) (r result) {
		t.Helper()
		paged, err := cache.FromPages(packed(t, data, rowBytes, "none", nil))
		if err != nil {
			t.Fatal(err)
		}
		c := newCache(t, cache.Options{
			Tables: []cache.Table{paged, fromBytes(t, "plain", data, rowBytes)}, Codec: "none", Budget: 600 << 10, Devices: cache.DeviceOptions{Backend: cache.BackendHost},
			Host: cache.HostOptions{Memory: rows*rowBytes + 900<<10, ColdRow: coldRow, Inclusive: inclusive},
			Admission: cache.AdmissionOptions{Training: func(yield func(int, []int64) bool) {
				for i, b := range batches[:30] {
					if !yield(i%2, b) {
						return
					}
				}
			}},
		})
		for _, b := range batches[30:] {
			for table := range 2 {
				if err := c.Gather(ctx, cache.Request{Table: table, Rows: b, Out: make([]byte, len(b)*rowBytes)}); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i, s := range stats(t, c).Tables {
			r.cached[i], r.absent[i], r.misses[i] = s.CachedRows, s.Tiers.AbsentRows, s.Misses
		}
		return r
	}
	quick, slow, both := serve(time.Nanosecond, false), serve(20*time.Microsecond, false), serve(20*time.Microsecond, true)
	t.Logf("absent rows that take 1 ns: %+v; 20 µs: %+v; and lie in both tiers: %+v", quick, slow, both)
	if slow.cached[0] < quick.cached[0]*3/2 || slow.cached[1] > quick.cached[1] || slow.absent[0] >= quick.absent[0] {
		t.Error("the table of pages does not get more of the slab when absent rows take longer")
	}
	took := func(r result) float64 { return float64(r.absent[0])*20e3 + float64(r.misses[0]+r.misses[1])*9.5 }
	if took(slow) > 0.95*took(quick) {
		t.Errorf("batches take %.0f ns, and %.0f if absent rows counted as misses in the host tier", took(slow), took(quick))
	}
	if d := both.cached[0] - quick.cached[0]; d > quick.cached[0]/5 || d < -quick.cached[0]/5 {
		t.Error("a row that stays in the host tier leaves no place to another")
	}
}

// TestFromPages_HostMemoryByUse: of two tables of pages the one that is looked up more gets more host memory. Without training they get it by their bytes.
func TestFromPages_HostMemoryByUse(t *testing.T) {
	const rows, rowBytes = 20_000, 120
	data := versionedRows(rows, rowBytes)
	memory := func(training func(func(int, []int64) bool)) (all [2]int64) {
		t.Helper()
		var tables []cache.Table
		for range 2 {
			paged, err := cache.FromPages(packed(t, data, rowBytes, "none", nil))
			if err != nil {
				t.Fatal(err)
			}
			tables = append(tables, paged)
		}
		c := newCache(t, cache.Options{
			Tables: tables, Budget: 100 << 10, Devices: cache.DeviceOptions{Backend: cache.BackendHost}, Host: cache.HostOptions{Memory: 2 << 20, ColdRow: time.Microsecond},
			Admission: cache.AdmissionOptions{Training: training},
		})
		for i, s := range stats(t, c).Tables {
			all[i] = s.Tiers.HostMemory
			out := make([]byte, 100*rowBytes)
			if err := c.Gather(ctx, cache.Request{Table: i, Rows: allOf(100), Out: out}); err != nil || !slices.Equal(out, data[:len(out)]) {
				t.Errorf("table %d: %v", i, err)
			}
		}
		return all
	}
	alike := memory(nil)
	if d := alike[0] - alike[1]; d > 1000 || d < -1000 {
		t.Errorf("%d bytes", alike)
	}
	batches := zipfBatches(4, 20, 2000, rows)
	used := memory(func(yield func(int, []int64) bool) {
		for i, b := range batches {
			if i%5 == 0 && !yield(0, b) || i%5 != 0 && !yield(1, b) {
				return
			}
		}
	})
	if used[1] < used[0]*5/4 || used[0]+used[1] > 2<<20 {
		t.Errorf("%d bytes of tables of which the second is looked up four times as often", used)
	}
}
