package cache_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/slab"
)

// recorder has SDK providers that keep all spans and metrics.
type recorder struct {
	spans  *tracetest.SpanRecorder
	tracer *sdktrace.TracerProvider
	reader *sdkmetric.ManualReader
	meter  *sdkmetric.MeterProvider
}

func newRecorder(t testing.TB, sampler sdktrace.Sampler) *recorder {
	t.Helper()
	r := &recorder{spans: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader()}
	r.tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans), sdktrace.WithSampler(sampler))
	r.meter = sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader))
	t.Cleanup(func() { r.tracer.Shutdown(ctx); r.meter.Shutdown(ctx) })
	return r
}

func (r *recorder) options() cache.TelemetryOptions {
	return cache.TelemetryOptions{Name: "test", TracerProvider: r.tracer, MeterProvider: r.meter}
}

// named returns the ended spans with a name.
func (r *recorder) named(name string) (all []sdktrace.ReadOnlySpan) {
	for _, s := range r.spans.Ended() {
		if s.Name() == name {
			all = append(all, s)
		}
	}
	return all
}

// one returns the only span with a name.
func (r *recorder) one(t *testing.T, name string) sdktrace.ReadOnlySpan {
	t.Helper()
	all := r.named(name)
	if len(all) != 1 {
		t.Fatalf("%d spans %q, want 1", len(all), name)
	}
	return all[0]
}

// collect returns the values of all instruments by name{attributes}, without the cache's name. A histogram has two values: its count, and,
// with ".sum" behind the name, its sum.
func (r *recorder) collect(t *testing.T) map[string]float64 {
	t.Helper()
	var rm metricdata.ResourceMetrics
	if err := r.reader.Collect(ctx, &rm); err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, scope := range rm.ScopeMetrics {
		for _, m := range scope.Metrics {
			put := func(set attribute.Set, suffix string, v float64) {
				if name, ok := set.Value("tensorcache.cache.name"); !ok || name.AsString() == "" {
					t.Errorf("%s has no cache's name: %v", m.Name, set.ToSlice())
				}
				set, _ = set.Filter(func(kv attribute.KeyValue) bool { return kv.Key != "tensorcache.cache.name" })
				values[m.Name+suffix+"{"+set.Encoded(attribute.DefaultEncoder())+"}"] = v
			}
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					put(p.Attributes, "", float64(p.Value))
				}
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					put(p.Attributes, "", p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					put(p.Attributes, "", float64(p.Count))
					put(p.Attributes, ".sum", p.Sum)
				}
			case metricdata.Histogram[int64]:
				for _, p := range d.DataPoints {
					put(p.Attributes, "", float64(p.Count))
					put(p.Attributes, ".sum", float64(p.Sum))
				}
			default:
				t.Errorf("%s is a %T", m.Name, d)
			}
		}
	}
	return values
}

// attributes returns attributes by key.
func attributes(all []attribute.KeyValue) map[string]attribute.Value {
	m := map[string]attribute.Value{}
	for _, kv := range all {
		m[string(kv.Key)] = kv.Value
	}
	return m
}

// tracedCache has a table x of 128-byte rows, half of which fit.
func tracedCache(t testing.TB, o cache.TelemetryOptions, refresh cache.RefreshOptions) (*cache.Cache, []byte) {
	t.Helper()
	data := normalTable(2000, 32, 1)
	return newCache(t, cache.Options{
		Tables: []cache.Table{fromBytes(t, "x", data, 128)}, Budget: 130_000, Devices: cache.DeviceOptions{Backend: "host"}, Seed: 1, Telemetry: o, Refresh: refresh,
		Admission: cache.AdmissionOptions{Training: batches(0, zipf(rand.New(rand.NewPCG(1, 1)), 2000, 4000))},
	}), data
}

// TestTrace_Gather checks the attributes, events and child spans of a Gather's span.
func TestTrace_Gather(t *testing.T) {
	r := newRecorder(t, sdktrace.AlwaysSample())
	c, data := tracedCache(t, r.options(), cache.RefreshOptions{})
	parentCtx, parent := r.tracer.Tracer("caller").Start(ctx, "serve request")
	ids := zipf(rand.New(rand.NewPCG(2, 2)), 2000, 5000)
	out := make([]byte, len(ids)*128)
	if err := c.Gather(parentCtx, cache.Request{Rows: ids, Out: out}); err != nil {
		t.Fatal(err)
	}
	parent.End()
	checkRows(t, data, 128, ids, out)

	s, ts := r.one(t, "gather x"), stats(t, c).Tables[0]
	if s.Parent().SpanID() != parent.SpanContext().SpanID() || s.InstrumentationScope().Name != "github.com/tensorcache/tensorcache/cache" {
		t.Errorf("parent %v, scope %v", s.Parent(), s.InstrumentationScope())
	}
	at := attributes(s.Attributes())
	for key, want := range map[string]int64{
		"tensorcache.device.index": 0, "tensorcache.batch.rows": 5000, "tensorcache.batch.hits": ts.Hits, "tensorcache.batch.misses": ts.Misses,
		"tensorcache.batch.output_bytes": 5000 * 128, "tensorcache.batch.miss_bytes": ts.Misses * 128, "tensorcache.batch.host_bytes": ts.HostBytesMoved,
		"tensorcache.batch.misses_cold": ts.MissesByReason[slab.Cold], "tensorcache.batch.misses_rejected": ts.MissesByReason[slab.Rejected],
		"tensorcache.batch.misses_evicted": 0, "tensorcache.batch.misses_invalidated": 0, "tensorcache.batch.misses_oversize": 0,
		"tensorcache.miss.events": 32,
	} {
		if v, ok := at[key]; !ok || v.AsInt64() != want {
			t.Errorf("%s = %v, want %d", key, v.String(), want)
		}
	}
	if ts.Misses == 0 || ts.Hits == 0 || ts.HostBytesMoved == 0 {
		t.Fatalf("nothing to see: %+v", ts)
	}
	for key, want := range map[string]string{
		"tensorcache.table.name": "x", "tensorcache.cache.name": "test", "tensorcache.strategy.planned": "one_launch",
		"tensorcache.strategy.run": "side_by_side", "tensorcache.strategy.fetch": "zero_copy",
	} {
		if at[key].AsString() != want {
			t.Errorf("%s = %q, want %q", key, at[key].AsString(), want)
		}
	}
	last := s.StartTime()
	for _, name := range []string{"lookup", "misses", "hits"} { // their order on the host backend, one after the other
		child := r.one(t, name)
		if child.Parent().SpanID() != s.SpanContext().SpanID() {
			t.Errorf("%s is not a child of the Gather's", name)
		}
		if child.StartTime().Before(last.Add(-time.Millisecond)) || child.EndTime().Before(child.StartTime()) || child.EndTime().After(s.EndTime().Add(time.Millisecond)) {
			t.Errorf("%s from %v to %v, after %v, of %v to %v", name, child.StartTime(), child.EndTime(), last, s.StartTime(), s.EndTime())
		}
		last = child.EndTime()
	}
	seen := map[string]int64{}
	if len(s.Events()) != 32 {
		t.Fatalf("%d events", len(s.Events()))
	}
	explained, err := c.Explain(0, ids)
	if err != nil {
		t.Fatal(err)
	}
	byRow := map[int64]cache.Explanation{}
	for _, e := range explained {
		byRow[e.Row] = e
	}
	for _, e := range s.Events() {
		at := attributes(e.Attributes)
		want, known := byRow[at["tensorcache.row"].AsInt64()]
		reason := at["tensorcache.miss.reason"].AsString()
		if e.Name != "tensorcache.miss" || !known || want.Cached || want.Reason.String() != reason || !at["tensorcache.miss.sampled"].AsBool() {
			t.Fatalf("event %s %v, explained %+v", e.Name, e.Attributes, want)
		}
		if at["tensorcache.row.stored_bytes"].AsInt64() != int64(want.StoredBytes) || at["tensorcache.policy.frequency"].AsFloat64() != want.Policy.Frequency ||
			at["tensorcache.policy.score"].AsFloat64() != want.Policy.Score || at["tensorcache.policy.victim_score"].AsFloat64() != want.Policy.Victim {
			t.Errorf("event %v, explained %+v %+v", e.Attributes, want, want.Policy)
		}
		seen[reason]++
	}
	if len(seen) == 0 {
		t.Errorf("reasons %v", seen)
	}
}

// TestTrace_LinksEvictions: misses of evicted and invalidated rows link to the spans of the operations that withdrew them.
func TestTrace_LinksEvictions(t *testing.T) {
	r := newRecorder(t, sdktrace.AlwaysSample())
	c, _ := tracedCache(t, r.options(), cache.RefreshOptions{Accesses: 1, MaxChurn: 1})
	out := make([]byte, 2000*128)
	var upper []int64 // rows that were cold become hot
	for i := range int64(1000) {
		upper = append(upper, 1000+i)
	}
	for range 20 {
		if err := c.Gather(ctx, cache.Request{Rows: upper, Out: out[:len(upper)*128]}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	refresh := r.one(t, "refresh")
	at := attributes(refresh.Attributes())
	n := stats(t, c).Changes
	if n.EvictedRows == 0 || at["tensorcache.refresh.evicted"].AsInt64() != n.EvictedRows || at["tensorcache.refresh.admitted"].AsInt64() != n.AdmittedRows ||
		at["tensorcache.refresh.written_bytes"].AsInt64() != n.RefreshedBytes {
		t.Fatalf("refresh %v, %+v", refresh.Attributes(), n)
	}
	if err := c.Invalidate(0, upper[:10]); err != nil {
		t.Fatal(err)
	}
	r.spans.Reset()
	var all []int64
	for i := range int64(2000) {
		all = append(all, i)
	}
	if err := c.Gather(ctx, cache.Request{Rows: all, Out: out}); err != nil {
		t.Fatal(err)
	}
	explained, err := c.Explain(0, all)
	if err != nil {
		t.Fatal(err)
	}
	count := map[slab.Reason]int{}
	for _, e := range explained {
		if e.Cached {
			continue
		}
		count[e.Reason]++
		if e.Reason == slab.Evicted && (e.Eviction == nil || e.Eviction.By != "refresh" || e.Eviction.Span.SpanID() != refresh.SpanContext().SpanID()) ||
			e.Reason == slab.Invalidated && (e.Eviction == nil || e.Eviction.By != "invalidate") {
			t.Fatalf("row %d: %+v %+v", e.Row, e, e.Eviction)
		}
	}
	if count[slab.Evicted] == 0 || count[slab.Invalidated] == 0 {
		t.Fatalf("reasons %v", count)
	}
	s := r.one(t, "gather x")
	linked := map[int64]bool{}
	for _, l := range s.Links() {
		at := attributes(l.Attributes)
		switch by := at["tensorcache.eviction.by"].AsString(); {
		case by == "refresh" && l.SpanContext.Equal(refresh.SpanContext()), by == "invalidate":
		default:
			t.Errorf("link by %q to %v", by, l.SpanContext)
		}
		for _, row := range at["tensorcache.eviction.rows"].AsInt64Slice() {
			linked[row] = true
		}
	}
	evicted := 0
	for _, e := range s.Events() {
		at := attributes(e.Attributes)
		if at["tensorcache.miss.reason"].AsString() != "evicted" {
			continue
		}
		evicted++
		when, err := time.Parse(time.RFC3339Nano, at["tensorcache.eviction.time"].AsString())
		if err != nil || when.Before(refresh.StartTime()) || when.After(refresh.EndTime()) {
			t.Errorf("evicted at %v (%v), the cycle was %v to %v", when, err, refresh.StartTime(), refresh.EndTime())
		}
		if _, ok := at["tensorcache.eviction.age"]; !ok || at["tensorcache.eviction.by"].AsString() != "refresh" || !linked[at["tensorcache.row"].AsInt64()] {
			t.Errorf("event %v, linked %v", e.Attributes, linked)
		}
	}
	if evicted == 0 {
		t.Error("no evicted miss among the events")
	}
}

// TestTrace_Operations checks the spans of all other operations, and of calls that fail.
func TestTrace_Operations(t *testing.T) {
	r := newRecorder(t, sdktrace.AlwaysSample())
	c, data := tracedCache(t, r.options(), cache.RefreshOptions{})
	load := r.one(t, "load")
	if at := attributes(load.Attributes()); at["tensorcache.rows.cached"].AsInt64() != stats(t, c).Tables[0].CachedRows || at["tensorcache.tables"].AsInt64() != 1 {
		t.Errorf("load: %v", load.Attributes())
	}
	if s := r.one(t, "load x"); s.Parent().SpanID() != load.SpanContext().SpanID() || attributes(s.Attributes())["tensorcache.table.raw_bytes"].AsInt64() != int64(len(data)) {
		t.Errorf("load x: %v, parent %v", s.Attributes(), s.Parent())
	}
	if err := c.Update(ctx, 0, []int64{1, 2, 3}, data[:3*128]); err != nil {
		t.Fatal(err)
	}
	if at := attributes(r.one(t, "update x").Attributes()); at["tensorcache.change.rows"].AsInt64() != 3 || at["tensorcache.change.bytes"].AsInt64() != 3*128 {
		t.Errorf("update: %v", at)
	}
	if err := c.Snapshot(t.TempDir() + "/s"); err != nil {
		t.Fatal(err)
	}
	if at := attributes(r.one(t, "snapshot").Attributes()); at["tensorcache.change.bytes"].AsInt64() <= 0 {
		t.Errorf("snapshot: %v", at)
	}
	if err := c.SetBudget(ctx, 100_000); err != nil {
		t.Fatal(err)
	}
	if at := attributes(r.one(t, "refresh").Attributes()); at["tensorcache.budget"].AsInt64() != 100_000 {
		t.Errorf("refresh: %v", at)
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	for _, fail := range []struct {
		span, kind string
		call       func() error
	}{
		{"gather x", "rows", func() error { return c.Gather(ctx, cache.Request{Rows: []int64{2000}, Out: make([]byte, 128)}) }},
		{"gather x", "output", func() error { return c.Gather(ctx, cache.Request{Rows: []int64{1}, Out: make([]byte, 127)}) }},
		{"gather x", "canceled", func() error { return c.Gather(canceled, cache.Request{Rows: []int64{1}, Out: make([]byte, 128)}) }},
		{"update x", "rows", func() error { return c.Update(ctx, 0, []int64{-1}, data[:128]) }},
		{"invalidate x", "rows", func() error { return c.Invalidate(0, []int64{2000}) }},
		{"snapshot", "_OTHER", func() error { return c.Snapshot(t.TempDir() + "/none/s") }},
		{"refresh", "canceled", func() error { return c.Refresh(canceled) }},
		{"refresh", "budget", func() error { return c.SetBudget(ctx, 1) }},
	} {
		r.spans.Reset()
		err := fail.call()
		s := r.one(t, fail.span)
		if err == nil || s.Status().Code != codes.Error || s.Status().Description != err.Error() || attributes(s.Attributes())["error.type"].AsString() != fail.kind {
			t.Errorf("%s: error %v, status %v, attributes %v", fail.span, err, s.Status(), s.Attributes())
		}
	}
	values := r.collect(t)
	for want, n := range map[string]float64{
		"tensorcache.errors{error.type=rows,tensorcache.operation=gather}":     1,
		"tensorcache.errors{error.type=canceled,tensorcache.operation=gather}": 1,
		"tensorcache.errors{error.type=budget,tensorcache.operation=refresh}":  1,
		"tensorcache.errors{error.type=_OTHER,tensorcache.operation=snapshot}": 1,
	} {
		if values[want] != n {
			t.Errorf("%s = %v, want %v", want, values[want], n)
		}
	}
}

// TestMetrics_EqualRows: a table of zeros has equal rows, and its cached ones one slot.
func TestMetrics_EqualRows(t *testing.T) {
	r := newRecorder(t, sdktrace.NeverSample())
	c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "x", make([]byte, 500*256), 256)}, Budget: 1 << 20, Telemetry: r.options()})
	v, ts := r.collect(t), stats(t, c).Tables[0]
	for name, want := range map[string]int64{"rows.equal": ts.EqualRows, "slots.saved": ts.SlotsSaved} {
		if got := v["tensorcache."+name+"{tensorcache.table.name=x}"]; got != float64(want) || got < 400 {
			t.Errorf("%s is %v, want %d, which are most of 500 rows", name, got, want)
		}
	}
}

// TestMetrics_EqualStats: every counter equals its field of Stats, and misses by reason sum to the misses.
func TestMetrics_EqualStats(t *testing.T) {
	r := newRecorder(t, sdktrace.TraceIDRatioBased(0.5))
	c, data := tracedCache(t, r.options(), cache.RefreshOptions{Accesses: 1, Keys: 1})
	rng := rand.New(rand.NewPCG(3, 3))
	out := make([]byte, 3000*128)
	for i := range 30 {
		ids := zipf(rng, 2000, 100*i+1)
		if err := c.Gather(ctx, cache.Request{Rows: ids, Out: out[:len(ids)*128]}); err != nil {
			t.Fatal(err)
		}
		if i%10 == 9 {
			if err := c.Refresh(ctx); err != nil {
				t.Fatal(err)
			}
			if err := c.Update(ctx, 0, []int64{int64(i)}, data[:128]); err != nil {
				t.Fatal(err)
			}
			if err := c.Invalidate(0, []int64{int64(i + 1)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.Refresh(ctx); err != nil { // what is updated arrives
		t.Fatal(err)
	}
	v, s := r.collect(t), stats(t, c)
	ts := s.Tables[0]
	want := map[string]float64{
		"tensorcache.lookups{tensorcache.table.name=x}":                                float64(ts.Lookups),
		"tensorcache.hits{tensorcache.hit.slab=own,tensorcache.table.name=x}":          float64(ts.Hits),
		"tensorcache.hits{tensorcache.hit.slab=peer,tensorcache.table.name=x}":         0,
		"tensorcache.gathers{tensorcache.table.name=x}":                                30,
		"tensorcache.rows.cached{tensorcache.table.name=x}":                            float64(ts.CachedRows),
		"tensorcache.rows.equal{tensorcache.table.name=x}":                             float64(ts.EqualRows),
		"tensorcache.slots.saved{tensorcache.table.name=x}":                            float64(ts.SlotsSaved),
		"tensorcache.table.rows{tensorcache.table.name=x}":                             2000,
		"tensorcache.share.batches{tensorcache.table.name=x}":                          0,
		"tensorcache.compression.ratio{tensorcache.table.name=x}":                      float64(ts.RawBytes) / float64(ts.StoredBytes),
		"tensorcache.io{tensorcache.io.direction=read,tensorcache.io.path=host_tier}":  float64(ts.HostBytesMoved),
		"tensorcache.io{tensorcache.io.direction=write,tensorcache.io.path=host_tier}": float64(s.Changes.HostBytesWritten),
		"tensorcache.io{tensorcache.io.direction=write,tensorcache.io.path=slab}":      float64(s.Changes.RefreshedBytes),
		"tensorcache.io{tensorcache.io.direction=write,tensorcache.io.path=output}":    float64(ts.Lookups * 128),
		"tensorcache.refresh.cycles{}":                                                 4,
		"tensorcache.refresh.rows{tensorcache.refresh.action=admitted}":                float64(s.Changes.AdmittedRows),
		"tensorcache.refresh.rows{tensorcache.refresh.action=evicted}":                 float64(s.Changes.EvictedRows),
		"tensorcache.refresh.rows{tensorcache.refresh.action=moved}":                   float64(s.Changes.MovedRows),
		"tensorcache.refresh.rows{tensorcache.refresh.action=refused}":                 float64(s.Changes.RefusedRows),
		"tensorcache.updates{}":       3,
		"tensorcache.invalidations{}": float64(s.Changes.InvalidatedRows),
		"tensorcache.update.waits{}":  float64(s.Changes.UpdateWaits),
		"tensorcache.sample.reads{}":  float64(s.Changes.SampledAccesses),
		"tensorcache.sample.drops{}":  float64(s.Changes.LostAccesses),
		"tensorcache.slab.usage{tensorcache.device.index=0,tensorcache.slab.state=used}":   float64(s.PayloadBytes),
		"tensorcache.slab.usage{tensorcache.device.index=0,tensorcache.slab.state=free}":   float64(s.FreeBytes),
		"tensorcache.metadata.usage{tensorcache.metadata.kind=map}":                        float64(s.MetadataBytes),
		"tensorcache.metadata.usage{tensorcache.metadata.kind=codec}":                      float64(s.CodecBytes),
		"tensorcache.metadata.usage{tensorcache.metadata.kind=index}":                      float64(s.IndexBytes),
		"tensorcache.budget.limit{}":                                                       float64(s.BudgetBytes),
		"tensorcache.host.usage{}":                                                         float64(s.HostBytes),
		"tensorcache.gather.rows{tensorcache.device.index=0,tensorcache.table.name=x}":     30,
		"tensorcache.gather.rows.sum{tensorcache.device.index=0,tensorcache.table.name=x}": float64(ts.Lookups),
		"tensorcache.gather.duration{tensorcache.device.index=0,tensorcache.table.name=x}": 30,
	}
	sum := 0.0
	for reason, n := range ts.MissesByReason {
		key := fmt.Sprintf("tensorcache.misses{tensorcache.miss.reason=%v,tensorcache.table.name=x}", slab.Reason(reason))
		want[key] = float64(n)
		sum += v[key]
	}
	for _, b := range s.Estimate.Budgets {
		want[fmt.Sprintf("tensorcache.estimated.hit_ratio{tensorcache.budget.multiple=%v}", b.Times)] = b.HitRate
	}
	for _, stage := range []string{"lookup", "hits", "misses"} { // of the sampled ones
		want[fmt.Sprintf("tensorcache.stage.duration{tensorcache.stage=%s,tensorcache.table.name=x}", stage)] = float64(len(r.named("gather x")))
	}
	for key, n := range want {
		if got, ok := v[key]; !ok || got != n {
			t.Errorf("%s = %v (there: %v), want %v", key, got, ok, n)
		}
	}
	if ts.Misses == 0 || sum != float64(ts.Misses) || ts.Hits+ts.Misses != ts.Lookups {
		t.Errorf("misses by reason sum to %v, misses %d, hits %d, lookups %d", sum, ts.Misses, ts.Hits, ts.Lookups)
	}
	if n := len(r.named("gather x")); n == 0 || n == 30 {
		t.Errorf("%d of 30 Gathers are sampled by a half", n)
	}
}

// TestTelemetry_Unsampled: if the caller's span is not sampled, or the sampler declines, nothing is recorded and batches take their planned
// route.
func TestTelemetry_Unsampled(t *testing.T) {
	for name, sampler := range map[string]sdktrace.Sampler{"by the sampler": sdktrace.NeverSample(), "by the caller": sdktrace.AlwaysSample()} {
		t.Run(name, func(t *testing.T) {
			r := newRecorder(t, sampler)
			c, _ := tracedCache(t, r.options(), cache.RefreshOptions{})
			r.spans.Reset()
			unsampled := trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}}))
			if err := c.Gather(unsampled, cache.Request{Rows: []int64{1, 2, 3}, Out: make([]byte, 3*128)}); err != nil {
				t.Fatal(err)
			}
			if n := len(r.spans.Started()); n != 0 {
				t.Errorf("%d spans", n)
			}
			if n := r.collect(t)["tensorcache.gather.duration{tensorcache.device.index=0,tensorcache.table.name=x}"]; n != 1 {
				t.Errorf("%v durations", n)
			}
		})
	}
}

// TestTelemetry_ProvidersAtRunTime replaces the global providers while a cache serves.
func TestTelemetry_ProvidersAtRunTime(t *testing.T) {
	was, wasMeter := otel.GetTracerProvider(), otel.GetMeterProvider()
	t.Cleanup(func() {
		otel.SetTracerProvider(tracenoop.NewTracerProvider())
		otel.SetMeterProvider(metricnoop.NewMeterProvider())
	})
	if !cache.IsPlaceholder(was) || !cache.IsPlaceholder(wasMeter) {
		t.Fatalf("the global providers of a process that has set none are %T and %T, and not known as such", was, wasMeter)
	}
	// A global provider passed before any was set stands for the one set later.
	c, _ := tracedCache(t, cache.TelemetryOptions{Name: "test", TracerProvider: was, MeterProvider: wasMeter}, cache.RefreshOptions{})
	gather := func() {
		t.Helper()
		if err := c.Gather(ctx, cache.Request{Rows: []int64{1, 1999}, Out: make([]byte, 2*128)}); err != nil {
			t.Fatal(err)
		}
	}
	gather()
	a, b := newRecorder(t, sdktrace.AlwaysSample()), newRecorder(t, sdktrace.AlwaysSample())
	const lookups = "tensorcache.lookups{tensorcache.table.name=x}"
	const gathers = "tensorcache.gather.rows{tensorcache.device.index=0,tensorcache.table.name=x}"
	otel.SetTracerProvider(a.tracer)
	otel.SetMeterProvider(a.meter)
	if v := a.collect(t); v[lookups] != 2 { // no Gather since
		t.Errorf("idle cache: %v", v)
	}
	gather()
	if v := a.collect(t); v[lookups] != 4 || v[gathers] != 1 || len(a.named("gather x")) != 1 {
		t.Errorf("first provider: %d spans, %v", len(a.named("gather x")), v)
	}
	otel.SetTracerProvider(b.tracer)
	otel.SetMeterProvider(b.meter)
	gather()
	if v := b.collect(t); v[lookups] != 6 || v[gathers] != 1 || len(b.named("gather x")) != 1 || len(a.named("gather x")) != 1 {
		t.Errorf("second provider: %d spans, %v", len(b.named("gather x")), v)
	}
	if _, still := a.collect(t)[lookups]; still {
		t.Error("the first provider still reads the cache")
	}
	otel.SetTracerProvider(tracenoop.NewTracerProvider())
	otel.SetMeterProvider(metricnoop.NewMeterProvider())
	gather()
	if v := b.collect(t); len(b.named("gather x")) != 1 || v[gathers] != 1 {
		t.Errorf("none: %d spans, %v", len(b.named("gather x")), v)
	}
	c.Close()
	if _, still := b.collect(t)[lookups]; still {
		t.Error("a closed cache is still read")
	}
}

// TestTelemetry_Concurrent gathers on 100 goroutines, some sampled, while providers are replaced, metrics are collected and rows change.
func TestTelemetry_Concurrent(t *testing.T) {
	r := newRecorder(t, sdktrace.TraceIDRatioBased(0.3))
	t.Cleanup(func() {
		otel.SetTracerProvider(tracenoop.NewTracerProvider())
		otel.SetMeterProvider(metricnoop.NewMeterProvider())
	})
	c, data := tracedCache(t, cache.TelemetryOptions{Name: "test"}, cache.RefreshOptions{Accesses: 1, Keys: 0.5, Interval: 2 * time.Millisecond})
	otel.SetMeterProvider(r.meter)
	stop := make(chan struct{})
	var beside, wg sync.WaitGroup
	beside.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			if i%2 == 0 {
				otel.SetTracerProvider(r.tracer)
			} else {
				otel.SetTracerProvider(tracenoop.NewTracerProvider())
			}
			r.collect(t)
			if _, err := c.Explain(0, []int64{int64(i % 2000)}); err != nil {
				t.Error(err)
			}
			if err := c.Update(ctx, 0, []int64{int64(i % 2000)}, data[i%2000*128:][:128]); err != nil {
				t.Error(err)
			}
		}
	})
	for g := range 100 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 5))
			for range 10 {
				ids := zipf(rng, 2000, 200)
				out := make([]byte, len(ids)*128)
				var err error
				if g%2 == 0 {
					err = c.Gather(ctx, cache.Request{Rows: ids, Out: out})
				} else {
					err = c.GatherAsync(ctx, cache.Request{Rows: ids, Out: out}).Wait()
				}
				if err != nil {
					t.Error(err)
					return
				}
				checkRows(t, data, 128, ids, out)
			}
		})
	}
	wg.Wait()
	close(stop)
	beside.Wait()
	ts := stats(t, c).Tables[0]
	if v := r.collect(t); ts.Lookups != 200_000 || v["tensorcache.lookups{tensorcache.table.name=x}"] != 200_000 ||
		v["tensorcache.gather.rows{tensorcache.device.index=0,tensorcache.table.name=x}"] != 1000 {
		t.Errorf("lookups %d, %v", ts.Lookups, v)
	}
	if len(r.named("gather x")) == 0 {
		t.Error("no Gather was sampled")
	}
	for _, s := range r.named("gather x") {
		at := attributes(s.Attributes())
		sum := int64(0)
		for _, reason := range []string{"cold", "rejected", "evicted", "invalidated", "oversize"} {
			sum += at["tensorcache.batch.misses_"+reason].AsInt64()
		}
		if sum != at["tensorcache.batch.misses"].AsInt64() || at["tensorcache.batch.hits"].AsInt64()+sum != 200 {
			t.Fatalf("span %v", s.Attributes())
		}
	}
}

// TestExplain_EqualsCached: Explain agrees with the hits and misses that Gather counts, for all rows of two tables.
func TestExplain_EqualsCached(t *testing.T) {
	data := normalTable(1000, 32, 7)
	c := newCache(t, cache.Options{
		Tables: []cache.Table{fromBytes(t, "x", data, 128), fromBytes(t, "y", data[:500*128], 128)}, Budget: 60_000, Devices: cache.DeviceOptions{Backend: "host", Count: 2},
		Admission: cache.AdmissionOptions{Training: batches(1, zipf(rand.New(rand.NewPCG(1, 1)), 500, 1000))},
	})
	for table, rows := range []int{1000, 500} {
		var all []int64
		for i := range int64(rows) {
			all = append(all, i)
		}
		explained, err := c.Explain(table, all)
		if err != nil {
			t.Fatal(err)
		}
		hits, reasons := int64(0), [slab.NumReasons]int64{}
		for i, e := range explained {
			if e.Table != table || e.Row != int64(i) || e.Policy == nil || e.StoredBytes < 1 || e.StoredBytes > 128 || e.SlotBytes < e.StoredBytes {
				t.Fatalf("%+v", e)
			}
			switch {
			case !e.Cached:
				reasons[e.Reason]++
			case e.Overlay != (e.Device == -1) || e.Device >= 2 || e.Offset < 0:
				t.Fatalf("%+v", e)
			default:
				hits++
			}
		}
		if err := c.Gather(ctx, cache.Request{Table: table, Rows: all, Out: make([]byte, rows*128)}); err != nil {
			t.Fatal(err)
		}
		if ts := stats(t, c).Tables[table]; ts.Hits != hits || ts.MissesByReason != reasons || hits == 0 {
			t.Errorf("table %d: %d hits, reasons %v; Gather counts %d, %v", table, hits, reasons, ts.Hits, ts.MissesByReason)
		}
	}
	// A row on its way to the host tier: a batch that has begun and not ended keeps it in the overlay.
	defer cache.HoldEpoch(c)()
	if err := c.Update(ctx, 1, []int64{499}, data[:128]); err != nil {
		t.Fatal(err)
	}
	if e, err := c.Explain(1, []int64{499}); err != nil || !e[0].Cached || !e[0].Overlay || e[0].Device != -1 {
		t.Errorf("updated row: %+v, %v", e, err)
	}
	for _, rows := range [][]int64{{-1}, {1000}} {
		if _, err := c.Explain(0, rows); err == nil {
			t.Errorf("rows %v are explained", rows)
		}
	}
	if _, err := c.Explain(2, nil); err == nil || err.Error() != "cache: table (2) must be 0 to 1" {
		t.Errorf("table 2: %v", err)
	}
}

// TestDocs_Metrics: the table of docs/tracing.md has the names, kinds, units and attributes of all instruments.
func TestDocs_Metrics(t *testing.T) {
	if _, err := os.Stat("../go.mod"); err != nil {
		t.Skip("needs the repository: a test binary runs alone here")
	}
	b, err := os.ReadFile("../docs/tracing.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(b), "\n## Metrics\n")
	section, _, _ = strings.Cut(section, "\n## ")
	documented := map[string]string{}
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); strings.HasPrefix(line, "| `") && len(cells) == 7 {
			keys := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[4], -1)
			var names []string
			for _, k := range keys {
				names = append(names, k[1])
			}
			slices.Sort(names)
			documented[strings.Trim(cells[1], " `")] = fmt.Sprint(strings.TrimSpace(cells[2]), " ", strings.Trim(cells[3], " `"), " ", names)
		}
	}
	r := newRecorder(t, sdktrace.AlwaysSample())
	o := r.options()
	o.HostLink = 1e9
	c, _ := tracedCache(t, o, cache.RefreshOptions{Accesses: 1, Keys: 1})
	out := make([]byte, 2000*128)
	if err := c.Gather(ctx, cache.Request{Rows: zipf(rand.New(rand.NewPCG(1, 2)), 2000, 2000), Out: out}); err != nil {
		t.Fatal(err)
	}
	if err := c.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Gather(ctx, cache.Request{Rows: []int64{-1}, Out: out[:128]}); err == nil {
		t.Fatal("row -1 is gathered")
	}
	r.collect(t)
	time.Sleep(120 * time.Millisecond) // the use of the link is that between two collections
	var rm metricdata.ResourceMetrics
	if err := r.reader.Collect(ctx, &rm); err != nil {
		t.Fatal(err)
	}
	there := map[string]string{}
	for _, scope := range rm.ScopeMetrics {
		for _, m := range scope.Metrics {
			kind, sets := "", []attribute.Set{}
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				if kind = "counter"; !d.IsMonotonic {
					kind = "up-down counter"
				}
				for _, p := range d.DataPoints {
					sets = append(sets, p.Attributes)
				}
			case metricdata.Gauge[float64]:
				kind = "gauge"
				for _, p := range d.DataPoints {
					sets = append(sets, p.Attributes)
				}
			case metricdata.Histogram[float64]:
				kind = "histogram"
				for _, p := range d.DataPoints {
					sets = append(sets, p.Attributes)
				}
			case metricdata.Histogram[int64]:
				kind = "histogram"
				for _, p := range d.DataPoints {
					sets = append(sets, p.Attributes)
				}
			}
			names := []string{}
			for _, set := range sets {
				for _, kv := range set.ToSlice() {
					if key := string(kv.Key); key != "tensorcache.cache.name" && !slices.Contains(names, key) {
						names = append(names, key)
					}
				}
			}
			slices.Sort(names)
			there[m.Name] = fmt.Sprint(kind, " ", m.Unit, " ", names)
		}
	}
	for name, want := range there {
		if documented[name] != want {
			t.Errorf("%s is %q, documented %q", name, want, documented[name])
		}
	}
	for name := range documented {
		if there[name] == "" {
			t.Errorf("%s is documented, and there is none", name)
		}
	}
}

// TestLabels_Goroutines: the cache's own goroutines have profiler labels, and its log records have its name.
func TestLabels_Goroutines(t *testing.T) {
	var log bytes.Buffer
	c, data := tracedCache(t, cache.TelemetryOptions{Name: "labelled", Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))},
		cache.RefreshOptions{Accesses: 1, Interval: time.Hour})
	end := cache.HoldEpoch(c) // what is retired waits
	if err := c.Update(ctx, 0, []int64{1}, data[:128]); err != nil {
		t.Fatal(err)
	}
	want := []string{`"tensorcache.task":"learn"`, `"tensorcache.task":"refresh"`, `"tensorcache.task":"retire"`, `"tensorcache.cache.name":"labelled"`}
	var profile bytes.Buffer
	for deadline := time.Now().Add(time.Minute); len(want) > 0 && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		profile.Reset()
		if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
			t.Fatal(err)
		}
		want = slices.DeleteFunc(want, func(s string) bool { return strings.Contains(profile.String(), s) })
	}
	if len(want) > 0 {
		t.Errorf("no goroutine has %v:\n%s", want, &profile)
	}
	end()
	if err := c.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.SetBudget(ctx, 1); err == nil {
		t.Fatal("a budget of 1 B")
	}
	c.Close()
	for _, want := range []string{"level=INFO msg=loaded cache=labelled", "level=DEBUG msg=refreshed cache=labelled", "level=WARN msg=\"refresh failed\" cache=labelled"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, &log)
		}
	}
}
