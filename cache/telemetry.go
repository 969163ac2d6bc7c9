package cache

import (
	"log/slog"

	"github.com/tensorcache/tensorcache/cache/internal/observe"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
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

// observe returns the options as package observe takes them.
func (o *TelemetryOptions) observe() observe.Options {
	return observe.Options{
		Name: o.Name, TracerProvider: o.TracerProvider, MeterProvider: o.MeterProvider, MissEvents: o.MissEvents, Logger: o.Logger,
		Errors: errorKinds,
	}
}

// errorKinds are the values of attribute error.type.
var errorKinds = []observe.ErrorKind{
	{Err: ErrClosed, Kind: "closed"}, {Err: ErrOptions, Kind: "options"}, {Err: ErrPolicy, Kind: "policy"}, {Err: ErrBudget, Kind: "budget"},
	{Err: ErrTable, Kind: "table"}, {Err: ErrRows, Kind: "rows"}, {Err: ErrOutput, Kind: "output"}, {Err: ErrDevice, Kind: "device"},
	{Err: ErrCapturing, Kind: "capturing"}, {Err: ErrCorrupt, Kind: "corrupt"},
}
