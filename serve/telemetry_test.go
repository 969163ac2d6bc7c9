//go:build linux

package serve_test

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/serve"
)

// watched records spans and metrics.
type watched struct {
	spans  *tracetest.InMemoryExporter
	reader *sdkmetric.ManualReader
}

func watch() (*watched, cache.TelemetryOptions) {
	w := &watched{tracetest.NewInMemoryExporter(), sdkmetric.NewManualReader()}
	return w, cache.TelemetryOptions{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(w.spans)), MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(w.reader)),
	}
}

// gathers returns the spans of Gathers that have ended, once there are so many.
func (w *watched) gathers(t *testing.T, n int) (all tracetest.SpanStubs) {
	t.Helper()
	until(t, strconv.Itoa(n)+" spans of Gathers", func() bool {
		all = nil
		for _, s := range w.spans.GetSpans() {
			if s.Name == "gather rows" {
				all = append(all, s)
			}
		}
		return len(all) >= n
	})
	return all
}

// sum returns the sum of a counter, and calls each, if not nil, with the attributes of all data.
func (w *watched) sum(t *testing.T, name string, each func(metric string, of attribute.Set)) (sum int64) {
	t.Helper()
	var rm metricdata.ResourceMetrics
	if err := w.reader.Collect(ctx, &rm); err != nil {
		t.Fatal(err)
	}
	if each == nil {
		each = func(string, attribute.Set) {}
	}
	for _, scope := range rm.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					if each(m.Name, p.Attributes); m.Name == name {
						sum += p.Value
					}
				}
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					each(m.Name, p.Attributes)
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					each(m.Name, p.Attributes)
				}
			case metricdata.Histogram[int64]:
				for _, p := range d.DataPoints {
					each(m.Name, p.Attributes)
				}
			default:
				t.Errorf("%s is a %T", m.Name, d)
			}
		}
	}
	return sum
}

func find(all []attribute.KeyValue, key attribute.Key) (v attribute.Value, ok bool) {
	for _, kv := range all {
		if kv.Key == key {
			return kv.Value, true
		}
	}
	return v, false
}

// TestTelemetry_ClientNamed: spans, a Gather's stages among them, and metrics of a client have its name and process, those of the owner have not.
func TestTelemetry_ClientNamed(t *testing.T) {
	owner, of := watch()
	c := open(t, 100, func(o *cache.Options) { shared(o); o.Telemetry = of })
	client, telemetry := watch()
	a := attach(t, listen(t, c, serve.Options{}), cache.AttachOptions{Name: "trainer 3", Telemetry: telemetry})
	for _, c := range []*cache.Cache{a, c} {
		if err := c.Gather(ctx, cache.Request{Rows: []int64{1, 2}, Out: make([]byte, 128)}); err != nil {
			t.Fatal(err)
		}
		if err := c.Update(ctx, 0, []int64{1}, make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
		if err := c.Gather(ctx, cache.Request{Rows: []int64{-1}, Out: make([]byte, 64)}); err == nil {
			t.Fatal("row -1 is gathered")
		}
	}
	for w, attached := range map[*watched]bool{client: true, owner: false} {
		check := func(what string, all []attribute.KeyValue) {
			name, named := find(all, "tensorcache.client.name")
			process, has := find(all, "process.pid")
			if named != attached || has != attached || attached && (name.AsString() != "trainer 3" || process.AsInt64() != int64(os.Getpid())) {
				t.Errorf("%s of a cache (attached: %v) has %v", what, attached, all)
			}
		}
		checkCache := func(what string, all []attribute.KeyValue) {
			check(what, all)
			if of, ok := find(all, "tensorcache.cache.name"); !ok || attached && of.AsString() != "trainer 3" {
				t.Errorf("%s has %q as the cache's name", what, of.AsString())
			}
		}
		w.gathers(t, 1)
		kinds := map[string]bool{}
		for _, s := range w.spans.GetSpans() {
			kinds[s.Name] = true
			if s.Parent.IsValid() { // a stage of a Gather, or the owner's loading of a table
				check(s.Name, s.Attributes)
			} else {
				checkCache(s.Name, s.Attributes)
			}
		}
		metrics := map[string]bool{}
		w.sum(t, "", func(metric string, of attribute.Set) {
			metrics[metric] = true
			checkCache(metric, of.ToSlice())
		})
		if !kinds["gather rows"] || !kinds["lookup"] || !kinds["misses"] || !kinds["hits"] || !kinds["update rows"] || !metrics["tensorcache.lookups"] || !metrics["tensorcache.gather.duration"] || !metrics["tensorcache.errors"] {
			t.Errorf("spans %v, metrics %v", kinds, metrics)
		}
	}
}

func init() {
	// count ADDRESS BATCHES: gathers so many batches of 100 rows, says so, and waits for its end.
	roles["count"] = func(p *parent, args []string) error {
		c, err := cache.Attach(context.Background(), args[0], cache.AttachOptions{Name: "counter"})
		if err != nil {
			return err
		}
		batches, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		for range batches {
			if err := c.Gather(context.Background(), cache.Request{Rows: make([]int64, 100), Out: make([]byte, 6400)}); err != nil {
				return err
			}
		}
		p.say("done")
		p.wait()
		return nil
	}
}

// TestTelemetry_OwnerSums: the owner's metrics count what it and all clients have done, those that were killed too.
func TestTelemetry_OwnerSums(t *testing.T) {
	w, of := watch()
	c := open(t, 100, func(o *cache.Options) { shared(o); o.Telemetry = of })
	s := listen(t, c, serve.Options{})
	if err := c.Gather(ctx, cache.Request{Rows: make([]int64, 7), Out: make([]byte, 7*64)}); err != nil {
		t.Fatal(err)
	}
	killed, lives := start(t, "count", s.Address(), "30"), start(t, "count", s.Address(), "5")
	killed.expect("done")
	lives.expect("done")
	check := func() {
		t.Helper()
		for name, want := range map[string]int64{"tensorcache.lookups": 3507, "tensorcache.gathers": 36} {
			if got := w.sum(t, name, nil); got != want {
				t.Errorf("%s is %d, want %d", name, got, want)
			}
		}
		if hits, misses := w.sum(t, "tensorcache.hits", nil), w.sum(t, "tensorcache.misses", nil); hits+misses != 3507 {
			t.Errorf("%d hits and %d misses", hits, misses)
		}
	}
	check()
	killed.kill()
	until(t, "the killed client is gone", func() bool { all, err := c.Stats(); return err == nil && len(all.Clients) == 1 })
	check()
}

// held is a policy whose estimates wait until it is let go.
type held struct {
	admission.Policy
	go_ chan struct{}
}

// Explain implements admission.Explainer.
func (h held) Explain(key uint64) admission.Estimate {
	<-h.go_
	return h.Policy.(admission.Explainer).Explain(key)
}

// TestTelemetry_MissesExplained: the events of a client's misses have what the owner knows of the rows, and the span is linked to the one by which the
// owner withdrew them.
func TestTelemetry_MissesExplained(t *testing.T) {
	owner, of := watch()
	c := open(t, 1000, func(o *cache.Options) { shared(o); o.Telemetry = of; o.Refresh.Accesses = 1 })
	client, telemetry := watch()
	a := attach(t, listen(t, c, serve.Options{}), cache.AttachOptions{Telemetry: telemetry})
	cached, err := c.Cached(0, []int64{3, 4}, nil)
	if err != nil || !cached[0] || !cached[1] {
		t.Fatal(cached, err)
	}
	if err := c.Invalidate(0, []int64{3, 4}); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := a.Gather(ctx, cache.Request{Rows: []int64{3, 4}, Out: make([]byte, 128)}); err != nil {
		t.Fatal(err)
	}
	took := time.Since(begun)
	span := client.gathers(t, 1)[0]
	if _, ok := find(span.Attributes, "tensorcache.miss.unexplained"); ok || len(span.Events) != 2 || span.EndTime.Sub(span.StartTime) > took {
		t.Errorf("%v, %d events, %v of %v", span.Attributes, len(span.Events), span.EndTime.Sub(span.StartTime), took)
	}
	known, err := c.Explain(0, []int64{3, 4})
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range span.Events {
		get := func(key attribute.Key) attribute.Value {
			v, ok := find(e.Attributes, key)
			if !ok {
				t.Fatalf("event %d has no %s: %v", i, key, e.Attributes)
			}
			return v
		}
		k := known[get("tensorcache.row").AsInt64()-3]
		if get("tensorcache.miss.reason").AsString() != "invalidated" || get("tensorcache.eviction.by").AsString() != "invalidate" ||
			get("tensorcache.eviction.time").AsString() != k.Eviction.At.UTC().Format(time.RFC3339Nano) || get("tensorcache.row.stored_bytes").AsInt64() != int64(k.StoredBytes) ||
			get("tensorcache.policy.victim_score").AsFloat64() != k.Policy.Victim || get("tensorcache.eviction.elapsed").AsFloat64() <= 0 {
			t.Errorf("event %v, the owner knows %+v, %+v", e.Attributes, k, *k.Policy)
		}
		get("tensorcache.policy.score")
	}
	invalidation := known[0].Eviction.Span
	if len(span.Links) != 1 || span.Links[0].SpanContext.SpanID() != invalidation.SpanID() || span.Links[0].SpanContext.TraceID() != invalidation.TraceID() {
		t.Errorf("links %+v, want one to %v", span.Links, invalidation)
	}
	found := false
	for _, s := range owner.spans.GetSpans() {
		found = found || s.Name == "invalidate rows" && s.SpanContext.SpanID() == invalidation.SpanID()
	}
	if !found {
		t.Error("the owner has no such span")
	}
}

// TestTelemetry_Unexplained: Gathers do not wait for the owner. Spans say why their misses are not explained: too many wait, the owner does not answer,
// the cache is closed, or there is no owner.
func TestTelemetry_Unexplained(t *testing.T) {
	policy := held{admission.NewFrequency(), make(chan struct{})}
	c := open(t, 1000, func(o *cache.Options) { shared(o); o.Admission.Cold, o.Admission.Policy = true, policy })
	s := listen(t, c, serve.Options{})
	client, telemetry := watch()
	a := attach(t, s, cache.AttachOptions{Telemetry: telemetry})
	gather := func() {
		t.Helper()
		if err := a.Gather(ctx, cache.Request{Rows: []int64{3}, Out: make([]byte, 64)}); err != nil {
			t.Fatal(err)
		}
	}
	reasons := func(n int) map[string]int {
		t.Helper()
		all := map[string]int{}
		for _, s := range client.gathers(t, n) {
			why, _ := find(s.Attributes, "tensorcache.miss.unexplained")
			if all[why.AsString()]++; len(s.Events) != 1 {
				t.Errorf("%d events", len(s.Events))
			}
			if _, known := find(s.Events[0].Attributes, "tensorcache.policy.score"); known != (why.AsString() == "") {
				t.Errorf("%q: %v", why.AsString(), s.Events[0].Attributes)
			}
		}
		return all
	}
	for range 80 { // one is asked about, 64 wait
		gather()
	}
	if all := reasons(10); all["busy"] < 10 {
		t.Errorf("%v", all)
	}
	for n := 11; reasons(n)["deadline_exceeded"] == 0; n++ { // those that found no room to wait come first
		if n == 80 {
			t.Fatal("no span says that the owner did not answer in time")
		}
	}
	close(policy.go_)
	if all := reasons(80); all[""] == 0 || all["busy"]+all["deadline_exceeded"]+all[""] != 80 {
		t.Errorf("%v", all)
	}
	client.spans.Reset()
	s.Close()
	until(t, "the owner is gone", func() bool { own, err := a.Stats(); return err == nil && own.OwnerError != "" })
	gather()
	if all := reasons(1); all["owner"] != 1 {
		t.Errorf("%v", all)
	}
}

// TestTelemetry_Closed: Close ends the spans of batches that wait for an answer that does not come.
func TestTelemetry_Closed(t *testing.T) {
	policy := held{admission.NewFrequency(), make(chan struct{})}
	c := open(t, 1000, func(o *cache.Options) { shared(o); o.Admission.Cold, o.Admission.Policy = true, policy })
	client, telemetry := watch()
	a := attach(t, listen(t, c, serve.Options{}), cache.AttachOptions{Telemetry: telemetry})
	t.Cleanup(func() { close(policy.go_) }) // before the server closes, which waits for the request
	for range 30 {
		if err := a.Gather(ctx, cache.Request{Rows: []int64{3}, Out: make([]byte, 64)}); err != nil {
			t.Fatal(err)
		}
	}
	begun := time.Now()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > time.Minute {
		t.Errorf("Close took %v", took)
	}
	spans, closed := 0, 0
	for _, s := range client.spans.GetSpans() {
		if s.Name == "gather rows" {
			spans++
			if why, _ := find(s.Attributes, "tensorcache.miss.unexplained"); why.AsString() == "closed" {
				closed++
			}
		}
	}
	if spans != 30 || closed < 25 {
		t.Errorf("%d spans have ended, %d closed", spans, closed)
	}
}
