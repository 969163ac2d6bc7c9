package cache

import (
	"strconv"
	"sync"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/observe"
	"github.com/tensorcache/tensorcache/slab"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// gauges makes the instruments that are read from Stats when they are collected, and returns what reads them. Their names and units are
// the table of docs/tracing.md.
func (c *Cache) gauges(f *observe.Maker) (read func(metric.Observer)) {
	lookups := f.Counter("tensorcache.lookups", "{row}", "Rows looked up, duplicates included.")
	hits := f.Counter("tensorcache.hits", "{row}", "Lookups that found their row in a slab, by whose, or in the overlay.")
	misses := f.Counter("tensorcache.misses", "{row}", "Lookups that did not, by reason.")
	gathers := f.Counter("tensorcache.gathers", "{batch}", "Gathers that have finished.")
	io := f.Counter("tensorcache.io", "By", "Bytes moved, by path and direction.")
	cycles := f.Counter("tensorcache.refresh.cycles", "{cycle}", "Cycles of Refresh.")
	churn := f.Counter("tensorcache.refresh.rows", "{row}", "Rows that were admitted, evicted, moved or refused.")
	updated := f.Counter("tensorcache.updates", "{row}", "Rows that Update replaced or inserted.")
	invalidated := f.Counter("tensorcache.invalidations", "{row}", "Rows that Invalidate withdrew.")
	waits := f.Counter("tensorcache.update.waits", "{wait}", "Times that Update waited for room.")
	samples := f.Counter("tensorcache.sample.reads", "{sample}", "Samples read from the rings.")
	lost := f.Counter("tensorcache.sample.drops", "{sample}", "Samples overwritten in the rings before they were read.")
	shared := f.Counter("tensorcache.share.batches", "{batch}", "Batches whose misses were planned to be shared with the host's processors.")
	slabs := f.Level("tensorcache.slab.usage", "By", "Bytes of the slots within the budget, used and free.")
	metadata := f.Level("tensorcache.metadata.usage", "By", "Bytes of device memory that say where rows are and how to decode them.")
	scratch := f.Level("tensorcache.scratch.usage", "By", "Bytes of device memory for batches under way.")
	staging := f.Level("tensorcache.staging.usage", "By", "Bytes that Gathers into Go memory and shared misses pass through.")
	host := f.Level("tensorcache.host.usage", "By", "Bytes of the host tiers.")
	overlay := f.Level("tensorcache.overlay.usage", "By", "Bytes of updated rows on their way to the host tier.")
	budget := f.Level("tensorcache.budget.limit", "By", "Bytes that slabs and their metadata may take.")
	rows := f.Level("tensorcache.rows.cached", "{row}", "Rows cached.")
	equal := f.Level("tensorcache.rows.equal", "{row}", "Rows of the table that were found to be stored like others.")
	saved := f.Level("tensorcache.slots.saved", "{slot}", "Cached rows that the slot of an equal row serves.")
	tableRows := f.Level("tensorcache.table.rows", "{row}", "Rows of the table.")
	compression := f.Gauge("tensorcache.compression.ratio", "1", "Raw bytes ÷ stored bytes of the whole table.")
	fragmentation := f.Gauge("tensorcache.slab.fragmentation", "1", "Part of the free slab bytes that lies in pieces too short for the longest row.")
	age := f.Gauge("tensorcache.rows.age", "s", "Mean time since the cached rows were admitted.")
	estimate := f.Gauge("tensorcache.estimated.hit_ratio", "1", "What the hit ratio would be at so many times the budget, were the cache filled by LRU.")
	utilization := f.Gauge("tensorcache.host_link.utilization", "1", "Part of the host links' capacity that misses took since the last collection.")

	below, resident := c.belowGauges(f), residentGauges(f)
	with := func(more ...attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(c.watch.Whose(more...)...))
	}
	path := func(path, direction string) metric.MeasurementOption {
		return with(observe.KeyPath.String(path), observe.KeyDirection.String(direction))
	}
	return func(o metric.Observer) {
		if c.enter() != nil { // closed
			return
		}
		s, err := c.owner.ownStats()
		c.leave()
		if err != nil { // a device has failed
			return
		}
		moved, delivered := int64(0), int64(0)
		for i := range s.Tables {
			ts := &s.Tables[i]
			table := observe.KeyTable.String(ts.Name)
			of := with(table)
			o.ObserveInt64(lookups, ts.Lookups, of)
			o.ObserveInt64(hits, ts.LocalHits, with(table, observe.KeySource.String("own")))
			o.ObserveInt64(hits, ts.PeerHits, with(table, observe.KeySource.String("peer")))
			o.ObserveInt64(gathers, ts.Gathers, of)
			o.ObserveInt64(rows, ts.CachedRows, of)
			o.ObserveInt64(equal, ts.EqualRows, of)
			o.ObserveInt64(saved, ts.SlotsSaved, of)
			o.ObserveInt64(tableRows, ts.Rows, of)
			for r, n := range ts.MissesByReason {
				o.ObserveInt64(misses, n, with(table, observe.KeyReason.String(slab.Reason(r).String())))
			}
			if ts.StoredBytes > 0 {
				o.ObserveFloat64(compression, float64(ts.RawBytes)/float64(ts.StoredBytes), of)
			}
			batches := int64(0)
			for _, m := range ts.MissStrategy {
				batches += m.Shared
			}
			o.ObserveInt64(shared, batches, of)
			ofTable := func(more ...attribute.KeyValue) metric.MeasurementOption { return with(append(more, table)...) }
			below(o, ts, ofTable)
			resident(o, ts, ofTable)
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
			o.ObserveInt64(churn, rows, with(observe.KeyAction.String(action)))
		}
		o.ObserveInt64(updated, n.UpdatedRows, all)
		o.ObserveInt64(invalidated, n.InvalidatedRows, all)
		o.ObserveInt64(waits, n.UpdateWaits, all)
		o.ObserveInt64(samples, n.SampledAccesses, all)
		o.ObserveInt64(lost, n.LostAccesses, all)
		for i, d := range s.Devices {
			o.ObserveInt64(slabs, d.PayloadBytes, with(observe.KeyDevice.Int(i), observe.KeyState.String("used")))
			o.ObserveInt64(slabs, d.FreeBytes, with(observe.KeyDevice.Int(i), observe.KeyState.String("free")))
		}
		for kind, bytes := range map[string]int64{"map": s.MetadataBytes, "codec": s.CodecBytes, "index": s.IndexBytes} {
			o.ObserveInt64(metadata, bytes, with(observe.KeyKind.String(kind)))
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
				o.ObserveFloat64(estimate, b.HitRate, with(observe.KeyMultiple.String(strconv.FormatFloat(b.Times, 'g', -1, 64))))
			}
		}
		if share, ok := c.link.use(moved, c.hostLinks()); ok {
			o.ObserveFloat64(utilization, share, all)
		}
	}
}

// belowGauges makes the instruments of what lies below the host tiers, of tables of pages.
func (c *Cache) belowGauges(f *observe.Maker) func(metric.Observer, *TableStats, func(...attribute.KeyValue) metric.MeasurementOption) {
	absent := f.Counter("tensorcache.cold.misses", "{row}", "Misses that the host tier did not hold, by whether they could be read.")
	rows := f.Counter("tensorcache.cold.rows", "{row}", "Rows read from below the host tier, by where they were found.")
	reads := f.Counter("tensorcache.cold.reads", "{read}", "Reads from below the host tier: of batches, cycles and prefetches.")
	pages := f.Counter("tensorcache.cold.pages", "{page}", "Pages read, by store.")
	bytes := f.Counter("tensorcache.cold.bytes", "By", "Bytes of the pages read, by store.")
	latency := f.Gauge("tensorcache.cold.latency", "s", "Mean time of a read from below the host tier, since the cache was opened, by tier, of pages by store.")
	failures := f.Counter("tensorcache.cold.failed_pages", "{page}", "Pages that a store did not deliver, or had damaged.")
	prefetched := f.Counter("tensorcache.prefetch.rows", "{row}", "Rows that Prefetch has read, that left the host tier unread, and that found no room.")
	held := f.Level("tensorcache.host.rows", "{row}", "Rows in the host tier.")
	moved := f.Counter("tensorcache.host.moves", "{row}", "Rows that cycles have moved into the host tier and out of it.")
	return func(o metric.Observer, ts *TableStats, with func(...attribute.KeyValue) metric.MeasurementOption) {
		t := &ts.Tiers
		if !t.Paged {
			return
		}
		of := with()
		o.ObserveInt64(absent, t.AbsentRows-t.FailedRows, with(observe.KeyOutcome.String("read")))
		o.ObserveInt64(absent, t.FailedRows, with(observe.KeyOutcome.String("failed")))
		for tier, n := range map[string]int64{"pages": t.RowsRead, "log": t.LogRows, "prefetch": t.FlightRows} {
			o.ObserveInt64(rows, n, with(observe.KeyTier.String(tier)))
		}
		o.ObserveInt64(reads, t.Reads, of)
		for _, s := range t.Stores {
			store := with(observe.KeyTier.String("pages"), observe.KeyStore.String(s.Name))
			o.ObserveInt64(pages, s.PagesRead, store)
			o.ObserveInt64(bytes, s.BytesRead, store)
			o.ObserveInt64(failures, s.FailedPages, store)
			if s.Reads > 0 {
				o.ObserveFloat64(latency, float64(s.Nanos)/float64(s.Reads)/1e9, store)
			}
		}
		if t.LogReads > 0 {
			o.ObserveFloat64(latency, float64(t.LogNanos)/float64(t.LogReads)/1e9, with(observe.KeyTier.String("log")))
		}
		for outcome, n := range map[string]int64{"read": t.PrefetchedRows, "used": t.UsedRows, "unused": t.UnusedRows, "dropped": t.DroppedRows} {
			o.ObserveInt64(prefetched, n, with(observe.KeyOutcome.String(outcome)))
		}
		o.ObserveInt64(held, t.HostRows, of)
		o.ObserveInt64(moved, t.PromotedRows, with(observe.KeyDirection.String("in")))
		o.ObserveInt64(moved, t.DemotedRows, with(observe.KeyDirection.String("out")))
	}
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
