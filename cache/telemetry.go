package cache

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
)

// TelemetryOptions say how a cache is observed, by OpenTelemetry and log/slog: docs/tracing.md. The zero value follows the
// global providers, and costs next to nothing while there are none.
type TelemetryOptions struct {
	// Name tells the caches of a process apart, as attribute tensorcache.cache.name. Default: "cache", and "cache-2", ... for
	// further ones that are open at the same time.
	Name string
	// TracerProvider makes the spans. Default: the global one as of each call, so that it may be set and replaced at run time.
	TracerProvider trace.TracerProvider
	// MeterProvider makes the instruments. Default: the global one, likewise.
	MeterProvider metric.MeterProvider
	// MissEvents is how many misses of a sampled batch become events of its span. Default 32, at most 1024; negative for none.
	MissEvents int
	// HostLink is how many bytes a second a device can read from host memory, for tensorcache.host_link.utilization. Default:
	// what the device says of its link; where it says nothing, there is no such gauge.
	HostLink int64
	// Logger hears of what happens beside the batches: loading, cycles, failures. Default: none.
	Logger *slog.Logger
}

const (
	defaultMissEvents = 32
	maxMissEvents     = 1024
	// scope is the instrumentation scope's name.
	scope = "github.com/tensorcache/tensorcache/cache"
)

func (o *TelemetryOptions) ensureDefaults() {
	if o.MissEvents == 0 {
		o.MissEvents = defaultMissEvents
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

func (o *TelemetryOptions) validate(fault func(string, ...any)) {
	if o.MissEvents > maxMissEvents {
		fault("cache: Telemetry.MissEvents (%d) must be at most %d", o.MissEvents, maxMissEvents)
	}
	if o.HostLink < 0 {
		fault("cache: Telemetry.HostLink (%d B/s) must not be negative", o.HostLink)
	}
}

// telemetry is how a cache is observed. It follows providers that are replaced at run time: each call compares the provider of
// now with that of the last one.
type telemetry struct {
	cache   *Cache
	opts    TelemetryOptions
	name    string
	release func() // gives the name back

	tracing  atomic.Pointer[tracing]
	metering atomic.Pointer[metering]
	mu       struct {
		sync.Mutex
		closed bool
	}
	link linkUse
}

func (t *telemetry) open(c *Cache, o TelemetryOptions) {
	t.cache, t.opts, t.name, t.release = c, o, o.Name, func() {}
	if t.name == "" {
		t.name, t.release = names.take()
	}
	// The global ones of now may be placeholders for those that will be set.
	if p := t.opts.TracerProvider; p != nil && isPlaceholder(p) {
		t.opts.TracerProvider = nil
	}
	if p := t.opts.MeterProvider; p != nil && isPlaceholder(p) {
		t.opts.MeterProvider = nil
	}
}

// serve begins what needs to know the tables and devices.
func (t *telemetry) serve() {
	t.tracing.Store(nil)
	t.meters()
}

// close takes the cache's instruments from their provider. It waits for a collection under way, so no lock that Stats takes may
// be held.
func (t *telemetry) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.closed {
		return
	}
	t.mu.closed = true
	if m := t.metering.Swap(nil); m != nil {
		m.unregister()
	}
	t.release()
}

// tracing is what a tracer provider was asked for.
type tracing struct {
	provider trace.TracerProvider
	same     bool         // providers can be compared with it
	tracer   trace.Tracer // nil: the provider does nothing
	// gather has the options of a Gather's span by table and device.
	gather [][][]trace.SpanStartOption
}

// tracer returns what makes spans, nil when nothing does. It allocates nothing unless the provider is a new one.
func (t *telemetry) tracer() *tracing {
	p := t.opts.TracerProvider
	if p == nil {
		p = otel.GetTracerProvider()
	}
	have := t.tracing.Load()
	if have == nil || !have.same || have.provider != p {
		have = t.followTracer(p)
	}
	if have.tracer == nil {
		return nil
	}
	return have
}

func (t *telemetry) followTracer(p trace.TracerProvider) *tracing {
	now := &tracing{provider: p, same: reflect.ValueOf(p).Comparable()}
	if _, noop := p.(tracenoop.TracerProvider); !noop && !isPlaceholder(p) {
		now.tracer = p.Tracer(scope)
		for _, table := range t.cache.tables {
			var devices [][]trace.SpanStartOption
			for d := range t.cache.devices {
				devices = append(devices, []trace.SpanStartOption{trace.WithAttributes(
					keyCache.String(t.name), keyTable.String(table.name), keyDevice.Int(d),
				)})
			}
			now.gather = append(now.gather, devices)
		}
	}
	t.tracing.Store(now)
	return now
}

// isPlaceholder says whether a provider is the global one of a process that has set none. What it makes does nothing, or
// forwards to the first one that is set: then that is the global one.
func isPlaceholder(p any) bool {
	t := reflect.TypeOf(p)
	return t.Kind() == reflect.Pointer && strings.HasSuffix(t.Elem().PkgPath(), "/otel/internal/global")
}

// unsampled says whether the caller's span is one that is not sampled: then there is none for the call.
func unsampled(ctx context.Context) bool {
	s := trace.SpanContextFromContext(ctx)
	return s.IsValid() && !s.IsSampled()
}

// operation is the span of a call other than Gather. The zero value is that of a call that has none.
type operation struct {
	telemetry *telemetry
	what      string
	span      trace.Span
}

// start begins the span of an operation, of a table if it is not "".
func (t *telemetry) start(ctx context.Context, what, table string) (context.Context, operation) {
	o := operation{telemetry: t, what: what}
	tr := t.tracer()
	if tr == nil || unsampled(ctx) {
		return ctx, o
	}
	name, attributes := what, []attribute.KeyValue{keyCache.String(t.name)}
	if table != "" {
		name += " " + table
		attributes = append(attributes, keyTable.String(table))
	}
	ctx, o.span = tr.tracer.Start(ctx, name, trace.WithAttributes(attributes...))
	return ctx, o
}

// set adds attributes.
func (o operation) set(attributes ...attribute.KeyValue) {
	if o.span != nil {
		o.span.SetAttributes(attributes...)
	}
}

// end ends the operation, and counts its error.
func (o operation) end(err error) {
	if err != nil {
		o.telemetry.failed(context.Background(), o.what, err)
	}
	if o.span == nil {
		return
	}
	if err != nil {
		recordError(o.span, err)
	}
	o.span.End()
}

// cause returns the operation as what withdraws rows.
func (o operation) cause() *cause {
	if o.span == nil || !o.span.SpanContext().IsSampled() {
		return unsampledCauses[o.what]
	}
	return &cause{o.what, o.span.SpanContext()}
}

// names are the default names of the caches that are open.
var names nameList

type nameList struct {
	sync.Mutex
	taken []bool
}

// take returns a name that no other cache has until release is called.
func (n *nameList) take() (name string, release func()) {
	n.Lock()
	defer n.Unlock()
	i := 0
	for i < len(n.taken) && n.taken[i] {
		i++
	}
	if i == len(n.taken) {
		n.taken = append(n.taken, false)
	}
	n.taken[i] = true
	if name = "cache"; i > 0 {
		name = fmt.Sprint("cache-", strconv.Itoa(i+1))
	}
	return name, func() {
		n.Lock()
		defer n.Unlock()
		n.taken[i] = false
	}
}
