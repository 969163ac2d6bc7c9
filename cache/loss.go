package cache

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/slab"
)

// losses is what becomes of devices that fail for good. From the moment that one is known to, no batch begins on any device
// until its locations are withdrawn from every map: on GPUs, reading its slab might take the reader down as well. Batches that
// had begun before may fail or not; what they return without an error is right.
type losses struct {
	// paused, unless nil, is closed when batches may begin again.
	paused atomic.Pointer[chan struct{}]
	mu     struct {
		sync.Mutex
		todo    []int
		running bool
	}
	rows atomic.Int64 // that only lost devices had
}

// isLost says whether the cache has given a device up.
func (d *deviceState) isLost() bool { return d.lost.Load() }

// lostError is the error of calls for a device that is lost.
func (d *deviceState) lostError() error {
	return fmt.Errorf("%w: device %d: %w", ErrDevice, d.index, d.device.Err())
}

// orLost returns err, or what it comes from if the device has failed for good.
func (d *deviceState) orLost(err error) error {
	if d.device.Err() != nil {
		return d.lostError()
	}
	return err
}

// survives says whether the cache serves on although a device has returned an error: if that is lost, and another one is not.
func (c *Cache) survives(d *deviceState) bool {
	if d.isLost() {
		return true
	}
	if d.device.Err() == nil {
		return false
	}
	return c.lose(d)
}

// lose gives a device up that has failed for good, if it is not the last one. It is called from within calls, and from what
// runs in the background.
func (c *Cache) lose(d *deviceState) bool {
	l := &c.losses
	l.mu.Lock()
	defer l.mu.Unlock()
	if d.isLost() {
		return true
	}
	others := 0
	for _, o := range c.devices {
		if o != d && !o.isLost() && o.device.Err() == nil {
			others++
		}
	}
	if others == 0 || c.changes.life.Err() != nil {
		return false
	}
	if l.paused.Load() == nil {
		resume := make(chan struct{})
		l.paused.Store(&resume)
	}
	d.lost.Store(true) // after pausing: lanes that are opened from now on may not begin with old maps
	l.mu.todo = append(l.mu.todo, d.index)
	c.telemetry.opts.Logger.Error("device lost: its rows are withdrawn, the others serve on", c.logName(), "device", d.index, "error", d.device.Err())
	if !l.mu.running {
		l.mu.running = true
		c.changes.tasks.Go(c.settleLosses)
	}
	return true
}

// settleLosses withdraws the slabs of lost devices, then lets batches begin again.
func (c *Cache) settleLosses() {
	l := &c.losses
	for {
		l.mu.Lock()
		if len(l.mu.todo) == 0 {
			l.mu.running = false
			close(*l.paused.Swap(nil))
			l.mu.Unlock()
			return
		}
		lost := l.mu.todo[0]
		l.mu.todo = l.mu.todo[1:]
		l.mu.Unlock()
		c.withdrawSlab(lost)
	}
}

// whilePaused waits until batches may begin.
func (c *Cache) whilePaused(ctx context.Context) error {
	for {
		resume := c.losses.paused.Load()
		if resume == nil {
			return nil
		}
		select {
		case <-*resume:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// begin counts the batch that the lane is about to enqueue, once batches may begin, and has it read the slabs there are.
func (l *lane) begin(ctx context.Context) error {
	c := l.owner.cache
	for {
		s := c.spread.Load()
		l.running, l.epoch = true, l.owner.epochs.begin()
		// Whoever pauses from now on waits for this batch where that matters.
		if c.losses.paused.Load() == nil && c.spread.Load() == s {
			if l.spread != s {
				l.spread, l.slabs, l.peers = s, c.slabsFor(s, l.owner.index), s.peers(l.owner.index)
			}
			break
		}
		l.end()
		if err := c.whilePaused(ctx); err != nil {
			return err
		}
	}
	if l.owner.isLost() {
		l.end()
		return l.owner.lostError()
	}
	return nil
}

// withdrawSlab takes the locations of a lost device's slab out of every map. No batch begins meanwhile.
func (c *Cache) withdrawSlab(lost int) {
	ch, gone := &c.changes, uint8(1)<<lost
	overlay := c.overlay.far && lost == 0 // it has to be read elsewhere, under the same slab ID
	if overlay && c.waitEpoch(ch.life) != nil {
		return // the cache is being closed
	}
	ch.mu.Lock()
	c.spread.Store(c.spread.Load().without(lost))
	c.devices[lost].limit = 0
	capacity := c.capacityLocked()
	// From here on nothing is published in the lost slab: rows that go back to slots while keys are collected would not be among them.
	for _, f := range ch.mu.fresh {
		f.reslot, _ = f.reslot.within(^gone)
	}
	ch.mu.Unlock()
	var keys []uint64
	for key, l := range ch.mu.index.All() {
		if p := ch.placesAt(key, l); !c.overlay.has(l) && p.slabs()&gone != 0 {
			keys = append(keys, key)
		}
	}
	for len(keys) > 0 {
		part := keys[:min(len(keys), changedRows)]
		keys = keys[len(part):]
		ch.mu.Lock()
		ch.behalfLocked(lossOfDevice)
		for _, key := range part {
			ch.withdrawCopyLocked(key, gone)
		}
		ch.behalfLocked(nil)
		ch.publishLocked()
		ch.mu.Unlock()
	}
	ch.mu.Lock()
	if overlay {
		for key := range ch.mu.fresh {
			if l := ch.mu.index.Find(key); l.Valid() {
				ch.insertLocked(key, places{first: l})
			}
		}
	}
	ch.publishLocked()
	ch.mu.Unlock()
	c.learner.call(func(p admission.Policy) { p.Resize(capacity) })
}

// withdrawCopyLocked withdraws a row's places in slabs that are lost. REQUIRES: ch.mu is locked.
func (ch *changes) withdrawCopyLocked(key uint64, gone uint8) {
	p := ch.placesOf(key)
	if !p.valid() || ch.cache.overlay.has(p.first) || p.slabs()&gone == 0 {
		return
	}
	left, _ := p.within(^gone)
	if left.valid() {
		ch.insertLocked(key, left)
		return
	}
	ch.withdrawnLocked(key)
	ch.eraseLocked(key, slab.Evicted)
	ch.cache.losses.rows.Add(1)
}
