package telemetry_test

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.opentelemetry.io/otel"
	metricnoop "go.opentelemetry.io/otel/metric/noop"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/telemetry"
	"github.com/tensorcache/tensorcache/slab"
)

// scrape reads the endpoint as Prometheus does.
func scrape(t *testing.T, url string) map[string]*dto.MetricFamily {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s: %s", resp.Status, b)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// value returns the value of the only metric of a family whose labels include those given, "key=value".
func value(t *testing.T, families map[string]*dto.MetricFamily, name string, with ...string) float64 {
	t.Helper()
	var found []*dto.Metric
	for _, m := range families[name].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.Label {
			labels[l.GetName()] = l.GetValue()
		}
		if !slices.ContainsFunc(with, func(kv string) bool { k, v, _ := strings.Cut(kv, "="); return labels[k] != v }) {
			found = append(found, m)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d metrics %s %v of %v", len(found), name, with, families[name])
	}
	switch m := found[0]; {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	default:
		return float64(m.Histogram.GetSampleCount())
	}
}

// serve has a cache serve under the endpoint, and returns it with the endpoint's address.
func serve(t *testing.T) (c *cache.Cache, url string) {
	t.Helper()
	for _, name := range []string{"OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT"} {
		t.Setenv(name, "")
	}
	running, err := telemetry.Start(context.Background(), telemetry.Options{Service: "test", MetricsAddr: "0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := running.Close(); err != nil {
			t.Error(err)
		}
		otel.SetMeterProvider(metricnoop.NewMeterProvider())
	})
	r := rand.New(rand.NewPCG(1, 1))
	values := make([]float32, 4000*32)
	for i := range values {
		values[i] = float32(r.NormFloat64())
	}
	table, err := cache.FromSlice("x", values, 32)
	if err != nil {
		t.Fatal(err)
	}
	c, err = cache.New(cache.Options{
		Tables: []cache.Table{table}, Budget: 150_000, Devices: cache.DeviceOptions{Backend: "host"}, Refresh: cache.RefreshOptions{Accesses: 1, Keys: 1},
		Telemetry: cache.TelemetryOptions{Name: "scraped", HostLink: 1e9},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, running.MetricsURL()
}

// TestScrape_EqualsStats parses what a scrape returns and holds it against Stats.
func TestScrape_EqualsStats(t *testing.T) {
	c, url := serve(t)
	if !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Errorf("metrics at %s: not only this machine's", url)
	}
	work(t, c)
	f := scrape(t, url)
	s, err := c.Stats()
	if err != nil {
		t.Fatal(err)
	}
	ts := s.Tables[0]
	if ts.Misses == 0 || ts.Hits == 0 || s.Changes.AdmittedRows == 0 {
		t.Fatalf("nothing to see: %+v", s)
	}
	sum := 0.0
	for reason, n := range ts.MissesByReason {
		got := value(t, f, "tensorcache_misses_total", "tensorcache_miss_reason="+slab.Reason(reason).String())
		if sum += got; got != float64(n) {
			t.Errorf("misses, %v: %v, want %d", slab.Reason(reason), got, n)
		}
	}
	if sum != float64(ts.Misses) {
		t.Errorf("misses by reason sum to %v, want %d", sum, ts.Misses)
	}
	for name, want := range map[string]float64{
		"tensorcache_lookups_total": float64(ts.Lookups), "tensorcache_gathers_total": float64(ts.Gathers), "tensorcache_rows_cached": float64(ts.CachedRows),
		"tensorcache_gather_duration_seconds": float64(ts.Gathers), "tensorcache_budget_limit_bytes": float64(s.BudgetBytes), "tensorcache_sample_drops_total": float64(s.Changes.LostAccesses),
	} {
		if got := value(t, f, name, "tensorcache_cache_name=scraped"); got != want {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
	for path, want := range map[string]int64{"host_tier": ts.HostBytesMoved, "output": ts.Lookups * 128, "slab": s.Changes.RefreshedBytes} {
		direction := "write"
		if path == "host_tier" {
			direction = "read"
		}
		if got := value(t, f, "tensorcache_io_bytes_total", "tensorcache_io_path="+path, "tensorcache_io_direction="+direction); got != float64(want) {
			t.Errorf("bytes, %s: %v, want %d", path, got, want)
		}
	}
}

// work has the cache gather, refresh, update and fail.
func work(t *testing.T, c *cache.Cache) {
	t.Helper()
	ctx := context.Background()
	z := rand.NewZipf(rand.New(rand.NewPCG(2, 2)), 1.1, 4, 3999)
	out := make([]byte, 1000*128)
	for range 10 {
		rows := make([]int64, 1000)
		for i := range rows {
			rows[i] = (int64(z.Uint64()) + 2000) % 4000
		}
		if err := c.Gather(ctx, cache.Request{Rows: rows, Out: out}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Update(ctx, 0, []int64{1}, out[:128]); err != nil {
		t.Fatal(err)
	}
	if err := c.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Gather(ctx, cache.Request{Rows: []int64{-1}, Out: out[:128]}); err == nil {
		t.Fatal("row -1 is gathered")
	}
}
