package cache

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
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

	slab   device.Buffer
	slots  *slab.Allocator
	hashes device.Buffer
	layout hashmap.Layout
	tables []tableOnDevice
	sharer *transfer.Sharer // nil where no table's misses are shared

	lanes struct {
		sync.Mutex
		idle    []*lane // the last one used is taken first: its memory is warm and large enough
		all     []*lane // at most maxLanes
		opening int     // lanes that are being made
		flight  []*Batch
		changed chan struct{} // closed, and replaced, when a lane becomes idle or a batch joins flight
	}
}

// tableOnDevice is a table as the kernels of one device see it. Its buffers lie in the device's memory.
type tableOnDevice struct {
	tier               kernels.HostRows
	codec              kernels.Codec
	rejected, oversize device.Buffer
	share              *transfer.ShareTable // nil where misses are not shared
}

// maxLanes is how many batches one device serves at once; more wait.
func maxLanes() int { return 2 * runtime.GOMAXPROCS(0) }

// startServing lets batches in, once the device holds everything else.
func (d *deviceState) startServing() { d.lanes.changed = make(chan struct{}) }

// shareMisses lets the host's processors help with the misses of the tables for which that is worth trying.
func (d *deviceState) shareMisses(threads int) error {
	if threads < 0 || d.slab.Bytes() != nil { // a device in host memory gains nothing
		return nil
	}
	for i := range d.tables {
		t := &d.tables[i]
		if !transfer.Shareable(t.tier) {
			continue
		}
		if d.sharer == nil {
			s, err := transfer.NewSharer(d.device, transfer.ShareOptions{Threads: threads})
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
	close(d.lanes.changed)
	d.lanes.changed = make(chan struct{})
}

// pollBatches is how often a caller that waits for a lane asks whether a batch has finished that nobody waits for.
const pollBatches = 50 * time.Microsecond

// acquire returns an idle lane, waiting for one if need be. It settles device batches that have finished, whose callers
// may never ask.
func (d *deviceState) acquire(ctx context.Context) (*lane, error) {
	for {
		d.settleFinished()
		d.lanes.Lock()
		if n := len(d.lanes.idle); n > 0 {
			l := d.lanes.idle[n-1]
			d.lanes.idle = d.lanes.idle[:n-1]
			d.lanes.Unlock()
			return l, nil
		}
		if len(d.lanes.all)+d.lanes.opening < maxLanes() {
			d.lanes.opening++
			d.lanes.Unlock()
			return d.openLane()
		}
		changed, poll := d.lanes.changed, (<-chan time.Time)(nil)
		if len(d.lanes.flight) > 0 {
			poll = time.After(pollBatches)
		}
		d.lanes.Unlock()
		select {
		case <-changed:
		case <-poll:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// settleFinished settles the device batches that have finished, without waiting for others.
func (d *deviceState) settleFinished() {
	d.lanes.Lock()
	flight := slices.Clone(d.lanes.flight)
	d.lanes.Unlock()
	for _, b := range flight {
		if done, err := b.Done(); done || err != nil {
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
	d.lanes.Lock()
	defer d.lanes.Unlock()
	d.lanes.flight = slices.DeleteFunc(d.lanes.flight, func(f *Batch) bool { return f == b })
	d.lanes.idle = append(d.lanes.idle, l)
	d.changedLocked()
}

// drain settles the device batches under way and waits until all lanes are idle. No call may be inside the cache.
func (d *deviceState) drain() {
	for {
		d.lanes.Lock()
		flight, changed := slices.Clone(d.lanes.flight), d.lanes.changed
		busy := len(d.lanes.all) - len(d.lanes.idle)
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
	}
}

// close frees everything the device holds but the device itself. No lane may be in use.
func (d *deviceState) close() {
	d.drain()
	for _, l := range d.lanes.all {
		l.close()
	}
	if d.sharer != nil {
		d.sharer.Close()
		d.sharer = nil
	}
	for _, t := range d.tables {
		transfer.Detach(d.device, t.tier, t.codec)
		d.device.Free(t.rejected)
		d.device.Free(t.oversize)
	}
	d.device.Free(d.slab)
	d.device.Free(d.hashes)
	d.slab, d.hashes, d.tables, d.lanes.all, d.lanes.idle = device.Buffer{}, device.Buffer{}, nil, nil, nil
}

// wrap says what was being done when the device returned err, and whether the device is lost.
func (d *deviceState) wrap(err error, rows int, t *table) error {
	if d.device.Err() != nil {
		return fmt.Errorf("%w: Gather of %d rows of table %s on device %d: %w", ErrDevice, rows, t.name, d.index, err)
	}
	return fmt.Errorf("cache: Gather of %d rows of table %s on device %d: %w", rows, t.name, d.index, err)
}
