package cache

import (
	"context"
	"errors"
	"reflect"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"

	"github.com/tensorcache/tensorcache/slab"
)

// metering is the instruments that a meter provider made. Counters and gauges are read from Stats when they are collected;
// histograms, and errors, are recorded by calls.
type metering struct {
	provider metric.MeterProvider
	same     bool // providers can be compared with it
	live     bool // histograms are to be recorded
	callback metric.Registration

	gatherDuration, stageDuration metric.Float64Histogram
	gatherRows                    metric.Int64Histogram
	errors                        metric.Int64Counter
	// Options of gatherDuration and gatherRows by table and device, and of stageDuration by table and stage.
	gather [][][]metric.RecordOption
	stage  []map[string][]metric.RecordOption
}

func (m *metering) unregister() {
	if m.callback != nil {
		m.callback.Unregister()
	}
}

// meters returns the instruments to record, nil when nothing hears of them. It allocates nothing unless the provider is a new one.
func (t *telemetry) meters() *metering {
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

func (t *telemetry) followMeter(p metric.MeterProvider) *metering {
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
	// A placeholder's instruments serve too: a cache that is idle when the provider is set has gauges all the same.
	if err := t.instruments(now); err != nil {
		otel.Handle(err)
	} else {
		now.live = !isPlaceholder(p)
	}
	t.replaceMeterLocked(have, now)
	return now
}

// replaceMeterLocked replaces the instruments. REQUIRES: t.mu is locked.
func (t *telemetry) replaceMeterLocked(old, now *metering) {
	if old != nil {
		old.unregister()
	}
	if t.mu.closed {
		now.unregister()
		return
	}
	t.metering.Store(now)
}

// seconds are the bounds of the histograms' buckets, from 5 µs on.
var seconds = []float64{
	5e-6, 10e-6, 25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1, 2.5, 5, 10,
}

// instruments makes and registers the instruments. Their names and units are the table of docs/tracing.md.
func (t *telemetry) instruments(m *metering) error {
	meter := m.provider.Meter(scope)
	f := &maker{meter: meter}
	f.histogram(&m.gatherDuration, "tensorcache.gather.duration", "s", "Time of a Gather, from the call to its output being written.")
	f.histogram(&m.stageDuration, "tensorcache.stage.duration", "s", "Time of a stage of a sampled batch on the device's timeline.")
	var err error
	m.gatherRows, err = meter.Int64Histogram("tensorcache.gather.rows", metric.WithUnit("{row}"),
		metric.WithDescription("Rows of a Gather."), metric.WithExplicitBucketBoundaries(1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7))
	f.note(err)
	m.errors, err = meter.Int64Counter("tensorcache.errors", metric.WithUnit("{error}"), metric.WithDescription("Calls that failed."))
	f.note(err)
	read := t.observables(f)
	if f.err != nil {
		return f.err
	}
	name := keyCache.String(t.name)
	for _, table := range t.cache.tables {
		with := func(more attribute.KeyValue) []metric.RecordOption {
			return []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(name, keyTable.String(table.name), more))}
		}
		var devices [][]metric.RecordOption
		for d := range t.cache.devices {
			devices = append(devices, with(keyDevice.Int(d)))
		}
		m.gather = append(m.gather, devices)
		stages := map[string][]metric.RecordOption{}
		for _, stage := range []string{stageLookup, stageHits, stageMisses} {
			stages[stage] = with(keyStage.String(stage))
		}
		m.stage = append(m.stage, stages)
	}
	m.callback, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s, err := t.cache.Stats()
		if err != nil { // closed, or a device has failed
			return nil
		}
		read(o, &s)
		return nil
	}, f.observed...)
	return err
}

// maker makes instruments and keeps what went wrong.
type maker struct {
	meter    metric.Meter
	observed []metric.Observable
	err      error
}

func (f *maker) note(err error) { f.err = errors.Join(f.err, err) }

func (f *maker) histogram(h *metric.Float64Histogram, name, unit, what string) {
	var err error
	*h, err = f.meter.Float64Histogram(name, metric.WithUnit(unit), metric.WithDescription(what), metric.WithExplicitBucketBoundaries(seconds...))
	f.note(err)
}

func (f *maker) counter(name, unit, what string) metric.Int64ObservableCounter {
	i, err := f.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(what))
	f.note(err)
	f.observed = append(f.observed, i)
	return i
}

// level makes a gauge that may be summed over tables, kinds and caches.
func (f *maker) level(name, unit, what string) metric.Int64ObservableUpDownCounter {
	i, err := f.meter.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(what))
	f.note(err)
	f.observed = append(f.observed, i)
	return i
}

func (f *maker) gauge(name, unit, what string) metric.Float64ObservableGauge {
	i, err := f.meter.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(what))
	f.note(err)
	f.observed = append(f.observed, i)
	return i
}

// observables makes the instruments that are read from Stats, and returns what reads them.
func (t *telemetry) observables(f *maker) (read func(metric.Observer, *Stats)) {
	lookups := f.counter("tensorcache.lookups", "{row}", "Rows looked up, duplicates included.")
	hits := f.counter("tensorcache.hits", "{row}", "Lookups that found their row in a slab, by whose, or in the overlay.")
	misses := f.counter("tensorcache.misses", "{row}", "Lookups that did not, by reason.")
	gathers := f.counter("tensorcache.gathers", "{batch}", "Gathers that have finished.")
	io := f.counter("tensorcache.io", "By", "Bytes moved, by path and direction.")
	cycles := f.counter("tensorcache.refresh.cycles", "{cycle}", "Cycles of Refresh.")
	churn := f.counter("tensorcache.refresh.rows", "{row}", "Rows that were admitted, evicted, moved or refused.")
	updated := f.counter("tensorcache.updates", "{row}", "Rows that Update replaced or inserted.")
	invalidated := f.counter("tensorcache.invalidations", "{row}", "Rows that Invalidate withdrew.")
	waits := f.counter("tensorcache.update.waits", "{wait}", "Times that Update waited for room.")
	samples := f.counter("tensorcache.sample.reads", "{sample}", "Samples read from the rings.")
	lost := f.counter("tensorcache.sample.drops", "{sample}", "Samples overwritten in the rings before they were read.")
	shared := f.counter("tensorcache.share.batches", "{batch}", "Batches whose misses were planned to be shared with the host's processors.")
	slabs := f.level("tensorcache.slab.usage", "By", "Bytes of the slots within the budget, used and free.")
	metadata := f.level("tensorcache.metadata.usage", "By", "Bytes of device memory that say where rows are and how to decode them.")
	scratch := f.level("tensorcache.scratch.usage", "By", "Bytes of device memory for batches under way.")
	staging := f.level("tensorcache.staging.usage", "By", "Bytes that Gathers into Go memory and shared misses pass through.")
	host := f.level("tensorcache.host.usage", "By", "Bytes of the host tiers.")
	overlay := f.level("tensorcache.overlay.usage", "By", "Bytes of updated rows on their way to the host tier.")
	budget := f.level("tensorcache.budget.limit", "By", "Bytes that slabs and their metadata may take.")
	rows := f.level("tensorcache.rows.cached", "{row}", "Rows cached.")
	tableRows := f.level("tensorcache.table.rows", "{row}", "Rows of the table.")
	compression := f.gauge("tensorcache.compression.ratio", "1", "Raw bytes ÷ stored bytes of the whole table.")
	fragmentation := f.gauge("tensorcache.slab.fragmentation", "1", "Part of the free slab bytes that lies in pieces too short for the longest row.")
	age := f.gauge("tensorcache.rows.age", "s", "Mean time since the cached rows were admitted.")
	estimate := f.gauge("tensorcache.estimated.hit_ratio", "1", "What the hit ratio would be at so many times the budget, were the cache filled by LRU.")
	utilization := f.gauge("tensorcache.host_link.utilization", "1", "Part of the host links' capacity that misses took since the last collection.")

	name := keyCache.String(t.name)
	with := func(more ...attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(append(more, name)...))
	}
	path := func(path, direction string) metric.MeasurementOption {
		return with(keyPath.String(path), keyDirection.String(direction))
	}
	return func(o metric.Observer, s *Stats) {
		moved, delivered := int64(0), int64(0)
		for i := range s.Tables {
			ts := &s.Tables[i]
			table := keyTable.String(ts.Name)
			of := with(table)
			o.ObserveInt64(lookups, ts.Lookups, of)
			o.ObserveInt64(hits, ts.LocalHits, with(table, keySource.String("own")))
			o.ObserveInt64(hits, ts.PeerHits, with(table, keySource.String("peer")))
			o.ObserveInt64(gathers, ts.Gathers, of)
			o.ObserveInt64(rows, ts.CachedRows, of)
			o.ObserveInt64(tableRows, ts.Rows, of)
			for r, n := range ts.MissesByReason {
				o.ObserveInt64(misses, n, with(table, keyReason.String(slab.Reason(r).String())))
			}
			if ts.StoredBytes > 0 {
				o.ObserveFloat64(compression, float64(ts.RawBytes)/float64(ts.StoredBytes), of)
			}
			batches := int64(0)
			for _, m := range ts.MissStrategy {
				batches += m.Shared
			}
			o.ObserveInt64(shared, batches, of)
			moved += ts.HostBytesMoved
			delivered += ts.Lookups * int64(ts.RowBytes)
		}
		all := with()
		n := &s.Changes
		o.ObserveInt64(io, moved, path("host_tier", "read"))
		o.ObserveInt64(io, n.HostBytesWritten, path("host_tier", "write"))
		o.ObserveInt64(io, n.RefreshedBytes, path("slab", "write"))
		o.ObserveInt64(io, delivered, path("output", "write"))
		o.ObserveInt64(cycles, n.Cycles, all)
		for action, rows := range map[string]int64{"admitted": n.AdmittedRows, "evicted": n.EvictedRows, "moved": n.MovedRows, "refused": n.RefusedRows} {
			o.ObserveInt64(churn, rows, with(keyAction.String(action)))
		}
		o.ObserveInt64(updated, n.UpdatedRows, all)
		o.ObserveInt64(invalidated, n.InvalidatedRows, all)
		o.ObserveInt64(waits, n.UpdateWaits, all)
		o.ObserveInt64(samples, n.SampledAccesses, all)
		o.ObserveInt64(lost, n.LostAccesses, all)
		for i, d := range s.Devices {
			o.ObserveInt64(slabs, d.PayloadBytes, with(keyDevice.Int(i), keyState.String("used")))
			o.ObserveInt64(slabs, d.FreeBytes, with(keyDevice.Int(i), keyState.String("free")))
		}
		for kind, bytes := range map[string]int64{"map": s.MetadataBytes, "codec": s.CodecBytes, "index": s.IndexBytes} {
			o.ObserveInt64(metadata, bytes, with(keyKind.String(kind)))
		}
		o.ObserveInt64(scratch, s.ScratchBytes, all)
		o.ObserveInt64(staging, s.StagingBytes, all)
		o.ObserveInt64(host, s.HostBytes, all)
		o.ObserveInt64(overlay, s.OverlayBytes, all)
		o.ObserveInt64(budget, s.BudgetBytes, all)
		o.ObserveFloat64(age, s.AdmittedAge.Seconds(), all)
		if s.FreeBytes > 0 {
			o.ObserveFloat64(fragmentation, min(1, float64(s.HoleBytes)/float64(s.FreeBytes)), all)
		}
		if s.Estimate != nil {
			for _, b := range s.Estimate.Budgets {
				o.ObserveFloat64(estimate, b.HitRate, with(keyMultiple.String(strconv.FormatFloat(b.Times, 'g', -1, 64))))
			}
		}
		if share, ok := t.link.use(moved, t.hostLinks()); ok {
			o.ObserveFloat64(utilization, share, all)
		}
	}
}

// failed counts a call that returned an error.
func (t *telemetry) failed(ctx context.Context, what string, err error) {
	if m := t.meters(); m != nil {
		m.errors.Add(ctx, 1, metric.WithAttributes(keyCache.String(t.name), keyOperation.String(what), keyError.String(errorKind(err))))
	}
}

// refused counts a Gather that did not get into the cache, and returns its error.
func (t *telemetry) refused(err error) error {
	t.failed(context.Background(), "gather", err)
	return err
}

// hostLinks returns how many bytes a second the devices' links to host memory carry in all, 0 if that is not known.
func (t *telemetry) hostLinks() (bytes int64) {
	for _, d := range t.cache.devices {
		link := t.opts.HostLink
		if link == 0 {
			link = d.device.Info().HostLink
		}
		if link == 0 {
			return 0
		}
		bytes += link
	}
	return bytes
}

// linkUse turns a count of bytes into how busy a link was.
type linkUse struct {
	sync.Mutex
	at    time.Time
	bytes int64
	share float64
	known bool
}

// use returns the part of the capacity, in bytes a second, that was used since the last call; of calls soon after another, what
// that one returned.
func (l *linkUse) use(bytes, capacity int64) (share float64, ok bool) {
	if capacity == 0 {
		return 0, false
	}
	l.Lock()
	defer l.Unlock()
	now := time.Now()
	took := now.Sub(l.at)
	if l.at.IsZero() || took >= 100*time.Millisecond {
		if !l.at.IsZero() {
			l.share, l.known = float64(bytes-l.bytes)/took.Seconds()/float64(capacity), true
		}
		l.at, l.bytes = now, bytes
	}
	return l.share, l.known
}
