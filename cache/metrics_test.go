package cache_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/tensorcache/tensorcache/cache"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// series returns what a reader collects: name, kind, unit and attributes of each series, without its value and the cache's name.
func (r *recorder) series(t *testing.T) (all []string) {
	t.Helper()
	var rm metricdata.ResourceMetrics
	if err := r.reader.Collect(ctx, &rm); err != nil {
		t.Fatal(err)
	}
	for _, scope := range rm.ScopeMetrics {
		for _, m := range scope.Metrics {
			add := func(kind string, set attribute.Set) {
				set, _ = set.Filter(func(kv attribute.KeyValue) bool { return kv.Key != "tensorcache.cache.name" })
				all = append(all, strings.TrimRight(fmt.Sprint(m.Name, " ", kind, " ", m.Unit, " ", set.Encoded(attribute.DefaultEncoder())), " "))
			}
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				kind := "level"
				if d.IsMonotonic {
					kind = "counter"
				}
				for _, p := range d.DataPoints {
					add(kind, p.Attributes)
				}
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					add("gauge", p.Attributes)
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					add("histogram", p.Attributes)
				}
			case metricdata.Histogram[int64]:
				for _, p := range d.DataPoints {
					add("histogram", p.Attributes)
				}
			default:
				t.Errorf("%s is a %T", m.Name, d)
			}
		}
	}
	return all
}

// TestMetrics_Series pins the names, kinds, units and attributes of all metrics of cached tables, resident ones and those of pages: dashboards ask for them.
func TestMetrics_Series(t *testing.T) {
	all := map[string]bool{}
	collect := func(r *recorder) {
		for _, s := range r.series(t) {
			all[s] = true
		}
	}
	r := newRecorder(t, sdktrace.AlwaysSample())
	o := r.options()
	o.HostLink = 1e9
	c, _ := tracedCache(t, o, cache.RefreshOptions{Accesses: 1, Keys: 1})
	rows := make([]int64, 2000)
	for i := range rows {
		rows[i] = int64(i)
	}
	if err := c.Gather(ctx, cache.Request{Rows: rows, Out: make([]byte, 2000*128)}); err != nil {
		t.Fatal(err)
	}
	if err := c.Gather(ctx, cache.Request{Rows: []int64{-1}, Out: make([]byte, 128)}); err == nil {
		t.Fatal("row -1 is gathered")
	}
	collect(r)
	time.Sleep(120 * time.Millisecond) // the use of the link is that between two collections
	collect(r)

	r = newRecorder(t, sdktrace.NeverSample())
	openResident(t, classesOfRows(rand.New(rand.NewPCG(22, 80)), 260, 64, 0, 1), 64, "zipnn", cache.ResidentOptions{}, 2, func(o *cache.Options) { o.Telemetry = r.options() })
	collect(r)

	r = newRecorder(t, sdktrace.NeverSample())
	data := versionedRows(pagedRows, pagedRowBytes)
	c = overPages(t, packed(t, data, pagedRowBytes, "none", nil), cache.Options{Budget: 100 << 10, Host: cache.HostOptions{Memory: 500 << 10}, Telemetry: r.options()})
	defer cache.ServeApart()() // else a batch this small has no list of its misses
	check(t, c, data, allOf(pagedRows))
	if err := c.Update(ctx, 0, allOf(pagedRows), data); err != nil { // more than the host tier holds: most are read from the log
		t.Fatal(err)
	}
	check(t, c, data, allOf(pagedRows))
	collect(r)
	golden(t, "testdata/metrics.golden", strings.Join(slices.Sorted(maps.Keys(all)), "\n")+"\n")
}

// golden compares a text with a file.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Skip("needs the repository: a test binary runs alone here")
	}
	for _, line := range lacking(string(want), got) {
		t.Errorf("%s has no longer %q", file, line)
	}
	for _, line := range lacking(got, string(want)) {
		t.Errorf("%s lacks %q", file, line)
	}
}

// lacking returns the lines of a text that another has not.
func lacking(text, other string) []string {
	have := strings.Split(other, "\n")
	return slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return slices.Contains(have, line) })
}

// BenchmarkMetrics_Collect collects all metrics of a cache.
func BenchmarkMetrics_Collect(b *testing.B) {
	r := newRecorder(b, sdktrace.NeverSample())
	c, _ := tracedCache(b, r.options(), cache.RefreshOptions{Accesses: 1, Keys: 1})
	if err := c.Gather(ctx, cache.Request{Rows: []int64{1, 1999}, Out: make([]byte, 2*128)}); err != nil {
		b.Fatal(err)
	}
	var rm metricdata.ResourceMetrics
	b.ReportAllocs()
	for b.Loop() {
		if err := r.reader.Collect(ctx, &rm); err != nil {
			b.Fatal(err)
		}
	}
}

// TestStats_Sub: counters of all parts are subtracted, those of stores by name; content stays, and neither of the two changes.
func TestStats_Sub(t *testing.T) {
	of := func(n int64, stores ...string) cache.Stats {
		table := cache.TableStats{Name: "x", Rows: n, Lookups: 3 * n, HostBytesMoved: 4 * n, MissesByReason: [5]int64{n, 2 * n}, Resident: &cache.ResidentStats{OverflowRows: n, OverflowReads: 5 * n}}
		table.Tiers = cache.TierStats{HostRows: n, AbsentRows: 6 * n}
		for _, name := range stores {
			table.Tiers.Stores = append(table.Tiers.Stores, cache.StoreStats{Name: name, Reads: 7 * n, Nanos: 8 * n})
		}
		return cache.Stats{HostBytes: n, Changes: cache.Changes{Cycles: 9 * n}, Tables: []cache.TableStats{table}, Devices: []cache.DeviceStats{{BudgetBytes: n, Misses: 10 * n}}}
	}
	now, then := of(100, "a", "b"), of(1, "b")
	got, want := now.Sub(then), of(100, "a", "b")
	table := &want.Tables[0]
	table.Lookups, table.HostBytesMoved, table.MissesByReason, table.Resident.OverflowReads, table.Tiers.AbsentRows = 297, 396, [5]int64{99, 198}, 495, 594
	table.Tiers.Stores[1].Reads, table.Tiers.Stores[1].Nanos = 693, 792
	want.Changes.Cycles, want.Devices[0].Misses = 891, 990
	if !reflect.DeepEqual(got, want) {
		t.Errorf("difference %+v %+v, want %+v %+v", got, got.Tables[0].Resident, want, want.Tables[0].Resident)
	}
	if !reflect.DeepEqual(now, of(100, "a", "b")) || !reflect.DeepEqual(then, of(1, "b")) {
		t.Error("Sub changes its operands")
	}
	then.Tables[0].Resident = nil
	if got := now.Sub(then).Tables[0].Resident.OverflowReads; got != 500 {
		t.Errorf("%d reads of overflow places since the table was no resident one", got)
	}
}
