package change

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// retireLocked adds a row's slots to the open group, except slots that location words of other rows name. moved says that the row has moved, or was to move.
func (w *Writer) retireLocked(key uint64, p place.Locations, moved bool) {
	for l := range p.All() {
		if last, reserved := w.store.Release(l, moved); last {
			w.mu.retire.open.slots = append(w.mu.retire.open.slots,
				slot{device: l.Slab(), offset: l.Offset(), bytes: w.store.SlotBytes(key, l), reserved: reserved})
		}
	}
}

// startProcessingLocked starts the goroutine that processes groups, unless it exists or no group can be processed any more.
func (w *Writer) startProcessingLocked() {
	if w.mu.retire.running || w.mu.err != nil || w.life.Err() != nil {
		return
	}
	w.mu.retire.running = true
	w.tasks.Go(w.processGroups)
}

// processGroups processes one group after the other until the open group is empty. A group whose epoch does not pass stays as it is: batches may still
// read what it holds.
func (w *Writer) processGroups() {
	pprof.SetGoroutineLabels(w.watch.Labels(w.life, "retire")) // replaces the labels inherited from the caller
	for {
		group := w.nextGroup()
		if group == nil {
			return
		}
		if err := w.waitEpoch(w.life); err != nil {
			if w.life.Err() == nil {
				w.fail(err)
			}
			return
		}
		for _, share := range group.shares {
			share.Release()
		}
		for len(group.slots) > changedRows { // a cycle may retire a million slots
			err := w.change(func() error {
				w.freeSlotsLocked(group.slots[:changedRows])
				return w.mu.err
			})
			if err != nil {
				return
			}
			group.slots = group.slots[changedRows:]
		}
		err := w.change(func() error {
			w.processLocked(group)
			w.mu.retire.processing = nil
			close(group.done)
			w.advanceLocked()
			return w.mu.err
		})
		if err != nil {
			return
		}
	}
}

// nextGroup makes the open group the one that is processed, and opens another. It returns nil, and the goroutine ends, if there is nothing to process.
func (w *Writer) nextGroup() *retired {
	w.mu.Lock()
	defer w.mu.Unlock()
	group := w.mu.retire.open
	if group.empty() || w.mu.err != nil || w.life.Err() != nil {
		w.mu.retire.running = false
		w.advanceLocked()
		return nil
	}
	w.mu.retire.open, w.mu.retire.processing = newRetired(), group
	return group
}

// Pauses between attempts to wait for an epoch, about a second together.
const (
	firstPause = time.Millisecond
	lastPause  = time.Second
)

// waitEpoch is read.Set.WaitEpoch that tries again for a while if it fails, because a launch that a device refuses once may succeed later.
func (w *Writer) waitEpoch(ctx context.Context) error {
	for pause := firstPause; ; pause *= 2 {
		err := w.set.WaitEpoch(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		err = fmt.Errorf("waiting for batches: %w", err)
		if pause > lastPause {
			return err
		}
		w.watch.Log.Warn("not known yet which batches have ended", slog.Any("error", err), slog.Duration("again in", pause))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		case <-w.life.Done():
			return w.o.Closed
		}
	}
}

// epoch is waitEpoch that also ends when another process has held it back for too long.
func (w *Writer) epoch(ctx context.Context) error {
	if w.set.Readers() == nil && !w.set.Kept.Waits() {
		return w.waitEpoch(ctx)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	passed := make(chan error, 1)
	go func() { passed <- w.waitEpoch(ctx) }()
	for {
		select {
		case err := <-passed:
			return err
		case <-time.After(heldInterval):
		}
		if err := w.heldBack(); err != nil {
			stop()
			<-passed
			return err
		}
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
	if err := poison(w.mu.index.devices[s.device], s); err != nil && !w.set.Survives(d) {
		return err
	}
	return nil
}

// flush waits until everything that has been retired so far is processed.
func (w *Writer) flush(ctx context.Context) error {
	done := w.retiring()
	if done == nil {
		return nil
	}
	return w.await(ctx, done)
}

// retiring returns a channel that is closed when everything that has been retired so far is processed, nil if it is.
func (w *Writer) retiring() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	group := w.mu.retire.open
	if group.empty() {
		group = w.mu.retire.processing
	}
	if group == nil {
		return nil
	}
	w.startProcessingLocked()
	return group.done
}

// await waits until progress is closed. The caller must have read the channel under the lock under which it found that it has to wait;
// otherwise it could miss the wake-up. It returns the writer's error once that has failed, and an error if another process holds it back.
func (w *Writer) await(ctx context.Context, progress <-chan struct{}) error {
	return w.awaitUnless(ctx, progress, w.heldBack)
}

// awaitLogged is await for rows that a log has: memory would serve older versions for ever if another process that holds the writer back ended the wait. Only Close ends
// it then.
func (w *Writer) awaitLogged(progress <-chan struct{}) error {
	return w.awaitUnless(w.life, progress, func() error {
		if w.moving.Err() == nil {
			return nil
		}
		return w.heldBack()
	})
}

// heldBack returns an error that names another process which holds back changes, nil if there is none.
func (w *Writer) heldBack() error {
	if r := w.set.Readers(); r != nil {
		if err := r.Held(); err != nil {
			return err
		}
	}
	return w.set.Kept.Held()
}

// awaitUnless is await. It ends with the error of givenUp, which it asks for now and then, if there is one.
func (w *Writer) awaitUnless(ctx context.Context, progress <-chan struct{}, givenUp func() error) error {
	for {
		if err := givenUp(); err != nil {
			return err
		}
		look := (<-chan time.Time)(nil)
		if w.set.Readers() != nil || w.set.Kept.Waits() {
			look = time.After(heldInterval)
		}
		select {
		case <-progress:
			return w.Err()
		case <-w.failed:
			return w.Err()
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
