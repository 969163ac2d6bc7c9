package observe

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/cache/internal/read"
)

// Scope is the name of the instrumentation scope.
const Scope = "github.com/tensorcache/tensorcache/cache"

// Options are those of cache.TelemetryOptions, with defaults set.
type Options struct {
	Name           string
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	MissEvents     int
	Logger         *slog.Logger
	Errors         []ErrorKind
}

// Telemetry observes one cache. It follows providers that are replaced at run time: each call compares the provider of now with
// that of the last one.
type Telemetry struct {
	Log *slog.Logger // of the cache, its name included

	opts    Options
	kinds   []ErrorKind
	name    string
	release func() // gives the name back
	set     *read.Set
	sources Sources
	// gauges makes the instruments that are read when they are collected, and returns what reads them.
	gauges func(*Maker) func(metric.Observer)

	tracing  atomic.Pointer[tracing]
	metering atomic.Pointer[metering]
	mu       struct {
		sync.Mutex
		closed bool
	}
}

// Sources are asked about sampled misses. They answer at once, or not at all.
type Sources interface {
	// Withdrawals appends when each row of a table was withdrawn last, the zero value where that is not remembered.
	Withdrawals(table int, rows []int64, all []Withdrawal) []Withdrawal
	// TryExplain fills in what the policy thinks of the rows, and says whether it did.
	TryExplain(table int, rows []int64, estimates []admission.Estimate) bool
}

// New returns the telemetry of a cache that is being opened. It makes spans and logs, but no instruments before Serve.
func New(o Options, set *read.Set) *Telemetry {
	t := &Telemetry{opts: o, kinds: o.Errors, name: o.Name, release: func() {}, set: set}
	if t.name == "" {
		t.name, t.release = names.take()
	}
	t.Log = o.Logger.With(slog.String("cache", t.name))
	// The global providers of now may be placeholders for those that will be set.
	if p := t.opts.TracerProvider; p != nil && IsPlaceholder(p) {
		t.opts.TracerProvider = nil
	}
	if p := t.opts.MeterProvider; p != nil && IsPlaceholder(p) {
		t.opts.MeterProvider = nil
	}
	return t
}

// SetSet sets the devices and tables, when they are known.
func (t *Telemetry) SetSet(set *read.Set) { t.set = set }

// Serve begins to observe batches. The tables and devices of the set must be complete.
func (t *Telemetry) Serve(sources Sources, gauges func(*Maker) func(metric.Observer)) {
	t.sources, t.gauges = sources, gauges
	t.tracing.Store(nil)
	t.metering.Store(nil) // those made so far, by an error of New, have no gauges
	t.meters()
}

// Name returns the cache's name.
func (t *Telemetry) Name() string { return t.name }

// Labels returns ctx with profiler labels that say what a goroutine of the cache is for.
func (t *Telemetry) Labels(ctx context.Context, task string) context.Context {
	return pprof.WithLabels(ctx, pprof.Labels(string(KeyCache), t.name, "tensorcache.task", task))
}

// Close takes the cache's instruments from their provider. It waits for a collection under way, so no lock that Stats takes may
// be held.
func (t *Telemetry) Close() {
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
func (t *Telemetry) tracer() *tracing {
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

func (t *Telemetry) followTracer(p trace.TracerProvider) *tracing {
	now := &tracing{provider: p, same: reflect.ValueOf(p).Comparable()}
	if _, noop := p.(tracenoop.TracerProvider); !noop && !IsPlaceholder(p) {
		now.tracer = p.Tracer(Scope)
		for _, table := range t.set.Tables {
			var devices [][]trace.SpanStartOption
			for d := range t.set.Devices {
				devices = append(devices, []trace.SpanStartOption{trace.WithAttributes(
					KeyCache.String(t.name), KeyTable.String(table.Name), KeyDevice.Int(d),
				)})
			}
			now.gather = append(now.gather, devices)
		}
	}
	t.tracing.Store(now)
	return now
}

// IsPlaceholder says whether a provider is the global one of a process that has set none. What it makes does nothing, or
// forwards to the first one that is set: then that is the global one.
func IsPlaceholder(p any) bool {
	t := reflect.TypeOf(p)
	return t.Kind() == reflect.Pointer && strings.HasSuffix(t.Elem().PkgPath(), "/otel/internal/global")
}

// unsampled says whether the caller's span is one that is not sampled: then there is none for the call.
func unsampled(ctx context.Context) bool {
	s := trace.SpanContextFromContext(ctx)
	return s.IsValid() && !s.IsSampled()
}

// Operation is the span of a call other than Gather. The zero value is that of a call that has none.
type Operation struct {
	telemetry *Telemetry
	what      string
	span      trace.Span
}

// Start begins the span of an operation, of a table if it is not "".
func (t *Telemetry) Start(ctx context.Context, what, table string) (context.Context, Operation) {
	o := Operation{telemetry: t, what: what}
	tr := t.tracer()
	if tr == nil || unsampled(ctx) {
		return ctx, o
	}
	name, attributes := what, []attribute.KeyValue{KeyCache.String(t.name)}
	if table != "" {
		name += " " + table
		attributes = append(attributes, KeyTable.String(table))
	}
	ctx, o.span = tr.tracer.Start(ctx, name, trace.WithAttributes(attributes...))
	return ctx, o
}

// Set adds attributes.
func (o Operation) Set(attributes ...attribute.KeyValue) {
	if o.span != nil {
		o.span.SetAttributes(attributes...)
	}
}

// End ends the operation, and counts its error.
func (o Operation) End(err error) {
	if err != nil {
		o.telemetry.Failed(context.Background(), o.what, err)
	}
	if o.span == nil {
		return
	}
	if err != nil {
		o.telemetry.recordError(o.span, err)
	}
	o.span.End()
}

// Cause returns the operation as what withdraws rows.
func (o Operation) Cause() *Cause {
	if o.span == nil || !o.span.SpanContext().IsSampled() {
		return unsampledCauses[o.what]
	}
	return &Cause{o.what, o.span.SpanContext()}
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

// Recording says whether the operation has a span.
func (o Operation) Recording() bool { return o.span != nil }

// Note records an error that did not fail the operation.
func (o Operation) Note(err error) {
	if o.span != nil {
		o.span.RecordError(err)
	}
}
