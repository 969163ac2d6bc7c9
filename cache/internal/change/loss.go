package change

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/cache/internal/observe"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/slab"
)

// losses handles devices that fail for good. Once a failure is known, no batch begins on any device until the lost device's locations
// are withdrawn from every map, because reading its slab might fail another GPU too. Batches that had begun before may fail; the output
// of those that do not is correct.
type losses struct {
	// left is closed when no batch reads the overlay at the front of the first device's slab any more, after that device was lost. Until then a row that
	// comes to the overlay would be looked up in memory that has not got it.
	left chan struct{}
	mu   struct {
		sync.Mutex
		todo    []int
		running bool
		resume  func() // lets batches begin again
	}
}

// frontLeft says whether left is closed.
func (l *losses) frontLeft() bool { return isClosed(l.left) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// lose gives up a device that has failed for good and returns true, unless it is the last one. Public calls and background goroutines
// call it.
func (w *Writer) lose(d *read.Device) bool {
	l := &w.losses
	l.mu.Lock()
	defer l.mu.Unlock()
	if d.IsLost() {
		return w.set.OthersWork(d)
	}
	if !w.set.OthersWork(d) || w.life.Err() != nil {
		return false
	}
	if resume := w.set.Pause(); resume != nil {
		l.mu.resume = resume
	}
	d.SetLost(d.Device.Err()) // after pausing: lanes that are opened from now on may not begin with old maps
	l.mu.todo = append(l.mu.todo, d.Index)
	if isClosed(w.failed) && !l.mu.running {
		w.giveUpLocked(d.Index, d.Device.Err())
		w.tasks.Go(w.tellReaders)
		return false
	}
	w.watch.Log.Error("device lost: its rows are withdrawn, the others serve on", "device", d.Index, "error", d.Device.Err())
	if !l.mu.running {
		l.mu.running = true
		w.tasks.Go(w.settleLosses)
	}
	return true
}

// giveUpLocked gives every device up, as the rows of a lost one cannot be withdrawn, and lets batches begin again, which return the error then. Callers tell other processes.
// REQUIRES: batches are paused, and mu is held.
func (w *Writer) giveUpLocked(lost int, err error) {
	l := &w.losses
	why := fmt.Errorf("rows of lost device %d cannot be withdrawn: %w", lost, err)
	for _, d := range w.set.Devices {
		d.SetLost(why)
	}
	l.mu.todo, l.mu.running = nil, false
	l.mu.resume()
	w.watch.Log.Error("device lost: no device serves on, as its rows cannot be withdrawn", "device", lost, "error", err)
}

// giveUp gives every device up, here and in other processes.
func (w *Writer) giveUp(lost int, err error) {
	w.losses.mu.Lock()
	w.giveUpLocked(lost, err)
	w.losses.mu.Unlock()
	w.tellReaders()
}

// settleLosses withdraws the slabs of lost devices, then lets batches begin again. If rows of a lost device stay in some map, every device is given up.
func (w *Writer) settleLosses() {
	for {
		lost, some := w.nextLoss()
		w.tellReaders()
		if !some {
			return
		}
		if err := w.withdrawSlab(lost); err != nil {
			if w.life.Err() == nil {
				w.giveUp(lost, err)
			}
			return
		}
		if lost == 0 && w.store.Overlay.Front > 0 {
			// Batches that began before. If they are not known to have ended, updates return the writer's error instead of waiting for left.
			if err := w.waitEpoch(w.life); err == nil {
				close(w.losses.left)
			} else if w.life.Err() == nil {
				w.fail(err)
			}
		}
	}
}

// nextLoss returns a lost device whose slab is to be withdrawn. If there is none, it lets batches begin again.
func (w *Writer) nextLoss() (lost int, some bool) {
	l := &w.losses
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.mu.todo) == 0 {
		l.mu.running = false
		l.mu.resume()
		return 0, false
	}
	lost, l.mu.todo = l.mu.todo[0], l.mu.todo[1:]
	return lost, true
}

// tellReaders has other processes pause, or go on. It does not wait long: a client that is stopped must not keep all others from reading. The batches
// of one that does not pause may fail.
func (w *Writer) tellReaders() {
	if r := w.set.Readers(); r != nil {
		ctx, cancel := context.WithTimeout(w.life, tellWait)
		defer cancel()
		r.Mapped(ctx)
	}
}

// tellWait is how long a client may take to pause.
const tellWait = 500 * time.Millisecond

// withdrawSlab takes the locations of a lost device's slab out of every map. No batch begins meanwhile.
func (w *Writer) withdrawSlab(lost int) error {
	gone, capacity := uint8(1)<<lost, int64(0)
	err := w.change(func() error {
		w.store.SetTopology(w.store.Topology.Load().Without(lost))
		w.store.Slabs[lost].Limit = 0
		capacity = w.store.Capacity(w.store.Limits())
		// From here on nothing is published in the lost slab: rows that go back to slots while keys are collected would not be among them.
		for _, f := range w.mu.updated {
			f.newLocations, _ = f.newLocations.Within(^gone)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := inParts(w, observe.LossOfDevice, w.keysIn(gone), func(key uint64) { w.withdrawCopyLocked(key, gone) }); err != nil {
		return err
	}
	if err := w.change(w.publishLocked); err != nil {
		return err
	}
	w.learner.Call(func(p admission.Policy) { p.Resize(capacity) })
	return nil
}

// keysIn returns the rows that have a slot in some slabs.
func (w *Writer) keysIn(slabs uint8) (keys []uint64) {
	w.mu.index.swap.RLock()
	defer w.mu.index.swap.RUnlock()
	for key, l := range w.mu.index.m.All() {
		if p := w.mu.index.locationsAt(key, l); !w.store.Overlay.Has(l) && p.Slabs()&slabs != 0 {
			keys = append(keys, key)
		}
	}
	return keys
}

// withdrawCopyLocked withdraws a row's locations in slabs that are lost.
func (w *Writer) withdrawCopyLocked(key uint64, gone uint8) {
	p := w.mu.index.locations(key)
	if !p.Valid() || w.store.Overlay.Has(p.First) || p.Slabs()&gone == 0 {
		return
	}
	left, out := p.Within(^gone)
	for l := range out.All() {
		w.store.Release(l, false)
	}
	if left.Valid() {
		w.mu.index.insert(key, left)
		return
	}
	w.withdrawnLocked(key)
	w.mu.index.withdraw(key, slab.Evicted)
	w.Counts.Lost.Add(1)
}
