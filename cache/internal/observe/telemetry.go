package observe

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"runtime/pprof"
	"slices"
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

// Options are cache.TelemetryOptions with defaults set.
type Options struct {
	Name           string
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	MissEvents     int
	TraceRate      float64
	Logger         *slog.Logger
	Errors         []ErrorKind
	// Client is the name of the client, if the cache is attached. Owner then asks the cache's owner what it knows of rows that were missed. It is
	// called by one goroutine at a time.
	Client string
	Owner  func(ctx context.Context, table int, rows []int64) (Misses, error)
}

// Telemetry makes the spans, metrics and logs of one cache. Providers may be replaced at run time: each call compares the current provider
// with that of the last call.
type Telemetry struct {
	Log *slog.Logger // adds the cache's name to each record

	opts    Options
	kinds   []ErrorKind
	name    string
	whose   []attribute.KeyValue // of all metrics, and of all spans but a Gather's stages: the cache's name, and client
	client  []attribute.KeyValue // of stages, too: the client's name and process; empty unless the cache is attached
	asking  *asking              // nil unless the cache is attached
	limit   *limit               // of the traces that begin in the cache, nil if there is none
	release func()               // makes the name available to other caches
	timed   bucket               // of the Gathers that record histograms
	set     *read.Set
	sources Sources
	measure func(metric.Meter) (metric.Registration, error) // makes the metrics that are read on collection

	tracing  atomic.Pointer[tracing]
	metering atomic.Pointer[metering]
	mu       struct {
		sync.Mutex
		closed bool
	}
}

// Sources provide what events of misses say about rows. They do not wait for locks.
type Sources interface {
	// Withdrawals appends the last withdrawal of each row of a table to all, the zero value if none is recorded.
	Withdrawals(table int, rows []int64, all []Withdrawal) []Withdrawal
	// TryExplain sets estimates to the policy's estimates of the rows. It returns false if it has none.
	TryExplain(table int, rows []int64, estimates []admission.Estimate) bool
}

// New returns the Telemetry of a cache that is being opened. Before Serve it makes spans and logs, but no metrics.
func New(o Options, set *read.Set) *Telemetry {
	t := &Telemetry{opts: o, kinds: o.Errors, name: o.Name, release: func() {}, set: set, limit: newLimit(o.TraceRate)}
	t.timed.set(timedRate)
	if t.name == "" {
		t.name, t.release = takeName()
	}
	if o.Owner != nil {
		t.client = []attribute.KeyValue{KeyClient.String(o.Client), KeyProcess.Int(os.Getpid())}
		t.asking = newAsking(t)
	}
	t.whose = append([]attribute.KeyValue{KeyCache.String(t.name)}, t.client...)
	t.Log = o.Logger.With(slog.String("cache", t.name))
	// A placeholder stands for the global provider that may be set later.
	if p := t.opts.TracerProvider; p != nil && IsPlaceholder(p) {
		t.opts.TracerProvider = nil
	}
	if p := t.opts.MeterProvider; p != nil && IsPlaceholder(p) {
		t.opts.MeterProvider = nil
	}
	return t
}

// SetSet sets the devices and tables once they are known.
func (t *Telemetry) SetSet(set *read.Set) { t.set = set }

// Serve begins to observe batches. The set must have all tables and devices.
func (t *Telemetry) Serve(sources Sources, measure func(metric.Meter) (metric.Registration, error)) {
	t.sources, t.measure = sources, measure
	t.tracing.Store(nil)
	t.metering.Store(nil) // those made so far, by an error of New, have no gauges
	t.meters()
}

// Whose returns the attributes that all metrics have, and all spans but a Gather's stages, followed by more.
func (t *Telemetry) Whose(more ...attribute.KeyValue) []attribute.KeyValue {
	return slices.Concat(t.whose, more)
}

// Finish ends the spans of batches that have ended. It waits for an owner's answers for a second, and then until the request under way is cancelled.
func (t *Telemetry) Finish() {
	if t.asking != nil {
		t.asking.close()
	}
}

// Labels returns ctx with profiler labels for a goroutine: the cache's name and the task.
func (t *Telemetry) Labels(ctx context.Context, task string) context.Context {
	return pprof.WithLabels(ctx, pprof.Labels(string(KeyCache), t.name, "tensorcache.task", task))
}

// Close unregisters the instruments. It waits for a collection under way, so the caller must not hold a lock that Stats takes.
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

// tracing has the tracer made by one tracer provider.
type tracing struct {
	provider trace.TracerProvider
	same     bool         // the provider's type is comparable, so == tells whether it is still the current one
	tracer   trace.Tracer // nil if the provider does nothing
	// gather has the options of a Gather's span, by table and device.
	gather [][][]trace.SpanStartOption
}

// tracer returns the tracer of the current provider, or nil if that does nothing. It allocates only if the provider has changed.
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
					t.Whose(KeyTable.String(table.Name), KeyDevice.Int(d))...,
				)})
			}
			now.gather = append(now.gather, devices)
		}
	}
	t.tracing.Store(now)
	return now
}

// IsPlaceholder reports whether a provider is OpenTelemetry's global placeholder, which a process has until it sets a provider. What the
// placeholder makes does nothing until then.
func IsPlaceholder(p any) bool {
	t := reflect.TypeOf(p)
	return t.Kind() == reflect.Pointer && strings.HasSuffix(t.Elem().PkgPath(), "/otel/internal/global")
}

// unsampled reports whether the caller has a span that is not sampled. Calls then make no span either.
func unsampled(ctx context.Context) bool {
	s := trace.SpanContextFromContext(ctx)
	return s.IsValid() && !s.IsSampled()
}

// Operation observes a call other than Gather. Its span may be nil.
type Operation struct {
	telemetry *Telemetry
	what      string
	span      trace.Span
}

// Start begins an operation and, if it is sampled, its span. table is the name of the table concerned, or "".
func (t *Telemetry) Start(ctx context.Context, what, table string) (context.Context, Operation) {
	o := Operation{telemetry: t, what: what}
	tr := t.tracer()
	if tr == nil || unsampled(ctx) {
		return ctx, o
	}
	if t.limit != nil && !trace.SpanContextFromContext(ctx).IsValid() && !t.limit.change(what) {
		return ctx, o
	}
	name, attributes := what, t.Whose()
	if table != "" {
		name += " " + table
		attributes = append(attributes, KeyTable.String(table))
	}
	ctx, o.span = tr.tracer.Start(ctx, name, trace.WithAttributes(attributes...))
	return ctx, o
}

// Set adds attributes to the span.
func (o Operation) Set(attributes ...attribute.KeyValue) {
	if o.span != nil {
		o.span.SetAttributes(attributes...)
	}
}

// End ends the span and counts the error, if err is not nil.
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

// Cause returns the operation as the cause of withdrawals.
func (o Operation) Cause() *Cause {
	if o.span == nil || !o.span.SpanContext().IsSampled() {
		return unsampledCauses[o.what]
	}
	return &Cause{o.what, o.span.SpanContext()}
}

// names are the numbers of open caches with default names.
var names struct {
	sync.Mutex
	taken map[int]bool
}

// takeName returns a default name that no other open cache has. release makes it available again.
func takeName() (name string, release func()) {
	names.Lock()
	defer names.Unlock()
	n := 1
	for names.taken[n] {
		n++
	}
	if names.taken == nil {
		names.taken = map[int]bool{}
	}
	names.taken[n] = true
	if name = "cache"; n > 1 {
		name = fmt.Sprint("cache-", n)
	}
	return name, func() {
		names.Lock()
		defer names.Unlock()
		delete(names.taken, n)
	}
}

// Note records an error on the span that does not make the operation fail.
func (o Operation) Note(err error) {
	if o.span != nil {
		o.span.RecordError(err)
	}
}
