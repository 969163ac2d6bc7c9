package cache_test

import (
	"context"
	"fmt"
	"testing"

	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/slab"
)

// discard is an exporter that discards everything.
type discard struct{}

func (discard) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (discard) Shutdown(context.Context) error                             { return nil }

// sdk returns providers that sample a share of the batches and discard the data.
func sdk(share float64) cache.TelemetryOptions {
	return cache.TelemetryOptions{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithBatcher(discard{}), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(share)))),
		MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())),
	}
}

// untraced are contexts and options with which no span is started.
func untraced(t testing.TB) map[string]func() (context.Context, *cache.Cache) {
	parent := trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}}))
	open := func(o cache.TelemetryOptions) *cache.Cache {
		c, _ := tracedCache(t, o, cache.RefreshOptions{})
		return c
	}
	return map[string]func() (context.Context, *cache.Cache){
		"no SDK":          func() (context.Context, *cache.Cache) { return ctx, open(cache.TelemetryOptions{}) },
		"no-op providers": func() (context.Context, *cache.Cache) { return ctx, open(noop()) },
		"unsampled parent": func() (context.Context, *cache.Cache) {
			o := sdk(1)
			o.MeterProvider = metricnoop.NewMeterProvider()
			return parent, open(o)
		},
		"above TraceRate": func() (context.Context, *cache.Cache) {
			o := sdk(1)
			o.MeterProvider, o.TraceRate = metricnoop.NewMeterProvider(), 1e-6
			c := open(o)
			for cache.Observe(ctx, c) { // until all that may begin with has been taken
			}
			return ctx, c
		},
	}
}

func noop() cache.TelemetryOptions {
	return cache.TelemetryOptions{TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: metricnoop.NewMeterProvider()}
}

// TestTelemetry_CostsNothing: telemetry allocates nothing for untraced batches.
func TestTelemetry_CostsNothing(t *testing.T) {
	for name, open := range untraced(t) {
		t.Run(name, func(t *testing.T) {
			ctx, c := open()
			if cache.Observe(ctx, c) {
				t.Fatal("traced")
			}
			if n := testing.AllocsPerRun(1000, func() { cache.Observe(ctx, c) }); n != 0 {
				t.Errorf("%v allocations", n)
			}
		})
	}
	c, _ := tracedCache(t, sdk(1), cache.RefreshOptions{})
	if !cache.Observe(ctx, c) {
		t.Error("not traced by an SDK that samples everything")
	}
}

// BenchmarkTelemetry_Untraced measures the cost of telemetry for a batch that is not traced.
func BenchmarkTelemetry_Untraced(b *testing.B) {
	for name, open := range untraced(b) {
		b.Run(name, func(b *testing.B) {
			ctx, c := open()
			b.ReportAllocs()
			for b.Loop() {
				cache.Observe(ctx, c)
			}
		})
	}
}

// BenchmarkTelemetry_Traced measures the cost of telemetry for a traced batch with 32 events, without the separate launches of stages and
// the timers of the device.
func BenchmarkTelemetry_Traced(b *testing.B) {
	for _, evicted := range []bool{false, true} {
		b.Run(fmt.Sprint("evicted=", evicted), func(b *testing.B) {
			c, _ := tracedCache(b, sdk(1), cache.RefreshOptions{Accesses: 1, MaxChurn: 1})
			rows := missed(b, c, evicted)
			run := cache.Traced(ctx, c, rows)
			b.ReportAllocs()
			busy := processorTime(b)
			for b.Loop() {
				run()
			}
			b.ReportMetric(float64(processorTime(b)-busy)/1e3/float64(b.N), "cpu-µs/op")
		})
	}
}

// missed returns 32 rows that miss, evicted ones by a cycle that was traced.
func missed(t testing.TB, c *cache.Cache, evicted bool) (rows []int64) {
	all := make([]int64, 2000)
	for i := range all {
		all[i] = int64(i)
	}
	if evicted { // those that were cold become hot
		for range 20 {
			if err := c.Gather(ctx, cache.Request{Rows: all[1000:], Out: make([]byte, 1000*128)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Refresh(ctx); err != nil {
			t.Fatal(err)
		}
	}
	rows = explainedRows(t, c, func(e cache.Explanation) bool { return !e.Cached && (e.Reason == slab.Evicted) == evicted })
	if len(rows) < 32 {
		t.Fatalf("%d rows miss", len(rows))
	}
	return rows[:32]
}
