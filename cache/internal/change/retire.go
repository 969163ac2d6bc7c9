package change

import (
	"context"
	"errors"
	"runtime/pprof"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/device"
)

// retirement is what was withdrawn and waits for its epow. One goroutine, which lives as long as there is something to do, closes the
// open group, waits until every batch that had begun by then has ended, and then deals with the group.
type retirement struct {
	open     *retired
	dealing  *retired      // waits for its epoch, or is being dealt with; nil: none
	running  bool          // the goroutine
	progress chan struct{} // closed, and replaced, after each group
}

// retired is a group of what waits for the batches that may still read it.
type retired struct {
	slots    []slot
	overlay  []overlaySlot
	mapSlots []int64
	rows     []*fresh
	buffers  []retiredBuffer
	done     chan struct{} // closed once it is dealt with
}

func (r *retired) empty() bool {
	return len(r.slots)+len(r.overlay)+len(r.mapSlots)+len(r.rows)+len(r.buffers) == 0
}

// slot is a place in a slab.
type slot struct {
	device int
	offset int64
	bytes  int
	aside  bool // counted in place.Slab.Aside
}

// overlaySlot is a place in the overlay.
type overlaySlot struct {
	place.OverlaySlot
	waited bool // an epoch has passed since batches found it
}

type retiredBuffer struct {
	device device.Device
	buffer device.Buffer
}

func newRetired() *retired { return &retired{done: make(chan struct{})} }

// AlignedBytes returns memory aligned to 8 bytes. n is a multiple of 8.
func AlignedBytes(n int64) []byte {
	words := make([]uint64, n/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n)
}

// retireLocked has slots freed once no batch can read them.
func (w *Writer) retireLocked(key uint64, p place.Places) {
	for l := range p.All() {
		w.mu.retire.open.slots = append(w.mu.retire.open.slots, slot{device: l.Slab(), offset: l.Offset(), bytes: w.store.SlotBytes(key, l)})
	}
}

// workLocked has the open group dealt with.
func (w *Writer) workLocked() {
	if w.mu.retire.running || w.life.Err() != nil {
		return
	}
	w.mu.retire.running = true
	w.tasks.Go(w.work)
}

// work deals with one group after the other until there is none.
func (w *Writer) work() {
	pprof.SetGoroutineLabels(w.watch.Labels(w.life, "retire")) // not those of whoever retired something
	for {
		w.mu.Lock()
		group := w.mu.retire.open
		if group.empty() || w.mu.err != nil || w.life.Err() != nil {
			w.mu.retire.running = false
			if w.mu.err != nil { // nobody will deal with the group
				close(group.done)
				w.mu.retire.open = &retired{buffers: group.buffers, done: make(chan struct{})}
			}
			w.advanceLocked()
			w.mu.Unlock()
			return
		}
		w.mu.retire.open, w.mu.retire.dealing = newRetired(), group
		w.mu.Unlock()
		err := w.set.WaitEpoch(w.life)
		w.mu.Lock()
		if err == nil {
			for len(group.slots) > changedRows { // a cycle's may be a million
				w.freeSlotsLocked(group.slots[:changedRows])
				group.slots = group.slots[changedRows:]
				w.mu.Unlock()
				w.mu.Lock()
			}
			w.dealLocked(group)
		} else {
			w.mu.retire.open.buffers = append(w.mu.retire.open.buffers, group.buffers...)
		}
		w.mu.retire.dealing = nil
		close(group.done)
		w.advanceLocked()
		w.mu.Unlock()
	}
}

// advanceLocked wakes whoever waits for progress.
func (w *Writer) advanceLocked() {
	close(w.mu.retire.progress)
	w.mu.retire.progress = make(chan struct{})
}

// dealLocked does what had to wait for the batches of a group's time.
func (w *Writer) dealLocked(g *retired) {
	w.freeSlotsLocked(g.slots)
	var errs []error
	// A place in the overlay is published as soon as it is written, to kernels that run already: none of them may have begun
	// while an earlier one read there, and brought what it read into caches they share. So it waits twice.
	for _, s := range g.overlay {
		if s.waited {
			w.store.Overlay.Free(s.OverlaySlot)
			continue
		}
		s.waited = true
		w.mu.retire.open.overlay = append(w.mu.retire.open.overlay, s)
	}
	for _, s := range g.mapSlots {
		w.mu.index.log.operation()
		w.mu.index.m.Reclaim(s)
	}
	for _, b := range g.buffers {
		b.device.Free(b.buffer)
	}
	for _, f := range g.rows {
		if !f.replaced {
			errs = append(errs, w.advanceFreshLocked(f))
		}
	}
	errs = append(errs, w.publishLocked())
	w.failLocked(errors.Join(errs...))
}

// freeSlotsLocked gives slots that nothing reads to the allocators.
func (w *Writer) freeSlotsLocked(slots []slot) {
	for _, s := range slots {
		w.failLocked(w.freeLocked(s))
	}
}

// freeLocked gives a slot that nothing reads to the allocator.
func (w *Writer) freeLocked(s slot) error {
	d, of := w.set.Devices[s.device], w.store.Slabs[s.device]
	of.Slots.Free(s.offset, s.bytes)
	if s.aside {
		of.Aside -= int64(s.bytes)
	}
	if d.IsLost() {
		return nil
	}
	if err := poison(w.mu.index.mirrors[s.device], s); err != nil && !w.set.Survives(d) {
		return err
	}
	return nil
}

// flush waits until everything that has been retired so far is dealt with.
func (w *Writer) flush(ctx context.Context) error {
	w.mu.Lock()
	group := w.mu.retire.open
	if group.empty() {
		group = w.mu.retire.dealing
	}
	if group != nil {
		w.workLocked()
	}
	w.mu.Unlock()
	if group == nil {
		return nil
	}
	return w.await(ctx, group.done)
}

// await waits for a group or for progress, read under the lock under which it was seen that it takes waiting.
func (w *Writer) await(ctx context.Context, progress <-chan struct{}) error {
	select {
	case <-progress:
	case <-ctx.Done():
		return ctx.Err()
	case <-w.life.Done():
		return w.o.Closed
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.err
}
