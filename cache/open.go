package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/cache/internal/change"
	"github.com/tensorcache/tensorcache/cache/internal/fill"
	"github.com/tensorcache/tensorcache/cache/internal/learn"
	"github.com/tensorcache/tensorcache/cache/internal/observe"
	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/lookups"
	"github.com/tensorcache/tensorcache/internal/snapshot"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/transfer"
)

// openDevices opens the devices and creates the learner, the writer and the store around them.
func (c *Cache) openDevices() error {
	devices, err := c.backend()
	if err != nil {
		return err
	}
	o := &c.opts
	sampling, hitWeight := read.Sampling{Seed: o.Seed, Accesses: o.Refresh.Accesses, Keys: o.Refresh.Keys}, 1.0
	if _, ok := o.Admission.Policy.(admission.Weigher); ok && o.Refresh.Misses > o.Refresh.Accesses {
		sampling.Misses, hitWeight = o.Refresh.Misses, o.Refresh.Misses/o.Refresh.Accesses
	}
	c.set, c.sampling = read.NewSet(devices, sampling, c.tuning.Tuning), sampling
	if c.set.Shared = o.Shared; o.Shared {
		for _, d := range devices {
			if _, err := device.SharerOf(d); err != nil {
				return fmt.Errorf("cache: Options.Shared: %w", err)
			}
		}
	}
	c.watch.SetSet(c.set)
	if o.Capture != nil {
		c.capture = &capture{cache: c, call: o.Capture}
	}
	lo := learn.Options{Policy: o.Admission.Policy, Set: c.set, OnKeys: o.Refresh.OnKeys, HitWeight: hitWeight}
	if c.capture != nil {
		lo.Capture = c.capture
	}
	c.learner = learn.New(lo)
	c.writer = change.New(c.set, c.learner, c.watch, change.Options{
		Budget: o.Budget, Interval: o.Refresh.Interval, MaxChurn: o.Refresh.MaxChurn, MaxBytes: o.Refresh.MaxBytes, Closed: ErrClosed,
		Inclusive: o.Host.Inclusive,
	})
	c.store = &place.Store{Set: c.set, Link: o.Link, Hot: place.NewHot(place.HotOptions{
		Mode: string(o.Devices.Placement), Rates: o.Devices.Rates, Observed: c.learner.Observed.Load, Cached: c.writer.Cached,
	}, len(devices))}
	return nil
}

// backend opens the devices. If BackendAuto chooses the host backend, it logs the reason.
func (c *Cache) backend() ([]device.Device, error) {
	o := &c.opts
	var why error
	if o.Devices.Backend == BackendAuto {
		why = o.fitsGPUs()
	}
	if o.Devices.Backend == BackendCUDA || o.Devices.Backend == BackendAuto && why == nil {
		devices, err := cuda.OpenGPUs(o.gpus())
		if o.Devices.Backend == BackendCUDA || !errors.Is(err, cuda.ErrUnsupported) {
			return devices, err
		}
		why = err
	}
	if o.Devices.Backend == BackendAuto {
		c.watch.Log.Info("host backend taken", slog.Any("reason", why))
	}
	return c.tuning.openHost(o.Devices.Count, o.Host.Workers), nil
}

// chooseNodes chooses the memory nodes of the host tier.
func (c *Cache) chooseNodes() error {
	nodes, problem := place.ChooseNodes(c.tuning.sysRoot, c.set.Devices, c.opts.Host.Nodes, c.watch.Log)
	if problem != "" {
		return badOption("%s", problem)
	}
	c.store.Nodes = nodes
	return nil
}

// codecOf returns the name of a table's codec.
func (c *Cache) codecOf(t Table) Codec { return cmp.Or(t.codec, c.opts.Codec) }

// loadTables reads, encodes and stores every table in the host tier.
func (c *Cache) loadTables(ctx context.Context, tables []Table) error {
	var ahead []lookups.Batch // read before the tables, to predict hit ratios for CodecAuto, and which rows lie in pages
	budget, raw := 0.0, 0.0
	for _, b := range c.opts.budgets() {
		budget += float64(b)
	}
	for _, t := range tables {
		raw += tableBytes(&t)
	}
	if c.weighsTiers(tables) || slices.ContainsFunc(tables, func(t Table) bool { return c.codecOf(t) == CodecAuto }) {
		ahead, c.opts.Admission.Training, c.stopTraining = lookups.ReadAhead(c.opts.Admission.Training, lookups.AheadLookups(raw))
	}
	tiers := c.newTierCosts(ctx, tables, ahead, budget, raw)
	memory, err := c.memoryOf(tables, tiers)
	if err != nil {
		return err
	}
	if len(ahead) > 0 { // demands are counted while tables are read, which takes about as long
		var counting sync.WaitGroup
		loading, cancel := context.WithCancel(ctx)
		counting.Go(func() {
			for _, demand := range tiers.demands {
				if loading.Err() == nil {
					demand()
				}
			}
		})
		defer counting.Wait()
		defer cancel()
	}
	var loaded []*read.Table
	defer func() { c.set.SetTables(loaded) }()
	for i, t := range tables {
		if t.used.Swap(true) {
			return fmt.Errorf("cache: table %s: must not be given to New twice", t.name)
		}
		c.taken = append(c.taken, t.used)
		// The table's share of all budgets, in proportion to its raw bytes.
		share := budget * tableBytes(&t) / raw
		cost := admission.GPUCost(t.RowBytes(), c.opts.Link)
		terms := registry.Terms{
			Budget: int64(min(maxBudget, share)), Devices: len(c.set.Devices), Link: c.opts.Link, Saved: cost.Saved,
			Demand: func() (float64, []registry.Drawn) { d := tiers.demands[i](); return d.Batch, d.Drawn },
		}
		t.kind.terms(&t, &terms)
		_, span := c.watch.Start(ctx, "load", t.name)
		one, err := t.kind.load(ctx, c, loading{number: i, table: &t, terms: terms, memory: memory[i]})
		if err != nil {
			err = fmt.Errorf("cache: table %s: %w", t.name, err)
			span.End(err)
			return err
		}
		cost.Cold = c.coldCost(one, tiers.demands[i](), tiers.slabs[i], tiers.cold[i])
		loaded, c.kinds = append(loaded, one), append(c.kinds, t.kind)
		c.store.Costs = append(c.store.Costs, cost)
		total := one.Tier.Totals()
		span.Set(observe.KeyTableRows.Int64(total.Rows), observe.KeyTableRaw.Int64(total.RawBytes), observe.KeyTableStored.Int64(total.StoredBytes),
			observe.KeyCodec.String(codecName(one)))
		span.End(nil)
	}
	if h := c.hostMemory(loaded); h.Why != "" && !c.store.Nodes.Refused {
		c.watch.Log.Info("host memory nodes chosen", slog.Any("nodes", h.Nodes), slog.Any("held", h.Held), slog.String("reason", h.Why))
	}
	return nil
}

// tableBytes returns the raw bytes of a table that has all the rows that it can.
func tableBytes(t *Table) float64 {
	return max(float64(t.Rows()), float64(t.capacity)) * float64(t.RowBytes())
}

// measuring returns how CodecAuto measures the first device, or nil if Options.Link says what to choose for.
func (c *Cache) measuring() *transfer.MeasureOptions {
	if c.opts.Link != 0 {
		return nil
	}
	m := &transfer.MeasureOptions{Reading: read.ReadingOf}
	if o := c.shareOptions(c.set.Devices[0]); c.opts.Host.Threads >= 0 {
		m.Share = &o
	}
	return m
}

// codecName returns the name of a table's codec, "none" if all rows are raw.
func codecName(t *read.Table) string {
	if k := t.Tier.Codec(); k != nil {
		return k.Name()
	}
	return registry.None
}

// fill fills the slabs and opens the writer.
func (c *Cache) fill(ctx context.Context) error {
	o := &c.opts
	c.state.settle()
	filled, err := fill.Fill(c.store, fill.Options{
		Context: ctx, Learner: c.learner, Log: c.watch.Log, Budgets: o.budgets(), Workers: o.Host.Workers, OneBudget: len(o.Budgets) == 0, Taken: c.state.anyTaken(), Entries: 2 * c.state.overlayRows(),
		Overlay: max(o.Host.Overlay, c.state.overlayBytes()), Policy: c.policyMemory(), Training: o.Admission.Training,
		Cold: o.Admission.Cold, Inclusive: o.Host.Inclusive, Fixed: !o.Admission.Cold && o.Refresh.Interval == 0 && o.Refresh.Accesses == 0, Restored: c.keysToAdmit(),
	})
	o.Admission.Training = nil
	if err = cmp.Or(err, ctx.Err()); err != nil {
		return err
	}
	if err := c.openRings(); err != nil {
		return err
	}
	if err := c.writer.Open(c.store, filled.Differing); err != nil {
		return err
	}
	for _, key := range filled.Restored {
		if c.writer.Find(key).Valid() {
			c.restored++
		}
	}
	return nil
}

// until returns batches of training up to the end of a context.
func until(ctx context.Context, t admission.Training) admission.Training {
	return func(yield func(int, []int64) bool) {
		for table, rows := range t {
			if ctx.Err() != nil || !yield(table, rows) {
				return
			}
		}
	}
}

// keysToAdmit returns the keys to admit first. Of a cache that was taken over the writer admits them, in the background.
func (c *Cache) keysToAdmit() []uint64 {
	if c.state.anyTaken() {
		return nil
	}
	return c.readSnapshot()
}

// readSnapshot returns the keys of the snapshot to restore. If it cannot be read, it sets restoredErr and returns none.
func (c *Cache) readSnapshot() []uint64 {
	path := c.opts.Admission.Restore
	if path == "" {
		return nil
	}
	keys, err := snapshot.Read(path, change.SnapshotTables(c.set.Tables))
	if err != nil {
		c.restoredErr = fmt.Errorf("cache: snapshot: %w", err)
	}
	return keys
}

// openRings creates the rings to which batches append samples.
func (c *Cache) openRings() (err error) {
	o := &c.opts.Refresh
	if o.Accesses == 0 && o.Keys == 0 {
		return nil
	}
	if o.Keys > 0 {
		if err := c.learner.EstimateFrom(o.Keys, c.opts.Seed); err != nil {
			return err
		}
	}
	for _, d := range c.set.Devices {
		if d.Ring, err = kernels.NewSampleRing(d.Device, c.set.Shared, learn.RingRecords(c.set)); err != nil {
			return err
		}
	}
	return nil
}

// serve starts what a filled cache needs to serve batches.
func (c *Cache) serve(ctx context.Context) error {
	for i, d := range c.set.Devices {
		d.HostNodes = c.store.Nodes.Near(i)
		if err := d.Prepare(ctx, c.shareOptions(d)); err != nil {
			return err
		}
		d.Serve()
	}
	if err := c.takeOver(); err != nil {
		return err
	}
	c.writer.Start()
	c.watch.Serve(sources{c}, c.measure)
	return nil
}

func (c *Cache) shareOptions(d *read.Device) transfer.ShareOptions {
	return transfer.ShareOptions{Threads: c.opts.Host.Threads, Nodes: c.store.Nodes.Near(d.Index), CPUs: c.store.Nodes.CPUs[d.Index], Always: c.tuning.shareAlways}
}

// sources answers telemetry's questions about sampled misses, unless the cache is attached: remote.missed does then.
type sources struct{ cache *Cache }

func (s sources) Withdrawals(table int, rows []int64, all []observe.Withdrawal) []observe.Withdrawal {
	return s.cache.writer.Withdrawn.FindAll(table, rows, all)
}

func (s sources) TryExplain(table int, rows []int64, estimates []admission.Estimate) bool {
	return s.cache.learner.TryExplain(table, rows, estimates)
}
