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
)

// Cache serves rows of its tables. Make one with New. It is safe for concurrent use.
type Cache struct {
	opts    Options
	watch   *observe.Telemetry
	set     *read.Set // the devices and tables that batches read
	store   *place.Store
	learner *learn.Learner
	writer  *change.Writer
	capture *capture // nil without Options.Capture
	link    linkUse

	stopTraining func() // ends the reading of training batches

	restored    int64 // rows that New took from a snapshot
	restoredErr error // why New did not
	gate        gate
}

// New loads the tables into the host tier, lets the admission policy learn from the training batches, and fills the
// data store. It takes as long as reading and encoding every row does. On an error nothing is left behind; the tables
// are closed in any case.
func New(o Options) (_ *Cache, err error) {
	defer func() { err = errors.Join(err, closeTables(o.Tables)) }()
	o.EnsureDefaults()
	c := &Cache{opts: o, gate: newGate(), stopTraining: func() {}}
	defer func() { c.stopTraining() }()
	c.opts.Tables = nil // the sources are not kept
	c.watch = observe.New(o.Telemetry.observe(), &read.Set{})
	ctx, load := c.watch.Start(context.Background(), "load", "")
	begun := time.Now()
	defer func() { c.reportLoad(load, begun, err) }()
	defer func() {
		if err != nil {
			err = errors.Join(err, c.release())
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
	if err := c.loadTables(ctx, o.Tables); err != nil {
		return nil, err
	}
	if err := c.fill(); err != nil {
		return nil, err
	}
	return c, c.serve()
}

// Close refuses further calls, waits for those and for batches under way, then frees all memory. Closing a closed cache
// waits for the same and does nothing. A cache whose device has failed closes too.
func (c *Cache) Close() error {
	c.watch.Close() // collections under way are calls too
	if first := c.gate.close(); !first {
		return nil
	}
	defer c.gate.finish()
	return c.release()
}

// release frees what New built, however far it got.
func (c *Cache) release() error {
	c.watch.Close()
	if c.set == nil {
		return nil
	}
	if c.writer != nil {
		c.writer.End()
	}
	for _, d := range c.set.Devices {
		d.Drain() // before any memory goes: batches of one device read the slabs of others
	}
	if c.capture != nil && c.set.Devices[0].Ring != nil {
		c.learner.Drain()
	}
	c.learner.Close()
	for _, d := range c.set.Devices {
		d.Close()
	}
	c.writer.Free()
	if c.store.Overlay != nil {
		c.set.Devices[0].Device.Free(c.store.Overlay.Mem)
	}
	for _, t := range c.set.Tables {
		t.Tier.Close()
	}
	var errs []error
	for _, d := range c.set.Devices {
		errs = append(errs, d.Device.Close())
	}
	return errors.Join(errs...)
}

// Rows returns the number of rows of a table, those that Update has inserted included. It panics when there is no such
// table.
func (c *Cache) Rows(table int) int64 { return c.set.Tables[table].Tier.Rows() }

// RowBytes returns the length of a table's rows in bytes. It panics when there is no such table.
func (c *Cache) RowBytes(table int) int { return c.set.Tables[table].Tier.RowBytes() }

// Devices returns the number of devices.
func (c *Cache) Devices() int { return len(c.set.Devices) }

// DeviceInfo returns what device i is: its kind, name and place.
func (c *Cache) DeviceInfo(i int) device.Info { return c.set.Devices[i].Device.Info() }

// reportLoad ends New's span and logs what was loaded.
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
		slog.Int64("cached", cached), slog.Int64("restored", c.restored), slog.Int64("budget", c.opts.Budget), slog.Int("devices", len(c.set.Devices)))
}

// gate lets calls in until the cache closes, and counts those inside. It is one word, so that calls share no lock.
type gate struct {
	state    atomic.Int64  // calls inside, and closing
	idle     chan struct{} // has a token when the last call has left a closing gate
	finished chan struct{} // closed when Close has freed everything
}

const closing = 1 << 62

func newGate() gate { return gate{idle: make(chan struct{}, 1), finished: make(chan struct{})} }

// enter begins a call. If it returns true, leave ends the call.
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

// close lets nobody in any more and waits until nobody is inside. The first caller gets true, others only after finish.
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

// enter begins a call of the cache; leave ends it. Once all devices have failed it returns their error.
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
