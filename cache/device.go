package cache

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// deviceState is what one device holds: its slab of the data store, the whole hashmap, and the tables' host tiers as
// its kernels see them.
type deviceState struct {
	cache  *Cache
	index  int
	device device.Device

	slab   device.Buffer
	slots  *slab.Allocator
	hashes device.Buffer
	layout hashmap.Layout
	tiers  []kernels.HostRows

	// lanes holds the idle ones; a lane that was never made is nil.
	lanes chan *lane
	all   struct {
		sync.Mutex
		made []*lane
	}
}

// lane is what one Gather at a time uses: streams and scratch memory.
type lane struct {
	owner      *deviceState
	hits, miss device.Stream
	capacity   int // rows that the scratch has room for
	found      device.Buffer
	scratch    device.Buffer
	counters   device.Buffer
	slabs      []device.Buffer
	lookup     kernels.Lookup
	decode     kernels.Decode
	plan       transfer.Plan
}

// maxLanes is how many Gathers one device serves at once; more wait.
func maxLanes() int { return 2 * runtime.GOMAXPROCS(0) }

// startServing makes the lanes, once the device holds everything else.
func (d *deviceState) startServing() {
	d.lanes = make(chan *lane, maxLanes())
	for range cap(d.lanes) {
		d.lanes <- nil
	}
}

// acquire returns an idle lane with scratch for n rows, waiting for one if need be.
func (d *deviceState) acquire(ctx context.Context, n int) (*lane, error) {
	var l *lane
	select {
	case l = <-d.lanes:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if l == nil {
		l = &lane{owner: d}
		if err := l.open(); err != nil {
			d.lanes <- nil
			return nil, err
		}
		d.all.Lock()
		d.all.made = append(d.all.made, l)
		d.all.Unlock()
	}
	if err := l.reserve(n); err != nil {
		d.lanes <- l
		return nil, err
	}
	return l, nil
}

func (d *deviceState) releaseLane(l *lane) { d.lanes <- l }

func (l *lane) open() (err error) {
	if l.hits, err = l.owner.device.NewStream(); err != nil {
		return err
	}
	if l.miss, err = l.owner.device.NewStream(); err != nil {
		l.hits.Close()
		return err
	}
	if l.counters, err = l.owner.device.AllocHost(kernels.CountersBytes, "batch counters"); err != nil {
		l.hits.Close()
		l.miss.Close()
		return err
	}
	for _, d := range l.owner.cache.devices {
		l.slabs = append(l.slabs, d.slab)
	}
	return nil
}

// reserve makes room for a batch of n rows.
func (l *lane) reserve(n int) error {
	if n <= l.capacity {
		return nil
	}
	n = max(n, 2*l.capacity, 1024)
	found, err := l.owner.device.Alloc(int64(n)*kernels.FoundBytes, "batch scratch")
	if err != nil {
		return fmt.Errorf("cache: batch of %d rows: %w", n, err)
	}
	scratch, err := l.owner.device.Alloc(int64(n)*kernels.FoundBytes, "batch scratch")
	if err != nil {
		l.owner.device.Free(found)
		return fmt.Errorf("cache: batch of %d rows: %w", n, err)
	}
	l.freeScratch()
	l.capacity, l.found, l.scratch = n, found, scratch
	return nil
}

func (l *lane) freeScratch() {
	l.owner.device.Free(l.found)
	l.owner.device.Free(l.scratch)
	l.capacity = 0
}

// close frees everything the device holds. No lane may be in use.
func (d *deviceState) close() {
	for _, l := range d.all.made {
		l.hits.Close()
		l.miss.Close()
		l.freeScratch()
		d.device.Free(l.counters)
	}
	for _, t := range d.tiers {
		d.device.Free(t.Compressed)
		d.device.Free(t.Index)
	}
	d.device.Free(d.slab)
	d.device.Free(d.hashes)
	*d = deviceState{cache: d.cache, index: d.index, device: d.device}
}
