package cache_test

import (
	"context"
	"slices"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/tensorcache/tensorcache/cache"
)

// TestTrace_LinksUpdates updates cached rows with longer ones, for which there is no room, and invalidates others. The events of their
// misses have the operation and the time of the withdrawal, and a link to the operation's span.
func TestTrace_LinksUpdates(t *testing.T) {
	r := newRecorder(t, sdktrace.AlwaysSample())
	o := r.options()
	o.MissEvents = 1024
	c, _ := tracedCache(t, o, cache.RefreshOptions{})
	cached := explainedRows(t, c, func(e cache.Explanation) bool { return e.Cached })
	if len(cached) < 500 {
		t.Fatalf("%d rows are cached", len(cached))
	}
	updated, rest := cached[:len(cached)-40], cached[len(cached)-40:]
	invalidated, unsampled := rest[:20], rest[20:]
	begun := time.Now()
	if err := c.Update(ctx, 0, updated, noise(len(updated), 128, 9)); err != nil {
		t.Fatal(err)
	}
	if err := c.Invalidate(0, invalidated); err != nil {
		t.Fatal(err)
	}
	settle(t, c)
	spans := map[string]sdktrace.ReadOnlySpan{"update": r.one(t, "update x"), "invalidate": r.one(t, "invalidate x")}
	gone, linked := missEvents(t, r, c, updated), 0
	for row, by := range gone {
		if by != "update" {
			t.Errorf("row %d was evicted by %q", row, by)
		}
	}
	if len(gone) == 0 || int64(len(gone)) != stats(t, c).Changes.EvictedRows {
		t.Errorf("%d rows were evicted by the update, %d in all", len(gone), stats(t, c).Changes.EvictedRows)
	}
	for row, by := range missEvents(t, r, c, invalidated) {
		gone[row] = by
	}
	for row, by := range gone {
		x, err := c.Explain(0, []int64{row})
		if err != nil {
			t.Fatal(err)
		}
		if e := x[0].Eviction; e == nil || e.By != by || !e.Span.Equal(spans[by].SpanContext()) || e.At.Before(begun) || e.At.After(time.Now()) {
			t.Errorf("row %d, by %s: %+v", row, by, e)
		}
	}
	for _, s := range r.named("gather x") {
		for _, l := range s.Links() {
			at := attributes(l.Attributes)
			by := at["tensorcache.eviction.by"].AsString()
			if spans[by] == nil || !l.SpanContext.Equal(spans[by].SpanContext()) {
				t.Errorf("link by %q to %v", by, l.SpanContext)
			}
			for _, row := range at["tensorcache.eviction.rows"].AsInt64Slice() {
				if linked++; gone[row] != by {
					t.Errorf("row %d is linked to %q, gone by %q", row, by, gone[row])
				}
			}
		}
	}
	if linked != len(gone) || len(gone) <= len(invalidated) {
		t.Errorf("%d rows are linked, %d are gone, %d of them invalidated", linked, len(gone), len(invalidated))
	}

	// An operation without a span is named too.
	r.spans.Reset()
	c2, _ := tracedCache(t, cache.TelemetryOptions{TracerProvider: sdktrace.NewTracerProvider(
		sdktrace.WithSpanProcessor(r.spans), sdktrace.WithSampler(onlyGathers{}))}, cache.RefreshOptions{})
	if err := c2.Invalidate(0, unsampled); err != nil {
		t.Fatal(err)
	}
	for row, by := range missEvents(t, r, c2, unsampled) {
		if by != "invalidate" {
			t.Errorf("row %d was withdrawn by %q", row, by)
		}
	}
	if n := len(r.one(t, "gather x").Links()); n != 0 {
		t.Errorf("%d links to a span that there is not", n)
	}
}

// onlyGathers samples Gathers only.
type onlyGathers struct{}

func (onlyGathers) Description() string { return "only Gathers" }
func (onlyGathers) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if p.Name == "gather x" || p.ParentContext != context.Background() {
		return sdktrace.AlwaysSample().ShouldSample(p)
	}
	return sdktrace.NeverSample().ShouldSample(p)
}

// explainedRows returns the rows of table 0 for which Explain returns an Eviction.
func explainedRows(t testing.TB, c *cache.Cache, is func(cache.Explanation) bool) (rows []int64) {
	t.Helper()
	all := make([]int64, c.Rows(0))
	for i := range all {
		all[i] = int64(i)
	}
	explained, err := c.Explain(0, all)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range explained {
		if is(e) {
			rows = append(rows, e.Row)
		}
	}
	return rows
}

// missEvents gathers rows, which were cached, and returns by what those that miss were withdrawn, by their events.
func missEvents(t *testing.T, r *recorder, c *cache.Cache, rows []int64) map[int64]string {
	t.Helper()
	before := len(r.named("gather x"))
	if err := c.Gather(ctx, cache.Request{Rows: rows, Out: make([]byte, len(rows)*128)}); err != nil {
		t.Fatal(err)
	}
	by := map[int64]string{}
	s := r.named("gather x")[before]
	for _, e := range s.Events() {
		at := attributes(e.Attributes)
		// If the hashmap had no room left for a row's reason, the row is counted as rejected.
		known := slices.Contains([]string{"evicted", "invalidated", "rejected"}, at["tensorcache.miss.reason"].AsString())
		when, err := time.Parse(time.RFC3339Nano, at["tensorcache.eviction.time"].AsString())
		if _, aged := at["tensorcache.eviction.age"]; err != nil || !aged || when.After(e.Time) || !known {
			t.Errorf("event %v, %v", e.Attributes, err)
		}
		by[at["tensorcache.row"].AsInt64()] = at["tensorcache.eviction.by"].AsString()
	}
	if misses := attributes(s.Attributes())["tensorcache.batch.misses"].AsInt64(); int64(len(by)) != misses {
		t.Errorf("%d events of %d misses", len(by), misses)
	}
	return by
}
