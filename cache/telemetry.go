package cache

import (
	"log/slog"
	"math"

	"github.com/tensorcache/tensorcache/cache/internal/observe"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// TelemetryOptions configure traces and metrics by OpenTelemetry, and logs by log/slog: see docs/tracing.md. The zero value uses the
// global providers. Without providers, the cost is negligible.
type TelemetryOptions struct {
	// Name is the value of attribute tensorcache.cache.name, which tells the caches of a process apart. Default: "cache", then "cache-2"
	// and so on for caches that are open at the same time.
	Name string
	// TracerProvider makes the spans. Default: the global provider as of each call, so that it can be set and replaced at run time.
	TracerProvider trace.TracerProvider
	// MeterProvider makes the instruments. Default: the global provider as of each call.
	MeterProvider metric.MeterProvider
	// MissEvents is the most misses of a sampled batch that become events of its span, up to 1024. Default 32. Negative: none.
	MissEvents int
	// TraceRate is the most Gathers a second that begin a trace, and the most Updates and Invalidates. Gathers with misses or errors come first. The
	// others cost neither a span nor an allocation, so that no exporter can slow them down. Calls under a caller's span are not counted. The provider's
	// sampler is asked only about those that TraceRate lets through. Default 0: no limit, the sampler alone decides.
	TraceRate float64
	// HostLink is the rate, in bytes a second, at which a device can read host memory, for the gauge tensorcache.host_link.utilization.
	// Default: the rate that the device reports. If it reports none, there is no such gauge.
	HostLink int64
	// Logger receives records of loading, refresh cycles and failures, none of single batches. Default: none.
	Logger *slog.Logger
}

const (
	defaultMissEvents = 32
	maxMissEvents     = 1024
)

func (o *TelemetryOptions) ensureDefaults() {
	if o.MissEvents == 0 {
		o.MissEvents = defaultMissEvents
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

func (o *TelemetryOptions) validate(invalid func(string, ...any)) {
	if o.MissEvents > maxMissEvents {
		invalid("cache: Telemetry.MissEvents (%d) must be at most %d", o.MissEvents, maxMissEvents)
	}
	if !(o.TraceRate >= 0) || math.IsInf(o.TraceRate, 1) {
		invalid("cache: Telemetry.TraceRate (%v traces a second) must be 0, for no limit, or more", o.TraceRate)
	}
	if o.HostLink < 0 {
		invalid("cache: Telemetry.HostLink (%d B/s) must not be negative", o.HostLink)
	}
}

// observe returns the options as package observe takes them.
func (o *TelemetryOptions) observe() observe.Options {
	return observe.Options{
		Name: o.Name, TracerProvider: o.TracerProvider, MeterProvider: o.MeterProvider, MissEvents: o.MissEvents, TraceRate: o.TraceRate,
		Logger: o.Logger, Errors: errorKinds,
	}
}

// errorKinds are the values of attribute error.type.
var errorKinds = []observe.ErrorKind{
	{Err: ErrClosed, Kind: "closed"}, {Err: ErrOptions, Kind: "options"}, {Err: ErrPolicy, Kind: "policy"}, {Err: ErrBudget, Kind: "budget"},
	{Err: ErrTable, Kind: "table"}, {Err: ErrRows, Kind: "rows"}, {Err: ErrOutput, Kind: "output"}, {Err: ErrDevice, Kind: "device"},
	{Err: ErrOwner, Kind: "owner"}, {Err: ErrHeld, Kind: "held"},
	{Err: ErrCapturing, Kind: "capturing"}, {Err: ErrCorrupt, Kind: "corrupt"},
}
