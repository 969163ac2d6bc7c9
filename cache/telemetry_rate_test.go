package cache_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/tensorcache/tensorcache/cache"
)

// rowsByMemory returns 8 rows of tracedCache's table that are all cached, or all not.
func rowsByMemory(t testing.TB, c *cache.Cache, cached bool) []int64 {
	t.Helper()
	rows := explainedRows(t, c, func(e cache.Explanation) bool { return e.Cached == cached })
	if len(rows) < 8 {
		t.Fatalf("%d rows", len(rows))
	}
	return rows[:8]
}

// TestTrace_RateLimited: of many Gathers few become traces, those with misses first. They have what traces without a limit have: stages, misses and the time
// of the beginning. Gathers under a caller's span are not limited.
func TestTrace_RateLimited(t *testing.T) {
	r := newRecorder(t, sdktrace.AlwaysSample())
	o := r.options()
	o.TraceRate = 1e-6 // one token of each kind comes in a fortnight: there are those to begin with only
	c, _ := tracedCache(t, o, cache.RefreshOptions{})
	hit, miss := rowsByMemory(t, c, true), rowsByMemory(t, c, false)
	gather := func(ctx context.Context, rows []int64) {
		t.Helper()
		if err := c.Gather(ctx, cache.Request{Rows: rows, Out: make([]byte, len(rows)*128)}); err != nil {
			t.Fatal(err)
		}
	}
	gather(ctx, hit)  // a candidate and a trace: half of the room is for all
	gather(ctx, miss) // a candidate and a trace: the rest is for misses; there are two candidates
	for range 50 {
		gather(ctx, miss)
	}
	spans := r.named("gather x")
	if len(spans) != 2 {
		t.Fatalf("%d traces, want 2", len(spans))
	}
	for i, want := range []int64{0, 8} {
		s := spans[i]
		a := attributes(s.Attributes())
		if got := a["tensorcache.batch.misses"].AsInt64(); got != want || len(s.Events()) != int(want) || a["tensorcache.batch.rows"].AsInt64() != 8 {
			t.Errorf("trace %d: %d misses, %d events, want %d: %v", i, got, len(s.Events()), want, s.Attributes())
		}
		for _, name := range []string{"lookup", "misses", "hits"} {
			stage := r.named(name)
			if len(stage) != 2 || stage[i].Parent().SpanID() != s.SpanContext().SpanID() {
				t.Fatalf("trace %d: %d spans %s", i, len(stage), name)
			}
			if stage[i].StartTime().Before(s.StartTime()) || stage[i].EndTime().After(s.EndTime()) {
				t.Errorf("trace %d: stage %s is %v to %v, the Gather %v to %v", i, name, stage[i].StartTime(), stage[i].EndTime(), s.StartTime(), s.EndTime())
			}
		}
	}
	parentCtx, parent := r.tracer.Tracer("caller").Start(ctx, "serve request")
	for range 3 {
		gather(parentCtx, hit)
	}
	parent.End()
	if n := len(r.named("gather x")); n != 5 {
		t.Errorf("%d spans after three Gathers under a caller's span, want 5", n)
	}
	for range 20 {
		if err := c.Update(ctx, 0, hit[:1], make([]byte, 128)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(r.named("update x")); n != 2 {
		t.Errorf("%d spans of 20 updates, want 2", n)
	}
	if n := len(r.named("load")); n != 1 {
		t.Errorf("%d spans of load, want 1", n)
	}
}

// TestMetrics_TimedSome: so many Gathers that their histograms would cost much record them in part; all are counted, and every error.
func TestMetrics_TimedSome(t *testing.T) {
	r := newRecorder(t, sdktrace.NeverSample())
	c, _ := tracedCache(t, r.options(), cache.RefreshOptions{})
	const n, rate = 30_000, 1000 // rate are recorded at once, and as many a second
	out := make([]byte, 128)
	begun := time.Now()
	for range n {
		if err := c.Gather(ctx, cache.Request{Rows: []int64{5}, Out: out}); err != nil {
			t.Fatal(err)
		}
	}
	most := rate * (1 + time.Since(begun).Seconds())
	ended, cancel := context.WithCancel(ctx)
	cancel()
	for range 100 {
		if c.Gather(ended, cache.Request{Rows: []int64{5}, Out: out}) == nil {
			t.Fatal("a context that has ended is not heeded")
		}
	}
	v := r.collect(t)
	timed := v["tensorcache.gather.duration{tensorcache.device.index=0,tensorcache.table.name=x}"]
	if timed < rate || timed > most || timed != v["tensorcache.gather.rows{tensorcache.device.index=0,tensorcache.table.name=x}"] {
		t.Errorf("%v Gathers are timed, want %d to %v", timed, rate, most)
	}
	if got := v["tensorcache.gathers{tensorcache.table.name=x}"]; got < n {
		t.Errorf("%v Gathers are counted, want %d", got, n)
	}
	if got := v["tensorcache.errors{error.type=canceled,tensorcache.operation=gather}"]; got != 100 {
		t.Errorf("%v errors are counted, want 100: %v", got, v)
	}
}

// TestTrace_RateLimitedFailure: a Gather that fails is of interest as one with misses is.
func TestTrace_RateLimitedFailure(t *testing.T) {
	r := newRecorder(t, sdktrace.AlwaysSample())
	o := r.options()
	o.TraceRate = 1e-6
	c, _ := tracedCache(t, o, cache.RefreshOptions{})
	hit := rowsByMemory(t, c, true)
	if err := c.Gather(ctx, cache.Request{Rows: hit, Out: make([]byte, len(hit)*128)}); err != nil { // takes what those without misses may have
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := c.Gather(ended, cache.Request{Rows: hit, Out: make([]byte, len(hit)*128)}); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	all := r.named("gather x")
	if len(all) != 2 || !strings.Contains(all[1].Status().Description, "canceled") {
		t.Errorf("%d traces: %+v", len(all), all)
	}
}

// TestTrace_RateLimitedSampler: the sampler is asked only about what the limit lets through.
func TestTrace_RateLimitedSampler(t *testing.T) {
	asked := &asking{}
	r := newRecorder(t, sdktrace.ParentBased(asked))
	o := r.options()
	o.TraceRate = 1e-6
	c, _ := tracedCache(t, o, cache.RefreshOptions{})
	miss := rowsByMemory(t, c, false)
	before := asked.gathers
	for range 100 {
		if err := c.Gather(ctx, cache.Request{Rows: miss, Out: make([]byte, len(miss)*128)}); err != nil {
			t.Fatal(err)
		}
	}
	if n := asked.gathers - before; n != 2 || len(r.named("gather x")) != 0 {
		t.Errorf("asked about %d Gathers, want 2; %d traces, want 0", n, len(r.named("gather x")))
	}
}

// asking is a sampler that samples no Gather and counts them.
type asking struct{ gathers int }

func (a *asking) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if strings.HasPrefix(p.Name, "gather ") {
		a.gathers++
		return sdktrace.SamplingResult{Decision: sdktrace.Drop, Tracestate: trace.TraceState{}}
	}
	return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample}
}
func (a *asking) Description() string { return "asking" }

func TestOptions_TraceRate(t *testing.T) {
	for _, rate := range []float64{-1, math.NaN(), math.Inf(1)} {
		_, err := cache.New(cache.Options{Tables: []cache.Table{fromBytes(t, "x", make([]byte, 1280), 128)}, Budget: 1 << 20, Telemetry: cache.TelemetryOptions{TraceRate: rate}})
		want := fmt.Sprintf("cache: Telemetry.TraceRate (%v traces a second) must be 0, for no limit, or more", rate)
		if !errors.Is(err, cache.ErrOptions) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
