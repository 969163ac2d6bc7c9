package change

import (
	"context"
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
func (l *losses) frontLeft() bool {
	select {
	case <-l.left:
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
		return true
	}
	if !w.set.OthersWork(d) || w.life.Err() != nil {
		return false
	}
	if resume := w.set.Pause(); resume != nil {
		l.mu.resume = resume
	}
	d.SetLost(d.Device.Err()) // after pausing: lanes that are opened from now on may not begin with old maps
	l.mu.todo = append(l.mu.todo, d.Index)
	w.watch.Log.Error("device lost: its rows are withdrawn, the others serve on", "device", d.Index, "error", d.Device.Err())
	if !l.mu.running {
		l.mu.running = true
		w.tasks.Go(w.settleLosses)
	}
	return true
}

// settleLosses withdraws the slabs of lost devices, then lets batches begin again.
func (w *Writer) settleLosses() {
	l := &w.losses
	for {
		l.mu.Lock()
		if len(l.mu.todo) == 0 {
			l.mu.running = false
			l.mu.resume()
			l.mu.Unlock()
			w.tellReaders()
			return
		}
		lost := l.mu.todo[0]
		l.mu.todo = l.mu.todo[1:]
		l.mu.Unlock()
		w.tellReaders()
		w.withdrawSlab(lost)
		if lost == 0 && w.store.Overlay.Front > 0 {
			w.set.WaitEpoch(w.life) // batches that began before
			close(l.left)
		}
	}
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
func (w *Writer) withdrawSlab(lost int) {
	gone := uint8(1) << lost
	w.mu.Lock()
	w.store.SetTopology(w.store.Topology.Load().Without(lost))
	w.store.Slabs[lost].Limit = 0
	capacity := w.store.Capacity(w.store.Limits())
	// From here on nothing is published in the lost slab: rows that go back to slots while keys are collected would not be among them.
	for _, f := range w.mu.updated {
		f.newPlaces, _ = f.newPlaces.Within(^gone)
	}
	w.mu.Unlock()
	var keys []uint64
	w.mu.index.swap.RLock()
	for key, l := range w.mu.index.m.All() {
		if p := w.mu.index.placesAt(key, l); !w.store.Overlay.Has(l) && p.Slabs()&gone != 0 {
			keys = append(keys, key)
		}
	}
	w.mu.index.swap.RUnlock()
	inParts(w, observe.LossOfDevice, keys, func(key uint64) { w.withdrawCopyLocked(key, gone) })
	w.mu.Lock()
	w.publishLocked()
	w.mu.Unlock()
	w.learner.Call(func(p admission.Policy) { p.Resize(capacity) })
}

// withdrawCopyLocked withdraws a row's places in slabs that are lost.
func (w *Writer) withdrawCopyLocked(key uint64, gone uint8) {
	p := w.mu.index.places(key)
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
