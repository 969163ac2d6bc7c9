// Package telemetry sets up OpenTelemetry for a command, by the standard OTEL_* environment variables and settings that replace them, and Prometheus's
// endpoint.
//
// What cannot be delivered is dropped, counted and logged. Exporters never fail a run, and a flush delays it by at most [Patience].
package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// Patience is how long each of Flush and Close waits for exporters.
const Patience = 3 * time.Second

// Options say what is set up.
type Options struct {
	// Service is the service's name, unless OTEL_SERVICE_NAME is set.
	Service string
	// MetricsAddr is where Prometheus can scrape, at /metrics: "9464", ":9464" and "localhost:9464" are the same, since no host
	// means this machine only. "": nowhere.
	MetricsAddr string
	// Prometheus has Metrics return a handler for Prometheus, without an address of its own.
	Prometheus bool
	Settings   Settings
	// Logger receives what could not be delivered: at once, then at most once a minute. Default: none.
	Logger *slog.Logger
	// Console is where OTEL_TRACES_EXPORTER=console and OTEL_METRICS_EXPORTER=console write to.
	Console io.Writer
}

// Telemetry is what Start has set up. It is safe for concurrent use.
type Telemetry struct {
	tracer, meter provider // nil: none
	server        *http.Server
	address       string
	metrics       http.Handler

	rate float64
	logs logs
	// Sampled spans: those that have ended, those on their way, and what has become of the others.
	ended, queued, delivered, failedSpans, dropped atomic.Int64
	lostAt                                         atomic.Int64 // when something was lost last, in nanoseconds of Unix; 0: never

	mu struct {
		sync.Mutex
		patience time.Duration // how long the next flush waits: Patience, or a tenth of it after one that timed out
		last     error         // of an exporter
		spans    error         // why the last spans that were not delivered were not
		metrics  error         // why the last metrics were not delivered
	}
}

// provider is what the providers of both signals can do.
type provider interface {
	ForceFlush(context.Context) error
	Shutdown(context.Context) error
}

// enabled says whether a signal is to be exported: where nothing names an exporter or an endpoint, nothing is.
func enabled(signal string) bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	if e := os.Getenv("OTEL_" + signal + "_EXPORTER"); e != "" {
		return e != "none"
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != ""
}

// settings returns the variables that choose a signal's exporter, with their values, for errors.
func settings(signal string) string {
	var set []string
	for _, name := range []string{"OTEL_" + signal + "_EXPORTER", "OTEL_EXPORTER_OTLP_" + signal + "_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if value := os.Getenv(name); value != "" {
			set = append(set, fmt.Sprintf("%s (%q)", name, value))
		}
	}
	if len(set) == 0 {
		return "exporter (otlp)"
	}
	return strings.Join(set, ", ")
}

// Start sets the global providers as the environment and the options say. A provider that neither mentions stays as it is. Start
// returns an error for invalid settings and for an address that it cannot listen on. Close ends what Start began.
func Start(ctx context.Context, o Options) (_ *Telemetry, err error) {
	t := &Telemetry{}
	t.mu.patience = Patience
	t.logs.logger, t.logs.losses = o.Logger, t.Losses
	defer func() {
		if err != nil {
			t.Close()
		}
	}()
	if err := o.Settings.apply(); err != nil {
		return nil, err
	}
	if t.rate, err = traceRate(); err != nil {
		return nil, err
	}
	traces, metrics := enabled("TRACES"), enabled("METRICS")
	if !traces && !metrics && o.MetricsAddr == "" && !o.Prometheus {
		return t, nil
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(t.failed))
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", o.Service)), resource.WithTelemetrySDK(), resource.WithHost(),
		resource.WithProcessPID(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	if traces {
		var exporter sdktrace.SpanExporter
		if os.Getenv("OTEL_TRACES_EXPORTER") == "console" {
			exporter, err = stdouttrace.New(stdouttrace.WithWriter(o.Console))
		} else {
			exporter, err = autoexport.NewSpanExporter(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("telemetry: traces: %s: %w", settings("TRACES"), err)
		}
		traced := sdktrace.NewTracerProvider(sdktrace.WithResource(about), sdktrace.WithSpanProcessor(t.processor(exporter)))
		otel.SetTracerProvider(traced)
		t.tracer = traced
	}
	if metrics || o.MetricsAddr != "" || o.Prometheus {
		with := []sdkmetric.Option{sdkmetric.WithResource(about)}
		if metrics {
			var reader sdkmetric.Reader
			if os.Getenv("OTEL_METRICS_EXPORTER") == "console" {
				var exporter sdkmetric.Exporter
				exporter, err = stdoutmetric.New(stdoutmetric.WithWriter(o.Console))
				reader = sdkmetric.NewPeriodicReader(exporter)
			} else {
				reader, err = autoexport.NewMetricReader(ctx)
			}
			if err != nil {
				return nil, fmt.Errorf("telemetry: metrics: %s: %w", settings("METRICS"), err)
			}
			with = append(with, sdkmetric.WithReader(reader))
		}
		if o.MetricsAddr != "" || o.Prometheus {
			reader, err := t.prometheus()
			if err == nil && o.MetricsAddr != "" {
				err = t.serve(o.MetricsAddr)
			}
			if err != nil {
				return nil, err
			}
			with = append(with, sdkmetric.WithReader(reader))
		}
		metered := sdkmetric.NewMeterProvider(with...)
		t.meter = metered
		if t.tracer != nil {
			if err := t.observe(metered); err != nil {
				return nil, err
			}
		}
		otel.SetMeterProvider(metered)
	}
	return t, nil
}

// prometheus makes the handler for Prometheus, and returns what collects for it.
func (t *Telemetry) prometheus() (sdkmetric.Reader, error) {
	registry := prometheus.NewRegistry()
	reader, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes))
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	t.metrics = promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
	return reader, nil
}

// Metrics returns what answers Prometheus, nil if neither Options.Prometheus nor Options.MetricsAddr is set.
func (t *Telemetry) Metrics() http.Handler { return t.metrics }

// serve listens for Prometheus.
func (t *Telemetry) serve(address string) error {
	if !strings.Contains(address, ":") {
		address = ":" + address
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("telemetry: address of metrics (%q): %w", address, err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return fmt.Errorf("telemetry: address of metrics (%q): %w", address, err)
	}
	t.address = l.Addr().String()
	mux := http.NewServeMux()
	mux.Handle("/metrics", t.metrics)
	t.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go t.server.Serve(l)
	return nil
}

// MetricsURL returns where Prometheus can scrape, "" if nowhere.
func (t *Telemetry) MetricsURL() string {
	if t.address == "" {
		return ""
	}
	return "http://" + t.address + "/metrics"
}

// TraceRate is the value for cache.TelemetryOptions.TraceRate.
func (t *Telemetry) TraceRate() float64 { return t.rate }

// failed is told of exporters' errors.
func (t *Telemetry) failed(err error) {
	t.mu.Lock()
	t.mu.last = err
	t.mu.Unlock()
	t.lost(err)
}

// Flush delivers the spans so far and the metrics as of now. It waits at most Patience, and a tenth of that once a flush has
// timed out.
func (t *Telemetry) Flush() { t.wait(provider.ForceFlush) }

// wait has both providers do something, at once, and returns why the metrics were not delivered before.
func (t *Telemetry) wait(do func(provider, context.Context) error) (before error) {
	t.mu.Lock()
	before = t.mu.metrics
	ctx, cancel := context.WithTimeout(context.Background(), t.mu.patience)
	t.mu.Unlock()
	defer cancel()
	var wg sync.WaitGroup
	var failures [2]error
	for i, p := range []provider{t.meter, t.tracer} {
		if p != nil {
			wg.Go(func() { failures[i] = do(p, ctx) })
		}
	}
	wg.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.metrics = failures[0]
	if err := errors.Join(failures[:]...); err != nil {
		t.mu.last = err
		t.lostAt.Store(time.Now().UnixNano())
	}
	if ctx.Err() != nil {
		t.mu.patience = Patience / 10
	}
	return before
}

// Close delivers what is left, as Flush does, and ends everything. The error says what was not delivered; it is no reason for the
// command to fail.
func (t *Telemetry) Close() error {
	before := t.wait(provider.Shutdown)
	if t.server != nil {
		t.server.Close()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var errs []error
	if ended, delivered := t.ended.Load(), t.delivered.Load(); delivered < ended {
		errs = append(errs, fmt.Errorf("telemetry: %d of %d spans were not delivered: %w", ended-delivered, ended, cmp.Or(t.mu.spans, errQueue)))
	}
	if err := cmp.Or(t.mu.metrics, before); err != nil {
		errs = append(errs, fmt.Errorf("telemetry: metrics were not delivered: %w", err))
	} else if len(errs) == 0 && t.mu.last != nil {
		errs = append(errs, fmt.Errorf("telemetry: an export failed: %w", t.mu.last))
	}
	return errors.Join(errs...)
}
