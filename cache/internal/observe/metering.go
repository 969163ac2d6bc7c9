package observe

import (
	"context"
	"errors"
	"reflect"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
)

// metering has the instruments made by one meter provider. Most counters and all gauges are read from Stats when they are collected.
// Histograms and the counter of errors are recorded by calls.
type metering struct {
	provider metric.MeterProvider
	same     bool // the provider's type is comparable, so == tells whether it is still the current one
	live     bool // calls record histograms and errors
	callback metric.Registration

	gatherDuration, stageDuration metric.Float64Histogram
	gatherRows                    metric.Int64Histogram
	errors                        metric.Int64Counter
	// The options of gatherDuration and gatherRows, by table and device, and of stageDuration, by table and stage.
	gather [][][]metric.RecordOption
	stage  []map[string][]metric.RecordOption
}

func (m *metering) unregister() {
	if m.callback != nil {
		m.callback.Unregister()
	}
}

// meters returns the instruments to record, or nil if the provider does nothing. It allocates only if the provider has changed.
func (t *Telemetry) meters() *metering {
	p := t.opts.MeterProvider
	if p == nil {
		p = otel.GetMeterProvider()
	}
	have := t.metering.Load()
	if have == nil || !have.same || have.provider != p {
		have = t.followMeter(p)
	}
	if !have.live {
		return nil
	}
	return have
}

func (t *Telemetry) followMeter(p metric.MeterProvider) *metering {
	t.mu.Lock()
	defer t.mu.Unlock()
	same := reflect.ValueOf(p).Comparable()
	have := t.metering.Load()
	if have != nil && have.same && same && have.provider == p { // another call was faster
		return have
	}
	now := &metering{provider: p, same: same}
	if _, noop := p.(metricnoop.MeterProvider); noop || t.mu.closed {
		t.replaceMeterLocked(have, now)
		return now
	}
	// Instruments are made for the global placeholder too. It passes them to the provider that is set later, so that a cache that is
	// idle at that time has gauges.
	if err := t.instruments(now); err != nil {
		otel.Handle(err)
	} else {
		now.live = !IsPlaceholder(p)
	}
	t.replaceMeterLocked(have, now)
	return now
}

// replaceMeterLocked replaces the instruments of a provider. REQUIRES: t.mu is locked.
func (t *Telemetry) replaceMeterLocked(old, now *metering) {
	if old != nil {
		old.unregister()
	}
	if t.mu.closed {
		now.unregister()
		return
	}
	t.metering.Store(now)
}

// seconds are the bucket bounds of the histograms of times, from 5 µs to 10 s.
var seconds = []float64{
	5e-6, 10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1, 2.5, 5, 10,
}

// instruments makes and registers the instruments.
func (t *Telemetry) instruments(m *metering) error {
	meter := m.provider.Meter(Scope)
	var errs [4]error
	histogram := func(name, what string) (h metric.Float64Histogram, err error) {
		return meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what), metric.WithExplicitBucketBoundaries(seconds...))
	}
	m.gatherDuration, errs[0] = histogram("tensorcache.gather.duration", "Time of a Gather, from the call to its output being written.")
	m.stageDuration, errs[1] = histogram("tensorcache.stage.duration", "Time of a stage of a sampled batch on the device's timeline.")
	m.gatherRows, errs[2] = meter.Int64Histogram("tensorcache.gather.rows", metric.WithUnit("{row}"),
		metric.WithDescription("Rows of a Gather."), metric.WithExplicitBucketBoundaries(1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7))
	m.errors, errs[3] = meter.Int64Counter("tensorcache.errors", metric.WithUnit("{error}"), metric.WithDescription("Calls that failed."))
	err := errors.Join(errs[:]...)
	if err != nil || t.measure == nil { // New has yet to complete: errors are all that can be counted
		return err
	}
	for _, table := range t.set.Tables {
		with := func(more attribute.KeyValue) []metric.RecordOption {
			return []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(t.Whose(KeyTable.String(table.Name), more)...))}
		}
		var devices [][]metric.RecordOption
		for d := range t.set.Devices {
			devices = append(devices, with(KeyDevice.Int(d)))
		}
		m.gather = append(m.gather, devices)
		stages := map[string][]metric.RecordOption{}
		for _, stage := range []string{stageLookup, stageHits, stageMisses} {
			stages[stage] = with(KeyStage.String(stage))
		}
		m.stage = append(m.stage, stages)
	}
	m.callback, err = t.measure(meter)
	return err
}

// Failed counts a call that returned an error.
func (t *Telemetry) Failed(ctx context.Context, what string, err error) {
	if m := t.meters(); m != nil {
		m.errors.Add(ctx, 1, metric.WithAttributes(t.Whose(KeyOperation.String(what), KeyError.String(t.errorKind(err)))...))
	}
}

// Refused counts a Gather that failed before it began, and returns its error.
func (t *Telemetry) Refused(err error) error {
	t.Failed(context.Background(), "gather", err)
	return err
}
