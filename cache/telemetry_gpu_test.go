package cache_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/gputest"
)

// TestGPU_Traced traces batches on a GPU. Their rows and counts equal those of untraced batches, their stages lie within the time of the
// Gather, and their misses have the reasons of Explain.
func TestGPU_Traced(t *testing.T) {
	gpu := gputest.Open(t)
	if slowdown := "TENSORCACHE_EMULATOR_SLOWDOWN"; strings.Contains(strings.ToLower(gpu.Info().Name), "emulat") && os.Getenv(slowdown) != "1" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestGPU_Traced$", "-test.v")
		cmd.Env = append(os.Environ(), slowdown+"=1") // else its time is not the host's
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	const rowBytes, rows = 512, 3000
	data := gputest.Rows("mixed", rows, rowBytes, 1)
	r := newRecorder(t, sdktrace.AlwaysSample())
	options := func(o cache.TelemetryOptions) cache.Options {
		return cache.Options{
			Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Budget: int64(len(data) / 3), Codec: "ibp8", Devices: cache.DeviceOptions{Backend: "cuda"}, Seed: 1, Telemetry: o,
			Admission: cache.AdmissionOptions{Training: batches(0, zipf(rand.New(rand.NewPCG(1, 1)), rows, 2*rows))},
		}
	}
	traced, plain := newCache(t, options(r.options())), newCache(t, options(noop()))
	rng := rand.New(rand.NewPCG(2, 2))
	for _, n := range []int{1, 33, 1000, 10_000} {
		ids := zipf(rng, rows, n)
		r.spans.Reset()
		out := make([]byte, n*rowBytes)
		for _, c := range []*cache.Cache{plain, traced} {
			clear(out)
			if err := c.Gather(ctx, cache.Request{Rows: ids, Out: out}); err != nil {
				t.Fatal(err)
			}
			checkRows(t, data, rowBytes, ids, out)
		}
		checkTraced(t, r, traced, n)
		batch := putBatch(t, gpu, ids, rowBytes)
		r.spans.Reset()
		for _, c := range []*cache.Cache{plain, traced} {
			b, err := c.On(0).Enqueue(ctx, 0, cache.Request{DeviceRows: batch.rows, DeviceOut: batch.out})
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Wait(); err != nil {
				t.Fatal(err)
			}
			checkRows(t, data, rowBytes, ids, batch.read(t))
		}
		checkTraced(t, r, traced, n)
	}
	a, b := stats(t, traced).Tables[0], stats(t, plain).Tables[0]
	if a.Hits != b.Hits || a.MissesByReason != b.MissesByReason || a.HostBytesMoved != b.HostBytesMoved || a.Misses == 0 || a.Hits == 0 {
		t.Errorf("traced %+v, untraced %+v", a, b)
	}
}

// checkTraced checks the spans of one Gather of n rows of table x.
func checkTraced(t *testing.T, r *recorder, c *cache.Cache, n int) {
	t.Helper()
	const slack = time.Millisecond // of the relation of the clocks
	s := r.one(t, "gather x")
	at := attributes(s.Attributes())
	hits, misses := at["tensorcache.batch.hits"].AsInt64(), at["tensorcache.batch.misses"].AsInt64()
	if hits+misses != int64(n) || at["tensorcache.strategy.run"].AsString() != "side_by_side" || int64(len(s.Events())) != min(32, misses) {
		t.Fatalf("%d rows, %d events: %v", n, len(s.Events()), s.Attributes())
	}
	lookup, miss, hit := r.one(t, "lookup"), r.one(t, "misses"), r.one(t, "hits")
	for _, stage := range []sdktrace.ReadOnlySpan{lookup, miss, hit} {
		if stage.Parent().SpanID() != s.SpanContext().SpanID() || stage.EndTime().Before(stage.StartTime()) ||
			stage.StartTime().Before(s.StartTime().Add(-slack)) || stage.EndTime().After(s.EndTime().Add(slack)) {
			t.Errorf("%d rows: %s is from %v to %v, the Gather from %v to %v", n, stage.Name(), stage.StartTime(), stage.EndTime(), s.StartTime(), s.EndTime())
		}
	}
	if !miss.StartTime().Equal(lookup.EndTime()) || hit.StartTime().Before(lookup.EndTime()) {
		t.Errorf("%d rows: lookup until %v, misses from %v, hits from %v", n, lookup.EndTime(), miss.StartTime(), hit.StartTime())
	}
	for _, e := range s.Events() {
		at := attributes(e.Attributes)
		x, err := c.Explain(0, []int64{at["tensorcache.row"].AsInt64()})
		if err != nil || x[0].Cached || x[0].Reason.String() != at["tensorcache.miss.reason"].AsString() {
			t.Fatalf("event %v, explained %+v, %v", e.Attributes, x, err)
		}
	}
}
