package cache

import (
	"context"
	"runtime"
	"sync"

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

	// permits has one for every lane that may still be taken.
	permits chan struct{}
	lanes   struct {
		sync.Mutex
		idle   []*lane // the last one used is taken first: its memory is warm and large enough
		all    []*lane
		flight []*Batch // device batches that nobody has settled yet, oldest first
	}
}

// tableOnDevice is a table as the kernels of one device see it. Its buffers lie in the device's memory.
type tableOnDevice struct {
	tier               kernels.HostRows
	codec              kernels.Codec
	rejected, oversize device.Buffer
}

// maxLanes is how many batches one device serves at once; more wait.
func maxLanes() int { return 2 * runtime.GOMAXPROCS(0) }

// startServing lets batches in, once the device holds everything else.
func (d *deviceState) startServing() {
	d.permits = make(chan struct{}, maxLanes())
	for range cap(d.permits) {
		d.permits <- struct{}{}
	}
}

// acquire returns an idle lane, waiting for one if need be.
func (d *deviceState) acquire(ctx context.Context) (*lane, error) {
	if err := d.permit(ctx); err != nil {
		return nil, err
	}
	d.lanes.Lock()
	if n := len(d.lanes.idle); n > 0 {
		l := d.lanes.idle[n-1]
		d.lanes.idle = d.lanes.idle[:n-1]
		d.lanes.Unlock()
		return l, nil
	}
	d.lanes.Unlock()
	l := &lane{owner: d}
	if err := l.open(); err != nil {
		l.close()
		d.permits <- struct{}{}
		return nil, err
	}
	d.lanes.Lock()
	defer d.lanes.Unlock()
	d.lanes.all = append(d.lanes.all, l)
	return l, nil
}

// permit waits for a lane's permit. It settles device batches that have passed, whose callers may never ask, and where all
// lanes are taken the oldest in any case.
func (d *deviceState) permit(ctx context.Context) error {
	oldest := func() *Batch {
		d.lanes.Lock()
		defer d.lanes.Unlock()
		if len(d.lanes.flight) == 0 {
			return nil
		}
		return d.lanes.flight[0]
	}
	for b := oldest(); b != nil; b = oldest() {
		if done, err := b.Done(); !done && err == nil {
			break
		}
		b.settle()
	}
	for {
		select {
		case <-d.permits:
			return nil
		default:
		}
		if b := oldest(); b != nil {
			b.settle()
			continue
		}
		select {
		case <-d.permits:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (d *deviceState) releaseLane(l *lane) {
	d.lanes.Lock()
	d.lanes.idle = append(d.lanes.idle, l)
	d.lanes.Unlock()
	d.permits <- struct{}{}
}

// settleAll settles the device batches under way.
func (d *deviceState) settleAll() {
	d.lanes.Lock()
	flight := append([]*Batch(nil), d.lanes.flight...)
	d.lanes.Unlock()
	for _, b := range flight {
		b.settle()
	}
}

// close frees everything the device holds but the device itself. No lane may be in use.
func (d *deviceState) close() {
	d.settleAll()
	for _, l := range d.lanes.all {
		l.close()
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
