package change

import (
	"context"
	"errors"
	"runtime/pprof"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/transfer"
)

// retirement holds withdrawn memory until no batch can read it. Retired things are collected in the open group. A goroutine, which exits
// when nothing is retired, starts a new open group, waits until every batch that had begun by then has ended, and processes the old
// group.
type retirement struct {
	open       *retired
	processing *retired      // the group that waits for its epoch or is being processed, nil if none
	running    bool          // the goroutine exists
	progress   chan struct{} // closed and replaced after each group
}

// retired is a group of things that running batches may still read.
type retired struct {
	slots     []slot
	overlay   []overlaySlot
	mapSlots  []int64
	rows      []*updatedRow
	residents []*residentBatch
	buffers   []retiredBuffer
	shares    []*transfer.ShareTable // whose workers may read the buffers
	done      chan struct{}          // closed once the group is processed
}

func (r *retired) empty() bool {
	return len(r.slots)+len(r.overlay)+len(r.mapSlots)+len(r.rows)+len(r.residents)+len(r.buffers) == 0
}

// slot is a piece of a slab.
type slot struct {
	device   int
	offset   int64
	bytes    int
	reserved bool // counted in place.Slab.Reserved
}

// overlaySlot is a retired slot of the overlay.
type overlaySlot struct {
	place.OverlaySlot
	waited bool // one epoch has passed since it was withdrawn
}

type retiredBuffer struct {
	device device.Device
	buffer device.Buffer
}

func newRetired() *retired { return &retired{done: make(chan struct{})} }

// retireLocked adds a row's slots to the open group, but those that location words of other rows name. moved says that the row has moved, or was to move.
func (w *Writer) retireLocked(key uint64, p place.Places, moved bool) {
	for l := range p.All() {
		if last, reserved := w.store.Release(l, moved); last {
			w.mu.retire.open.slots = append(w.mu.retire.open.slots,
				slot{device: l.Slab(), offset: l.Offset(), bytes: w.store.SlotBytes(key, l), reserved: reserved})
		}
	}
}

// startProcessingLocked starts the goroutine that processes groups, unless it exists or the cache closes.
func (w *Writer) startProcessingLocked() {
	if w.mu.retire.running || w.life.Err() != nil {
		return
	}
	w.mu.retire.running = true
	w.tasks.Go(w.processGroups)
}

// processGroups processes one group after the other until the open group is empty.
func (w *Writer) processGroups() {
	pprof.SetGoroutineLabels(w.watch.Labels(w.life, "retire")) // replaces the labels inherited from the caller
	for {
		w.mu.Lock()
		group := w.mu.retire.open
		if group.empty() || w.mu.err != nil || w.life.Err() != nil {
			w.mu.retire.running = false
			if w.mu.err != nil { // the group will not be processed
				close(group.done)
				w.mu.retire.open = &retired{buffers: group.buffers, shares: group.shares, done: make(chan struct{})}
			}
			w.advanceLocked()
			w.mu.Unlock()
			return
		}
		w.mu.retire.open, w.mu.retire.processing = newRetired(), group
		w.mu.Unlock()
		err := w.set.WaitEpoch(w.life)
		if err == nil {
			for _, share := range group.shares {
				share.Release()
			}
		}
		w.mu.Lock()
		if err == nil {
			for len(group.slots) > changedRows { // a cycle may retire a million slots
				w.freeSlotsLocked(group.slots[:changedRows])
				group.slots = group.slots[changedRows:]
				w.mu.Unlock()
				w.mu.Lock()
			}
			w.processLocked(group)
		} else {
			w.mu.retire.open.buffers = append(w.mu.retire.open.buffers, group.buffers...)
			w.mu.retire.open.shares = append(w.mu.retire.open.shares, group.shares...)
		}
		w.mu.retire.processing = nil
		close(group.done)
		w.advanceLocked()
		w.mu.Unlock()
	}
}

// advanceLocked wakes all callers that wait for progress.
func (w *Writer) advanceLocked() {
	close(w.mu.retire.progress)
	w.mu.retire.progress = make(chan struct{})
}

// processLocked frees or advances what a group holds. REQUIRES: the group's epoch has passed.
func (w *Writer) processLocked(g *retired) {
	w.freeSlotsLocked(g.slots)
	var errs []error
	// A new row in the overlay is visible to kernels that already run. Such a kernel must not find the slot's old bytes in a cache
	// that an earlier kernel filled. So an overlay slot waits for two epochs: no kernel that reads the new row then overlaps one
	// that read the old row.
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
			errs = append(errs, w.advanceUpdatedLocked(f))
		}
	}
	for _, b := range g.residents {
		errs = append(errs, w.advanceResidentLocked(b))
	}
	errs = append(errs, w.publishLocked())
	w.failLocked(errors.Join(errs...))
}

// freeSlotsLocked frees slots that no batch reads.
func (w *Writer) freeSlotsLocked(slots []slot) {
	for _, s := range slots {
		w.failLocked(w.freeLocked(s))
	}
}

// freeLocked frees a slot that no batch reads.
func (w *Writer) freeLocked(s slot) error {
	d, of := w.set.Devices[s.device], w.store.Slabs[s.device]
	of.Slots.Free(s.offset, s.bytes)
	if s.reserved {
		of.Reserved -= int64(s.bytes)
	}
	if d.IsLost() {
		return nil
	}
	if err := poison(w.mu.index.mirrors[s.device], s); err != nil && !w.set.Survives(d) {
		return err
	}
	return nil
}

// flush waits until everything that has been retired so far is processed.
func (w *Writer) flush(ctx context.Context) error {
	w.mu.Lock()
	group := w.mu.retire.open
	if group.empty() {
		group = w.mu.retire.processing
	}
	if group != nil {
		w.startProcessingLocked()
	}
	w.mu.Unlock()
	if group == nil {
		return nil
	}
	return w.await(ctx, group.done)
}

// await waits until progress is closed. The caller must have read the channel under the lock under which it found that it has to wait;
// otherwise it could miss the wake-up.
func (w *Writer) await(ctx context.Context, progress <-chan struct{}) error {
	for {
		look := (<-chan time.Time)(nil)
		if r := w.set.Readers(); r != nil {
			if err := r.Held(); err != nil {
				return err
			}
			look = time.After(heldInterval)
		}
		select {
		case <-progress:
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.mu.err
		case <-look:
		case <-ctx.Done():
			return ctx.Err()
		case <-w.life.Done():
			return w.o.Closed
		}
	}
}

// heldInterval is how often a caller that waits asks whether another process holds it back.
const heldInterval = 20 * time.Millisecond

// mapped waits until other processes that read the cache's memory see what has been published.
func (w *Writer) mapped(ctx context.Context) error {
	if r := w.set.Readers(); r != nil {
		return r.Mapped(ctx)
	}
	return nil
}
