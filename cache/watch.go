package cache

import (
	"context"
	"log/slog"
	"runtime/pprof"
	"time"
)

// cycleWatch is the span and the log of one cycle of Refresh.
type cycleWatch struct {
	operation
	cache  *Cache
	begun  time.Time
	before Changes
}

// watchCycle begins a cycle, and has what it withdraws remembered as its own. REQUIRES: the cycle's lock is held until end.
func (c *Cache) watchCycle(ctx context.Context, budget *int64) (context.Context, *cycleWatch) {
	w := &cycleWatch{cache: c, begun: time.Now(), before: c.changes.counts.read()}
	ctx, w.operation = c.telemetry.start(ctx, "refresh", "")
	if budget != nil {
		w.set(keyBudget.Int64(*budget))
	}
	c.refresher.by = w.cause()
	return ctx, w
}

func (w *cycleWatch) end(err error) {
	w.cache.refresher.by = nil
	now := w.cache.changes.counts.read()
	admitted, evicted, bytes := now.AdmittedRows-w.before.AdmittedRows, now.EvictedRows-w.before.EvictedRows, now.RefreshedBytes-w.before.RefreshedBytes
	w.set(
		keyAdmitted.Int64(admitted), keyEvicted.Int64(evicted), keyMoved.Int64(now.MovedRows-w.before.MovedRows),
		keyRefused.Int64(now.RefusedRows-w.before.RefusedRows), keyWritten.Int64(bytes),
	)
	w.operation.end(err)
	log := w.cache.telemetry.opts.Logger
	if err != nil {
		log.Warn("refresh failed", w.cache.logName(), slog.Any("error", err))
		return
	}
	log.Debug("refreshed", w.cache.logName(), slog.Duration("took", time.Since(w.begun)), slog.Int64("admitted", admitted),
		slog.Int64("evicted", evicted), slog.Int64("bytes", bytes))
}

// read returns the counters but those of samples.
func (n *changeCounts) read() Changes {
	return Changes{
		Cycles: n.cycles.Load(), AdmittedRows: n.admitted.Load(), EvictedRows: n.evicted.Load(), MovedRows: n.moved.Load(),
		RefusedRows: n.refused.Load(), RefreshedBytes: n.bytes.Load(), CopiedRows: n.copied.Load(), UpdatedRows: n.updated.Load(),
		InvalidatedRows: n.invalidated.Load(), UpdateWaits: n.waits.Load(), HostBytesWritten: n.hostBytes.Load(),
	}
}

// watchChange begins a call that changes rows of a table.
func (c *Cache) watchChange(ctx context.Context, what string, table int, rows []int64, bytes int) (context.Context, operation) {
	name := ""
	if table >= 0 && table < len(c.tables) {
		name = c.tables[table].name
	}
	ctx, o := c.telemetry.start(ctx, what, name)
	o.set(keyChangedRows.Int(len(rows)), keyChangedBytes.Int(bytes))
	return ctx, o
}

// watchLoad is New's span.
func (c *Cache) watchLoad() (context.Context, operation) {
	return c.telemetry.start(context.Background(), "load", "")
}

// watchTable is the span of one table's loading.
func (c *Cache) watchTable(ctx context.Context, name string) operation {
	_, o := c.telemetry.start(ctx, "load", name)
	return o
}

// describe fills in the span of a table's loading.
func (t *table) describe(o operation) {
	if o.span == nil {
		return
	}
	total, codec := t.tier.Totals(), "none"
	if k := t.tier.Codec(); k != nil {
		codec = k.Name()
	}
	o.set(keyTableRows.Int64(total.Rows), keyTableRaw.Int64(total.RawBytes), keyTableStored.Int64(total.StoredBytes), keyCodec.String(codec))
}

// logChoice says in the log how auto-selection came to a table's codec.
func (c *Cache) logChoice(t *table) {
	if choice := t.tier.Choice(); choice != nil {
		c.telemetry.opts.Logger.Info("codec picked", c.logName(), slog.String("table", t.name), slog.String("codec", choice.Codec),
			slog.String("reason", choice.Reason))
	}
}

// loaded ends New's span and says in the log what was loaded.
func (c *Cache) loaded(o operation, begun time.Time, err error) {
	log := c.telemetry.opts.Logger
	if err != nil {
		o.end(err)
		log.Error("not loaded", c.logName(), slog.Any("error", err))
		return
	}
	rows, cached := int64(0), int64(0)
	for _, t := range c.tables {
		rows += t.tier.Rows()
		cached += t.counts.cached.Load()
	}
	restored, failure := c.snapshots.restored, c.snapshots.err
	o.set(keyTables.Int(len(c.tables)), keyTableRows.Int64(rows), keyCached.Int64(cached), keyRestored.Int64(restored), keyBudget.Int64(c.opts.Budget))
	if failure != nil {
		if o.span != nil {
			o.span.RecordError(failure) // New succeeds without the snapshot
		}
		log.Warn("snapshot not restored", c.logName(), slog.Any("error", failure))
	}
	o.end(nil)
	log.Info("loaded", c.logName(), slog.Duration("took", time.Since(begun)), slog.Int("tables", len(c.tables)), slog.Int64("rows", rows),
		slog.Int64("cached", cached), slog.Int64("restored", restored), slog.Int64("budget", c.opts.Budget), slog.Int("devices", len(c.devices)))
}

func (c *Cache) logName() slog.Attr { return slog.String("cache", c.telemetry.name) }

// labels returns ctx with profiler labels that say what a goroutine of the cache's is for.
func (c *Cache) labels(ctx context.Context, task string) context.Context {
	return pprof.WithLabels(ctx, pprof.Labels(string(keyCache), c.telemetry.name, "tensorcache.task", task))
}
