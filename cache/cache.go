package cache

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/change"
	"github.com/tensorcache/tensorcache/cache/internal/learn"
	"github.com/tensorcache/tensorcache/cache/internal/observe"
	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/numa"
)

// Cache serves rows of its tables. Make one with New. It is safe for concurrent use.
type Cache struct {
	opts    Options
	tuning  *tuning
	watch   *observe.Telemetry
	set     *read.Set // the devices and tables that batches read; of an attached cache those of its first session, for their schema
	owner   owner
	kinds   []kind // of the tables; empty if the cache is attached
	shares  shares
	store   *place.Store
	learner *learn.Learner
	writer  *change.Writer
	capture *capture // nil without Options.Capture
	state   *state   // nil without Options.State
	link    linkUse  // for the gauge of the host link's utilization

	loadPeak     int64  // Stats.LoadPeakBytes
	stopTraining func() // ends the iteration over the training batches

	sampling    read.Sampling
	restored    int64 // rows that New admitted from a snapshot
	restoredErr error // why New could not use the snapshot
	gate        gate
	taken       []*atomic.Bool // Table.used of the tables that New has taken
}

// New loads the tables into the host tier, trains the admission policy on the training batches, and fills the data store. Most of the
// time goes to reading and encoding every row. New closes the tables. After an error it has freed everything that it has made, and the tables are as they
// were: give them to New again, or close them. Only if closing one of them is what failed, they are of no further use: close them.
func New(o Options) (*Cache, error) { return NewContext(context.Background(), o) }

// NewContext is New that ends early, with the context's error, once ctx has ended. It looks at ctx between parts of all that it does, which take
// milliseconds, but not while the system page-locks memory, a codec is trained, a policy starts or ranks, or a driver loads kernels. Spans of
// loading are children of ctx's span.
func NewContext(ctx context.Context, o Options) (_ *Cache, err error) {
	o.EnsureDefaults()
	o.Admission.Training = until(ctx, o.Admission.Training)
	c := &Cache{opts: o, tuning: newTuning(), gate: newGate(), stopTraining: func() {}}
	c.owner = local{c}
	defer func() { c.stopTraining() }()
	c.opts.Tables = nil // the sources are not kept
	c.watch = observe.New(o.Telemetry.observe(), &read.Set{})
	ctx, load := c.watch.Start(ctx, "load", "")
	begun := time.Now()
	resident, _, _ := numa.Resident()
	defer func() {
		if _, most, unknown := numa.Resident(); unknown == nil {
			c.loadPeak = max(0, most-resident)
		}
		c.reportLoad(load, begun, err)
	}()
	defer func() {
		if err == nil {
			return
		}
		err = errors.Join(err, c.release(true))
		for _, used := range c.taken {
			used.Store(false)
		}
	}()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if err := c.openDevices(); err != nil {
		return nil, err
	}
	if err := c.chooseNodes(); err != nil {
		return nil, err
	}
	if err := c.openState(); err != nil {
		return nil, err
	}
	if err := c.loadTables(ctx, o.Tables); err != nil {
		return nil, err
	}
	if err := c.fill(ctx); err != nil {
		return nil, err
	}
	if err := c.serve(ctx); err != nil {
		return nil, err
	}
	if err := closeTables(o.Tables); err != nil {
		return nil, err
	}
	c.warnTaken()
	return c, nil
}

// Close makes later calls return ErrClosed, waits for calls and batches under way, and frees all memory. Further calls of Close only wait
// for that. A cache whose devices have failed can be closed too.
func (c *Cache) Close() error {
	c.watch.Close() // collections under way are calls too
	c.endReads()    // calls under way may wait for it
	if c.writer != nil {
		c.writer.Interrupt()
	}
	if first := c.gate.close(); !first {
		return nil
	}
	defer c.gate.finish()
	return c.release(false)
}

// release frees what the owner or New has made. It restores the rows in adopted memory where that was asked for, or all if New has failed.
func (c *Cache) release(failed bool) error {
	c.watch.Close()
	if c.set == nil {
		return nil
	}
	return c.owner.release(failed)
}

func (c local) release(failed bool) error {
	c.endReads()
	if c.writer != nil {
		c.writer.End()
	}
	c.shares.close()
	for _, d := range c.set.Devices {
		d.Drain() // before any memory goes: batches of one device read the slabs of others
	}
	if c.capture != nil && c.set.Devices[0].Ring != nil {
		c.learner.Drain()
	}
	c.learner.Close()
	var errs []error
	for i, t := range c.set.Tables {
		if t.Tier.Adopted() && (failed || t.Restore) {
			errs = append(errs, c.writer.WriteBack(i), t.Tier.Restore())
		}
	}
	for _, d := range c.set.Devices {
		d.Close()
	}
	c.writer.Free()
	if c.store.Overlay != nil {
		c.store.Overlay.Close(c.set.Devices[0].Device)
	}
	for i, k := range c.kinds {
		t := c.set.Tables[i]
		t.Tier.Close()
		t.Resident.Free()
		errs = append(errs, k.close(t, failed))
	}
	c.state.free()
	for _, d := range c.set.Devices {
		errs = append(errs, d.Device.Close())
	}
	return errors.Join(append(errs, c.set.Kept.Close())...)
}

// endReads makes reads of pages return.
func (c *Cache) endReads() {
	for i, k := range c.kinds {
		k.end(c.set.Tables[i])
	}
}

// Rows returns the number of rows of a table, including those that Update has inserted. It panics, with an error that wraps ErrTable, if the
// table index is out of range.
func (c *Cache) Rows(table int) int64 {
	c.mustTable(table)
	return c.owner.rows(table)
}

// length is Rows of a call that has entered.
func (c *Cache) length(table int) int64 {
	_, pinned := c.pin()
	defer unpin(pinned)
	return c.set.Tables[table].Tier.Rows()
}

// RowBytes returns the length of a table's rows in bytes. It panics as Rows does.
func (c *Cache) RowBytes(table int) int { return c.mustTable(table).Tier.RowBytes() }

// mustTable returns a table. It panics with an error that wraps ErrTable if there is none.
func (c *Cache) mustTable(table int) *read.Table {
	if err := c.checkTable(table); err != nil {
		panic(err)
	}
	return c.set.Tables[table]
}

// Devices returns the number of devices.
func (c *Cache) Devices() int { return len(c.set.Devices) }

// DeviceInfo returns the kind, name and address of device i, 0 ≤ i < Devices(). It panics for other i.
func (c *Cache) DeviceInfo(i int) device.Info { return c.set.Devices[i].Device.Info() }

// reportLoad ends New's span and logs the result.
func (c *Cache) reportLoad(o observe.Operation, begun time.Time, err error) {
	if err != nil {
		o.End(err)
		c.watch.Log.Error("not loaded", slog.Any("error", err))
		return
	}
	rows, cached := int64(0), int64(0)
	for _, t := range c.set.Tables {
		rows += t.Tier.Rows()
		cached += t.Counts.Cached.Load()
	}
	o.Set(observe.KeyTables.Int(len(c.set.Tables)), observe.KeyTableRows.Int64(rows), observe.KeyCached.Int64(cached),
		observe.KeyRestored.Int64(c.restored), observe.KeyBudget.Int64(c.opts.Budget))
	if c.restoredErr != nil {
		o.Note(c.restoredErr) // New succeeds without the snapshot
		c.watch.Log.Warn("snapshot not restored", slog.Any("error", c.restoredErr))
	}
	o.End(nil)
	c.watch.Log.Info("loaded", slog.Duration("took", time.Since(begun)), slog.Int("tables", len(c.set.Tables)), slog.Int64("rows", rows),
		slog.Int64("cached", cached), slog.Int64("restored", c.restored), slog.Int64("budget", c.opts.Budget), slog.Int("devices", len(c.set.Devices)),
		slog.Int64("peak", c.loadPeak))
}

// gate counts the calls under way and refuses calls once the cache closes. The count is one atomic word, so that calls share no lock.
type gate struct {
	state    atomic.Int64  // number of calls under way; bit closing once the cache closes
	idle     chan struct{} // receives a token when the last call leaves while the cache closes
	finished chan struct{} // closed when Close has freed everything
}

const closing = 1 << 62

func newGate() gate { return gate{idle: make(chan struct{}, 1), finished: make(chan struct{})} }

// enter begins a call and returns true, unless the cache closes. The caller ends the call by leave.
func (g *gate) enter() bool {
	if g.state.Add(1)&closing == 0 {
		return true
	}
	g.leave()
	return false
}

func (g *gate) leave() {
	if g.state.Add(-1) == closing {
		select {
		case g.idle <- struct{}{}:
		default:
		}
	}
}

// close makes enter return false and waits until no call is under way. It returns true to the first caller. Other callers wait for finish
// and get false.
func (g *gate) close() (first bool) {
	if g.state.Or(closing)&closing != 0 {
		<-g.finished
		return false
	}
	for g.state.Load() != closing {
		<-g.idle
	}
	return true
}

func (g *gate) finish() { close(g.finished) }

// enter begins a call of the cache, which leave ends. It returns ErrClosed, or the devices' error once all have failed.
func (c *Cache) enter() error {
	if !c.gate.enter() {
		return ErrClosed
	}
	if err := c.set.Check(); err != nil {
		c.gate.leave()
		return err
	}
	return nil
}

func (c *Cache) leave() { c.gate.leave() }

func closeTables(tables []Table) error {
	var errs []error
	for _, t := range tables {
		if t.close != nil {
			errs = append(errs, t.close())
		}
	}
	return errors.Join(errs...)
}
