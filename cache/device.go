package cache

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// deviceState is what one device holds: its slab of the data store, the whole hashmap, and the tables as its kernels
// see them.
type deviceState struct {
	cache  *Cache
	index  int
	device device.Device
	lost   atomic.Bool // the device has failed for good, and the cache serves on without it
	counts deviceCounts

	slab   device.Buffer
	slots  *slab.Allocator
	hashes device.Buffer
	layout hashmap.Layout
	limit  int64 // bytes of slots that may be handed out
	aside  int64 // bytes of slots handed out to make free space whole: rows have them twice, or none has them
	tables []atomic.Pointer[tableOnDevice]
	epochs epochs

	timeline timeline

	ring    *kernels.SampleRing // nil: no sampling
	sampled atomic.Uint32       // batches so far
	sharer  *transfer.Sharer    // nil where no table's misses are shared

	lanes struct {
		sync.Mutex
		idle    []*lane // the last one used is taken first
		all     []*lane // at most maxLanes
		opening int     // lanes that are being made
		scratch scratch // for their batches' lists
		flight  []*Batch
		unused  []Batch       // made several at a time
		waiting int           // callers that wait for changed
		changed chan struct{} // closed, and replaced, when a lane becomes idle or a batch joins flight
	}
	// stagings is the memory that batches for Go memory pass through, as many as may at once; nil for one not made yet.
	stagings chan *staging
	staged   atomic.Int64 // bytes of all stagings
}

// tableOnDevice is a table as the kernels of one device see it. Its buffers lie in the device's memory.
type tableOnDevice struct {
	tier               kernels.HostRows
	codec              kernels.Codec
	rejected, oversize device.Buffer
	hitShare           uint32               // of the last batch that finished, in parts of shareUnit; atomic
	share              *transfer.ShareTable // nil where misses are not shared
}

// table returns a table as the device's kernels are to see it from now on.
func (d *deviceState) table(i int) *tableOnDevice { return d.tables[i].Load() }

// maxLanes is how many batches one device serves at once; more wait.
func maxLanes() int { return 2 * runtime.GOMAXPROCS(0) }

// startServing lets batches in, once the device holds everything else.
func (d *deviceState) startServing() {
	d.lanes.changed = make(chan struct{})
	d.stagings = make(chan *staging, maxStagings)
	for range maxStagings {
		d.stagings <- nil
	}
}

// shareMisses lets the host's processors help with the misses of the tables for which that is worth trying.
func (d *deviceState) shareMisses(threads int) error {
	if threads < 0 || d.slab.Bytes() != nil { // a device in host memory gains nothing
		return nil
	}
	for i := range d.tables {
		t := d.table(i)
		if !transfer.Shareable(t.tier) {
			continue
		}
		if d.sharer == nil {
			s, err := transfer.NewSharer(d.device, transfer.ShareOptions{Threads: threads, Nodes: d.near(), CPUs: d.cache.nodes.cpus[d.index]})
			if errors.Is(err, transfer.ErrNoShare) || errors.Is(err, device.ErrOutOfMemory) {
				return nil // misses are fetched all the same
			}
			if err != nil {
				return err
			}
			d.sharer = s
		}
		t.share = d.sharer.Table(t.tier, t.codec)
	}
	return nil
}

// changedLocked wakes whoever waits for a lane. REQUIRES: d.lanes is locked.
func (d *deviceState) changedLocked() {
	if d.lanes.waiting == 0 {
		return
	}
	close(d.lanes.changed)
	d.lanes.changed = make(chan struct{})
}

// pollBatches is how often a caller that waits for a lane asks whether a batch has finished that nobody waits for.
const pollBatches = 50 * time.Microsecond

// acquire returns an idle lane for a batch of n rows, with lists if it is to have a launch a stage, waiting for one if need
// be. Batches that are traced have lists if there is room. It settles device batches that have finished, whose callers may never ask.
func (d *deviceState) acquire(ctx context.Context, t *tableOnDevice, n int, traced bool) (*lane, error) {
	want := int64(0)
	if traced || t.strategy(int64(n)) != oneLaunch {
		want = int64(n) * listBytes
	}
	for {
		d.settleFinished()
		d.lanes.Lock()
		var l *lane
		opened := false
		if n := len(d.lanes.idle); n > 0 {
			l = d.lanes.idle[n-1]
			d.lanes.idle = d.lanes.idle[:n-1]
		} else if len(d.lanes.all)+d.lanes.opening < maxLanes() {
			d.lanes.opening++
			opened = true
		}
		if l != nil || opened {
			lists, size, drop, ok := d.lanes.scratch.take(want)
			if ok || t.short() {
				d.lanes.Unlock()
				return d.outfit(l, lists, size, drop, t)
			}
			if opened {
				d.lanes.opening--
			} else {
				d.lanes.idle = append(d.lanes.idle, l)
			}
		}
		d.lanes.waiting++
		changed, poll := d.lanes.changed, (<-chan time.Time)(nil)
		if len(d.lanes.flight) > 0 {
			poll = time.After(pollBatches)
		}
		d.lanes.Unlock()
		var err error
		select {
		case <-changed:
		case <-poll:
			d.settleFailed()
		case <-ctx.Done():
			err = ctx.Err()
		}
		d.lanes.Lock()
		d.lanes.waiting--
		d.lanes.Unlock()
		if err != nil {
			return nil, err
		}
	}
}

// outfit gives a lane, which it opens if l is nil, lists: those given, or new ones of the given size after others have been
// freed. A batch of short rows does without where there is no memory for them.
func (d *deviceState) outfit(l *lane, lists device.Buffer, size int64, drop []device.Buffer, t *tableOnDevice) (*lane, error) {
	for _, b := range drop {
		d.device.Free(b)
	}
	var err error
	if size > 0 {
		if lists, err = d.device.Alloc(size, "batch scratch"); err != nil {
			d.lanes.Lock()
			d.lanes.scratch.bytes -= size
			d.changedLocked()
			d.lanes.Unlock()
		}
	}
	if l == nil {
		var failed error
		if l, failed = d.openLane(); failed != nil {
			d.lanes.Lock()
			defer d.lanes.Unlock()
			d.lanes.scratch.give(lists)
			return nil, failed
		}
	}
	l.lists = lists
	if err != nil && !t.short() {
		d.releaseLane(l, nil)
		return nil, fmt.Errorf("cache: %w", err)
	}
	return l, nil
}

// settleFinished settles the device batches that have published their counters, without asking the driver about the others.
func (d *deviceState) settleFinished() {
	for i := 0; ; {
		d.lanes.Lock()
		if i >= len(d.lanes.flight) {
			d.lanes.Unlock()
			return
		}
		b := d.lanes.flight[i]
		d.lanes.Unlock()
		if b.published() {
			b.settle()
		}
		d.lanes.Lock()
		if i < len(d.lanes.flight) && d.lanes.flight[i] == b { // not finished, or somebody else is settling it
			i++
		}
		d.lanes.Unlock()
	}
}

// settleFailed settles the device batches that will never publish, because the device has failed.
func (d *deviceState) settleFailed() {
	d.lanes.Lock()
	flight := slices.Clone(d.lanes.flight)
	d.lanes.Unlock()
	for _, b := range flight {
		if _, err := b.Done(); err != nil {
			b.settle()
		}
	}
}

// openLane makes a lane, which has been counted as opening.
func (d *deviceState) openLane() (*lane, error) {
	l := &lane{owner: d}
	err := l.open()
	if err != nil {
		l.close()
	}
	d.lanes.Lock()
	defer d.lanes.Unlock()
	d.lanes.opening--
	if err != nil {
		d.changedLocked()
		return nil, err
	}
	d.lanes.all = append(d.lanes.all, l)
	return l, nil
}

// releaseLane makes a lane idle; if b is not nil, it leaves flight at the same time.
func (d *deviceState) releaseLane(l *lane, b *Batch) {
	l.end()
	l.traced = nil
	d.lanes.Lock()
	defer d.lanes.Unlock()
	d.lanes.flight = slices.DeleteFunc(d.lanes.flight, func(f *Batch) bool { return f == b })
	d.lanes.scratch.give(l.lists)
	l.lists = device.Buffer{}
	d.lanes.idle = append(d.lanes.idle, l)
	d.changedLocked()
}

// drain settles the device batches under way and waits until all lanes are idle. No call may be inside the cache.
func (d *deviceState) drain() {
	for {
		d.lanes.Lock()
		flight, changed := slices.Clone(d.lanes.flight), d.lanes.changed
		busy := len(d.lanes.all) - len(d.lanes.idle)
		if busy > 0 {
			d.lanes.waiting++
		}
		d.lanes.Unlock()
		if busy == 0 {
			return
		}
		for _, b := range flight {
			b.settle()
		}
		if len(flight) == 0 {
			<-changed
		}
		d.lanes.Lock()
		d.lanes.waiting--
		d.lanes.Unlock()
	}
}

// close frees everything the device holds but the device itself. No lane may be in use.
func (d *deviceState) close() {
	d.drain()
	for _, l := range d.lanes.all {
		l.close()
	}
	d.timeline.close()
	if d.sharer != nil {
		d.sharer.Close()
		d.sharer = nil
	}
	for _, b := range d.lanes.scratch.idle {
		d.device.Free(b)
	}
	for range cap(d.stagings) {
		if s := <-d.stagings; s != nil {
			s.close(d.device)
		}
	}
	for i := range d.tables {
		t := d.table(i)
		if t == nil {
			continue
		}
		transfer.Detach(d.device, t.tier, t.codec)
		d.device.Free(t.rejected)
		d.device.Free(t.oversize)
	}
	if d.ring != nil {
		d.ring.Close()
	}
	d.device.Free(d.slab)
	d.device.Free(d.hashes)
	d.slab, d.hashes, d.tables, d.lanes.all, d.lanes.idle = device.Buffer{}, device.Buffer{}, nil, nil, nil
	d.lanes.scratch = scratch{}
}

// wrap says what was being done when the device returned err, and whether the device is lost.
func (d *deviceState) wrap(err error, rows int, t *table) error {
	if d.device.Err() != nil {
		return fmt.Errorf("%w: Gather of %d rows of table %s on device %d: %w", ErrDevice, rows, t.name, d.index, err)
	}
	return fmt.Errorf("cache: Gather of %d rows of table %s on device %d: %w", rows, t.name, d.index, err)
}
