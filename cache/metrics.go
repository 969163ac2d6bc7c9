package cache

import (
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/observe"
	"github.com/tensorcache/tensorcache/internal/metrics"
	"github.com/tensorcache/tensorcache/slab"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Metrics that follow from several fields of Stats.
type (
	missedRows struct {
		Rows int64 `kind:"counter" metric:"tensorcache.misses" unit:"{row}" help:"Lookups that did not find their row in a slab or the overlay, by reason."`
	}
	tableDerived struct {
		Compression float64 `kind:"gauge" metric:"tensorcache.compression.ratio" unit:"1" help:"Raw bytes ÷ stored bytes of the whole table."`
		Shared      int64   `kind:"counter" metric:"tensorcache.share.batches" unit:"{batch}" help:"Batches whose misses were planned to be shared with the host's processors."`
		Fraction    float64 `kind:"gauge" metric:"tensorcache.share.fraction" unit:"1" help:"Part of a batch's misses that the host's processors gather, the mean of the devices; 0 while sharing does not pay, and for tables whose misses are never shared."`
	}
	pagesDerived struct {
		Read int64 `kind:"counter" metric:"tensorcache.cold.misses" with:"tensorcache.outcome=read" unit:"{row}" help:"Misses that the host tier did not hold, and that were read, or failed."`
	}
	readTime struct {
		Seconds float64 `kind:"gauge" metric:"tensorcache.cold.latency" unit:"s" help:"Mean time of a read since the cache was opened: of pages by store, for which one batch, part of a cycle or prefetch has waited, and of the log of updates."`
	}
	cacheDerived struct {
		HostRead      int64   `kind:"counter" metric:"tensorcache.io" with:"tensorcache.io.path=host_tier,tensorcache.io.direction=read" unit:"By" help:"Bytes moved, by path and direction: host_tier read by misses, host_tier write by updates, slab write by Refresh, output write of rows delivered."`
		Delivered     int64   `kind:"counter" metric:"tensorcache.io" with:"tensorcache.io.path=output,tensorcache.io.direction=write"`
		Fragmentation float64 `kind:"gauge" metric:"tensorcache.slab.fragmentation" unit:"1" help:"Part of the free slab bytes that lies in pieces too short for the longest row."`
		Utilization   float64 `kind:"gauge" metric:"tensorcache.host_link.utilization" unit:"1" help:"Part of the host links' capacity, TelemetryOptions.HostLink, that misses took since the last collection."`
	}
)

// measured are the structs whose fields are metrics, as their tags say.
var measured = []any{
	TableStats{}, missedRows{}, tableDerived{}, cacheDerived{}, Changes{}, Stats{}, BudgetEstimate{}, DeviceStats{},
	ResidentStats{}, ResidentRange{}, TierStats{}, pagesDerived{}, StoreStats{}, readTime{},
}

// measure makes the metrics that are read from Stats when they are collected.
func (c *Cache) measure(m metric.Meter) (metric.Registration, error) {
	return metrics.Register(m, measured, c.observe)
}

// observe tells what is collected of the cache: nothing once it is closed or a device has failed.
func (c *Cache) observe(to metrics.Observe) {
	if c.enter() != nil {
		return
	}
	defer c.leave() // also if a callback of Options panics
	s, err := c.owner.ownStats()
	if err != nil {
		return
	}
	tell := func(of any, with ...attribute.KeyValue) { to(of, c.watch.Whose(with...)...) }
	all := cacheDerived{Fragmentation: min(1, quotient(s.HoleBytes, s.FreeBytes))}
	for i := range s.Tables {
		t := &s.Tables[i]
		t.observe(func(of any, with ...attribute.KeyValue) { tell(of, append(with, observe.KeyTable.String(t.Name))...) })
		all.HostRead += t.HostBytesMoved
		all.Delivered += t.Lookups * int64(t.RowBytes)
	}
	all.Utilization = c.link.use(all.HostRead, c.hostLinks())
	tell(&all)
	tell(&s.Changes)
	tell(&s)
	for i := range s.Devices {
		tell(&s.Devices[i], observe.KeyDevice.Int(i))
	}
	if s.Estimate != nil {
		for i := range s.Estimate.Budgets {
			b := &s.Estimate.Budgets[i]
			tell(b, observe.KeyMultiple.String(strconv.FormatFloat(b.Times, 'g', -1, 64)))
		}
	}
}

func (t *TableStats) observe(tell metrics.Observe) {
	tell(t)
	for r, n := range t.MissesByReason {
		tell(&missedRows{n}, observe.KeyReason.String(slab.Reason(r).String()))
	}
	more := tableDerived{Compression: quotient(t.RawBytes, t.StoredBytes)}
	fraction, tried := 0.0, 0
	for _, m := range t.MissStrategy {
		if more.Shared += m.Shared; m.Tried() {
			tried++
			fraction += m.Fraction
		}
	}
	more.Fraction = fraction / float64(max(1, tried))
	tell(&more)
	if r := t.Resident; r != nil {
		tell(r)
		for i := range r.Ranges {
			tell(&r.Ranges[i], observe.KeyRow.Int64(r.Ranges[i].FirstRow))
		}
	}
	if p := &t.Tiers; p.Paged {
		tell(p)
		tell(&pagesDerived{p.AbsentRows - p.FailedRows})
		for i := range p.Stores {
			s, store := &p.Stores[i], []attribute.KeyValue{observe.KeyTier.String("pages"), observe.KeyStore.String(p.Stores[i].Name)}
			tell(s, store...)
			tell(&readTime{quotient(s.Nanos, s.Reads) / 1e9}, store...)
		}
		tell(&readTime{quotient(p.LogNanos, p.LogReads) / 1e9}, observe.KeyTier.String("log"))
	}
}

// quotient is not observed if the divisor is 0.
func quotient(part, whole int64) float64 {
	if whole == 0 {
		return math.NaN()
	}
	return float64(part) / float64(whole)
}

// hostLinks returns how many bytes a second the devices' links to host memory carry in all, 0 if that is not known.
func (c *Cache) hostLinks() (bytes int64) {
	for _, d := range c.set.Devices {
		link := c.opts.Telemetry.HostLink
		if link == 0 {
			link = d.Device.Info().HostLink
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
}

// use returns the part of the capacity, in bytes a second, that was used since the last call, NaN if that is not known; of calls soon after another,
// what that one returned.
func (l *linkUse) use(bytes, capacity int64) float64 {
	if capacity == 0 {
		return math.NaN()
	}
	l.Lock()
	defer l.Unlock()
	now := time.Now()
	switch took := now.Sub(l.at); {
	case l.at.IsZero():
		l.at, l.bytes, l.share = now, bytes, math.NaN()
	case took >= 100*time.Millisecond:
		l.share = float64(bytes-l.bytes) / took.Seconds() / float64(capacity)
		l.at, l.bytes = now, bytes
	}
	return l.share
}
