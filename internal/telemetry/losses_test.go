package telemetry

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// record is a log that goroutines write to.
type record struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (r *record) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.Write(b)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.String()
}

// begin starts telemetry whose traces go to an endpoint, with a queue of 64 spans. The global providers are put back when the test ends.
func begin(t *testing.T, url string, log io.Writer) *Telemetry {
	t.Helper()
	tracers, meters := otel.GetTracerProvider(), otel.GetMeterProvider()
	t.Cleanup(func() { otel.SetTracerProvider(tracers); otel.SetMeterProvider(meters) })
	for name, value := range map[string]string{
		"OTEL_TRACES_EXPORTER": "otlp", "OTEL_METRICS_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
		"OTEL_TRACES_SAMPLER": "always_on", "OTEL_BSP_MAX_QUEUE_SIZE": "64", "OTEL_BSP_SCHEDULE_DELAY": "20", "OTEL_BSP_EXPORT_TIMEOUT": "", "TENSORCACHE_TRACE_RATE": "",
	} {
		t.Setenv(name, value)
	}
	o := Options{Service: "test", Prometheus: true}
	if log != nil {
		o.Logger = slog.New(slog.NewTextHandler(log, nil))
	}
	s, err := Start(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// spans makes so many sampled spans.
func spans(n int) {
	for range n {
		_, span := otel.Tracer("test").Start(context.Background(), "spoken")
		span.End()
	}
}

// TestLosses_Counted: every span that does not reach an endpoint is counted, and logged once at first, whether the endpoint is closed, refuses or hangs.
func TestLosses_Counted(t *testing.T) {
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	defer hangs.Close()
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }))
	defer refuses.Close()
	closed := httptest.NewServer(nil)
	closed.Close()
	for name, c := range map[string]struct {
		url    string
		failed bool // the exporter fails soon
	}{
		"closed": {closed.URL, true}, "refuses": {refuses.URL, true}, "hangs": {hangs.URL, false},
	} {
		t.Run(name, func(t *testing.T) {
			var log record
			begun := time.Now()
			s := begin(t, c.url, &log)
			defer s.Close()
			defer hangs.CloseClientConnections()
			const n = 2000 // far more than the queue has room for
			spans(n)
			for begun := time.Now(); ; time.Sleep(time.Millisecond) {
				l := s.Losses()
				if l.Ended == n && l.Dropped > 0 && l.Delivered == 0 && (!c.failed && l.Dropped >= n-64-512 || c.failed && l.Dropped+l.Failed == n) {
					break
				}
				if time.Since(begun) > time.Minute {
					t.Fatalf("%+v", l)
				}
			}
			l := s.Losses()
			if text := l.String(); !strings.Contains(text, "of 2000 spans were not delivered: ") || !strings.HasSuffix(text, l.Last.UTC().Format(" (the last loss was at 2006-01-02T15:04:05Z)")) {
				t.Errorf("text %q", text)
			}
			if l.Last.Before(begun) || l.Last.After(time.Now()) {
				t.Errorf("the last loss was at %v", l.Last)
			}
			if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `level=WARN msg="traces or metrics were not delivered" spans=`) {
				t.Errorf("log\n%s", got)
			}
		})
	}
}

// TestLosses_Metric: the counter of spans says what has become of them.
func TestLosses_Metric(t *testing.T) {
	receives := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }))
	defer receives.Close()
	s := begin(t, receives.URL, nil)
	defer s.Close()
	reader := sdkmetric.NewManualReader()
	if err := s.observe(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))); err != nil {
		t.Fatal(err)
	}
	spans(40)
	s.Flush()
	s.dropped.Add(3)
	s.failedSpans.Add(2)
	var rm metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &rm); err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, p := range rm.ScopeMetrics[0].Metrics[0].Data.(metricdata.Sum[int64]).DataPoints {
		v, _ := p.Attributes.Value("tensorcache.outcome")
		got[v.AsString()] = p.Value
	}
	if got["delivered"] != 40 || got["dropped"] != 3 || got["failed"] != 2 || len(got) != 3 {
		t.Errorf("counted %v", got)
	}
	// Prometheus has it, too.
	w := httptest.NewRecorder()
	s.Metrics().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if !strings.Contains(w.Body.String(), `tensorcache_telemetry_spans_total{`) {
		t.Errorf("scrape:\n%s", w.Body)
	}
}

// TestStart_TraceRate: a setting counts more than the variable; the default is a limit.
func TestStart_TraceRate(t *testing.T) {
	t.Setenv("OTEL_TRACES_EXPORTER", "none")
	t.Setenv("OTEL_METRICS_EXPORTER", "none")
	for _, c := range []struct {
		variable, setting string
		want              float64
	}{{"", "", DefaultTraceRate}, {"0", "", 0}, {"0", "2.5", 2.5}} {
		t.Setenv("TENSORCACHE_TRACE_RATE", c.variable)
		s, err := Start(context.Background(), Options{Settings: Settings{Rate: c.setting}})
		if err != nil || s.TraceRate() != c.want {
			t.Errorf("%+v: %v, %v", c, s.TraceRate(), err)
		}
	}
	for _, bad := range []string{"x", "-1", "NaN", "Inf"} {
		t.Setenv("TENSORCACHE_TRACE_RATE", bad)
		want := `telemetry: TENSORCACHE_TRACE_RATE ("` + bad + `") must be traces a second, 0 for no limit or up to 1e9`
		if _, err := Start(context.Background(), Options{}); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
		if err := (&Settings{Rate: bad}).Validate(func(string) string { return "--trace-rate" }); err == nil || !strings.HasPrefix(err.Error(), `--trace-rate ("`+bad+`") must be`) {
			t.Errorf("error %v", err)
		}
	}
}
