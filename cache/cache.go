package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/transfer"
)

// Cache serves rows of its tables. Make one with New. It is safe for concurrent use.
type Cache struct {
	opts    Options
	tables  []*table
	devices []*deviceState
	turn    atomic.Uint64 // the device that serves the next Gather
	budget  atomic.Int64  // bytes per device, as of now; Options.Budgets bound it
	space   *space
	spread  atomic.Pointer[spread]
	placing placing
	nodes   hostNodes
	losses  losses

	learner   learner
	changes   changes
	refresher refresher
	overlay   overlay
	snapshots snapshots
	telemetry telemetry

	// gate lets calls in until Close, which waits for those under way.
	gate struct {
		sync.Mutex
		closed bool
		inside int
		idle   *sync.Cond // inside is 0
	}
}

// table is one table as the cache holds it.
type table struct {
	name  string
	dtype DType
	tier  *transfer.Tier

	// Bits of the rows that admission offered in vain. Host memory, as the devices' copies have them.
	rejected, oversize bitset
	counts             tableCounts
}

// New loads the tables into the host tier, lets the admission policy learn from the training batches, and fills the
// data store. It takes as long as reading and encoding every row does. On an error nothing is left behind; the tables
// are closed in any case.
func New(o Options) (_ *Cache, err error) {
	o.EnsureDefaults()
	c := &Cache{opts: o}
	c.telemetry.open(c, o.Telemetry)
	begun := time.Now()
	ctx, load := c.watchLoad()
	defer func() { c.loaded(load, begun, err) }()
	c.learner.cache, c.learner.policy = c, o.Admission
	c.budget.Store(o.Budget)
	c.gate.idle = sync.NewCond(&c.gate)
	defer func() {
		for _, t := range o.Tables {
			if t.close != nil {
				err = errors.Join(err, t.close())
			}
		}
		if err != nil {
			err = errors.Join(err, c.release())
		}
	}()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	devices, err := c.openDevices(&o)
	if err != nil {
		return nil, err
	}
	c.opts = o
	for i, d := range devices {
		c.devices = append(c.devices, &deviceState{cache: c, index: i, device: d})
	}
	if err := c.placeHost(); err != nil {
		return nil, err
	}
	ahead, stop := c.trainAhead()
	defer stop()
	if err := c.loadTables(ctx, ahead); err != nil {
		return nil, err
	}
	if err := c.fill(); err != nil {
		return nil, err
	}
	c.telemetry.serve()
	return c, nil
}

// openDevices opens the backend, and says in the log why auto takes the host's.
func (c *Cache) openDevices(o *Options) ([]device.Device, error) {
	var why error
	if o.Device == "auto" {
		why = o.fitsGPUs()
	}
	if o.Device == "cuda" || o.Device == "auto" && why == nil {
		devices, err := cuda.OpenGPUs(o.gpus())
		if o.Device == "cuda" || !errors.Is(err, cuda.ErrUnsupported) {
			return devices, err
		}
		why = err
	}
	if o.Device == "auto" {
		c.telemetry.opts.Logger.Info("host backend taken", c.logName(), slog.Any("reason", why))
	}
	return openHost(o.Devices, o.Workers), nil
}

var openHost = host.Open // tests have slower ones

// share returns the bytes of all budgets that a table's rows get if they get as many as others, byte for byte.
func (c *Cache) share(t Table, raw float64) int64 {
	all := float64(c.opts.Budget) * float64(len(c.devices))
	return int64(min(maxBudget, all*float64(t.Rows())*float64(t.RowBytes())/raw))
}

// codecOf returns the name of a table's codec.
func (c *Cache) codecOf(t Table) string { return cmp.Or(t.codec, c.opts.Codec) }

func (c *Cache) loadTables(ctx context.Context, ahead []trainingBatch) error {
	raw := 0.0
	for _, t := range c.opts.Tables {
		raw += float64(t.Rows()) * float64(t.RowBytes())
	}
	for i, t := range c.opts.Tables {
		if t.used.Swap(true) {
			return fmt.Errorf("cache: table %s: must not be given to New twice", t.name)
		}
		name := c.codecOf(t)
		terms := registry.Terms{Budget: c.share(t, raw), Link: c.opts.Link}
		if name == registry.Auto {
			if p := tablePopularity(ahead, i, int64(t.Rows())); p != nil {
				terms.HitRatio = p.hitRatio
			}
		}
		watch := c.watchTable(ctx, t.name)
		tier, err := transfer.Load(c.devices[0].device, t.source, transfer.Options{
			Codec: name, DType: t.dtype, Mode: c.opts.HostTier, Seed: c.opts.Seed, Workers: c.opts.Workers, Capacity: t.capacity, Nodes: c.nodes.tier,
			Terms: terms,
		})
		if err != nil {
			err = fmt.Errorf("cache: table %s: %w", t.name, err)
			watch.end(err)
			return err
		}
		c.tables = append(c.tables, &table{name: t.name, dtype: t.dtype, tier: tier})
		loaded := c.tables[len(c.tables)-1]
		loaded.describe(watch)
		c.logChoice(loaded)
		c.checkNodes(loaded)
		watch.end(nil)
	}
	c.logNodes()
	c.opts.Tables = nil // the sources are not kept
	return nil
}

// opened returns the devices.
func (c *Cache) opened() (devices []device.Device) {
	for _, d := range c.devices {
		devices = append(devices, d.device)
	}
	return devices
}

// Close refuses further calls, waits for those and for batches under way, then frees all memory. Closing a closed cache
// waits for the same and does nothing. A cache whose device has failed closes too.
func (c *Cache) Close() error {
	c.telemetry.close() // before the gate closes: collections under way come through it
	g := &c.gate
	g.Lock()
	defer g.Unlock()
	first := !g.closed
	g.closed = true
	for g.inside > 0 {
		g.idle.Wait()
	}
	if !first {
		return nil
	}
	return c.release()
}

// release frees what New built, however far it got.
func (c *Cache) release() error {
	c.telemetry.close()
	c.changes.end()
	c.captureRest()
	c.learner.close()
	for _, d := range c.devices {
		d.drain() // before any memory goes: batches of one device read the others' slabs
	}
	for _, d := range c.devices {
		d.close()
	}
	c.changes.free()
	if len(c.devices) > 0 {
		c.overlay.close(c.devices[0].device)
	}
	for _, t := range c.tables {
		t.tier.Close()
	}
	var errs []error
	for _, d := range c.devices {
		errs = append(errs, d.device.Close())
	}
	return errors.Join(errs...)
}

// enter begins a call; leave ends it. After all devices have failed every call does with an error.
func (c *Cache) enter() error {
	c.gate.Lock()
	defer c.gate.Unlock()
	if c.gate.closed {
		return ErrClosed
	}
	for _, d := range c.devices {
		if !d.isLost() && d.device.Err() != nil && !c.lose(d) {
			return d.lostError()
		}
	}
	c.gate.inside++
	return nil
}

func (c *Cache) leave() {
	c.gate.Lock()
	defer c.gate.Unlock()
	if c.gate.inside--; c.gate.inside == 0 {
		c.gate.idle.Broadcast()
	}
}

// Rows returns the number of rows of a table, those that Update has inserted included. It panics when there is no such
// table.
func (c *Cache) Rows(table int) int64 { return c.tables[table].tier.Rows() }

// RowBytes returns the length of a table's rows. It panics when there is no such table.
func (c *Cache) RowBytes(table int) int { return c.tables[table].tier.RowBytes() }

// Devices returns the number of devices.
func (c *Cache) Devices() int { return len(c.devices) }

// DeviceInfo returns what device i is: its kind, name and place.
func (c *Cache) DeviceInfo(i int) device.Info { return c.devices[i].device.Info() }

// bitset is a set of row numbers. The zero value holds none and cannot be added to.
type bitset []uint64

func newBitset(rows int64) bitset { return make(bitset, bitsetBytes(rows)/8) }

func bitsetBytes(rows int64) int64 { return (rows + 63) / 64 * 8 }

func (b bitset) add(row int64) { b[row>>6] |= 1 << (row & 63) }

// addShared is add beside hasShared of others; one goroutine adds at a time.
func (b bitset) addShared(row int64) { atomic.StoreUint64(&b[row>>6], b[row>>6]|1<<(row&63)) }

func (b bitset) hasShared(row int64) bool { return atomic.LoadUint64(&b[row>>6])>>(row&63)&1 != 0 }

func (b bitset) has(row int64) bool { return len(b) != 0 && b[row>>6]>>(row&63)&1 != 0 }
