package change

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// A table of resident rows moves to another target in place: the slots of the new range take the memory of the old ones, window by window, from one
// end of the table to the other. Slots become shorter from the front and longer from the back, so that a new slot covers only old ones of its window and
// of windows that have moved. Overflow places lie in buddy memory of the new range's own; that of the old one is freed at the end.
//
// A window is a batch, like one of updates: its rows are put in the overlay, as they are, and their words say so. It lands as batches do, an epoch after
// each step: the rows are written to their places, which are in the new range now; their words name these. Rows that are in the overlay as a window
// comes to them are waited for, and updates wait until the window is in the overlay.

// Retarget moves a resident table to a target, 0 for the one with the least expected time of a row. After an error, and when it is cut short, some
// rows have moved, and the table is read and updated as before; the next Retarget moves the others.
func (w *Writer) Retarget(ctx context.Context, table, target int) error {
	t := w.set.Tables[table]
	r := t.Resident
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(w.moving, stop)()
	if err := lock(ctx, &r.Mover, r.Mover.TryLock); err != nil {
		if w.moving.Err() != nil {
			err = w.o.Closed
		}
		return err
	}
	defer r.Mover.Unlock()
	most := r.MostTarget()
	if target == 0 {
		c, ok := w.targetNow(table, most)
		if !ok {
			return fmt.Errorf("%w: table %s needs slots of more than %d B for at most %g %% of overflowing rows: MaxTarget says how much device memory is taken",
				place.ErrBudget, t.Name, most, 100*t.WantResident.MaxOverflow)
		}
		target = c.Target
	}
	if target > most {
		return fmt.Errorf("%w: table %s: target (%d B) must be at most %d B, for which device memory was taken (MaxTarget)", place.ErrBudget, t.Name, target, most)
	}
	// Where neither direction is safe, because the table has longer and shorter slots than wanted, it goes by way of its shortest ones.
	spans, err := r.Spans(), error(nil)
	least := slices.MinFunc(spans, func(a, b read.Span) int { return a.Target - b.Target }).Target
	if !fits(spans, target, true) && !fits(spans, target, false) {
		err = w.move(ctx, table, least)
	}
	if err == nil {
		err = w.move(ctx, table, target)
	}
	if err != nil && w.moving.Err() != nil {
		return w.o.Closed
	}
	return err
}

// Interrupt ends calls of Retarget, after the window that they are moving.
func (w *Writer) Interrupt() { w.endMoves() }

// targetNow chooses a target of at most most bytes for the rows as they are now.
func (w *Writer) targetNow(table, most int) (buddy.Choice, bool) {
	t := w.set.Tables[table]
	h := buddy.NewHistogram(t.Tier.RowBytes())
	for row := range t.Tier.Rows() {
		h.Add(t.Resident.Stored(row), 1)
	}
	cost := w.store.Costs[table]
	return h.Choose(most, t.WantResident.MaxOverflow, buddy.Times{Hit: cost.Hit, Overflow: cost.Miss})
}

// fits says whether rows can move one after the other to slots of a target, from the first local number on or, if up is false, from the last: whether no
// new slot covers an old one of a row that has not moved.
func fits(spans []read.Span, target int, up bool) bool {
	safe := func(local int64, s read.Span, next bool) bool {
		if up {
			return !next || (local+1)*int64(target) <= s.SlotOf(local+1)
		}
		return !next || local*int64(target) >= s.SlotOf(local-1)+int64(s.Target)
	}
	// Offsets grow evenly within a span, so its ends show it.
	for i, s := range spans {
		if up {
			if !safe(s.From, s, s.To-s.From > 1) || !safe(s.To-2, s, s.To-s.From > 1) || i+1 < len(spans) && s.To*int64(target) > spans[i+1].SlotOf(s.To) {
				return false
			}
			continue
		}
		if !safe(s.From+1, s, s.To-s.From > 1) || !safe(s.To-1, s, s.To-s.From > 1) || i > 0 && s.From*int64(target) < spans[i-1].SlotOf(s.From-1)+int64(spans[i-1].Target) {
			return false
		}
	}
	return true
}

// move moves all rows to one range. REQUIRES: Resident.Mover is held.
func (w *Writer) move(ctx context.Context, table, target int) error {
	r := w.set.Tables[table].Resident
	spans := r.Spans()
	if len(spans) == 1 && spans[0].Target == target && r.Rows.Ranges.Only() >= 0 {
		return w.dropUnused(ctx, table)
	}
	up, local := fits(spans, target, true), r.Rows.LocalRows(0)
	to, err := w.rangeFor(ctx, table, target)
	if err != nil {
		return err
	}
	for done := int64(0); done < local; {
		next := done
		if !up {
			next = local - 1 - done
		}
		if s := r.At(next); s.Range == to.Range { // it was on its way when an earlier call ended
			if done = s.To; !up {
				done = local - s.From
			}
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := w.moveWindow(ctx, table, to, done, up)
		if err != nil {
			return err
		}
		done += n
	}
	return w.endMove(ctx, table, to)
}

// rangeFor returns the range that rows are to move to, and lets batches know that words name several. It is a new one, unless an earlier call was
// moving rows there, or back.
func (w *Writer) rangeFor(ctx context.Context, table, target int) (read.Span, error) {
	t := w.set.Tables[table]
	r := t.Resident
	for _, s := range r.Spans() {
		if s.Target == target && s.All {
			return s, nil
		}
	}
	if err := w.dropUnused(ctx, table); err != nil { // of a call that was held back
		return read.Span{}, err
	}
	number := r.Rows.Ranges.Free()
	if number < 0 {
		return read.Span{}, fmt.Errorf("cache: table %s: ranges must be at most %d: call Retarget for one of the targets that it has", t.Name, buddy.MaxRanges)
	}
	to, err := w.newRange(t, target)
	if err != nil {
		return read.Span{}, err
	}
	r.Rows.Ranges.Set(number, to)
	err = w.showRanges(table, -1)
	// Batches that have begun read by other ranges, and kernels that began meanwhile may have found those in caches.
	for range 2 {
		if err == nil {
			err = w.epoch(ctx)
		}
	}
	if err != nil && !w.set.Shared { // else other processes may have mapped it: dropUnused of a later call frees it
		r.Rows.Ranges.Set(number, nil)
		w.dropRange(r, to) // no word names it
	}
	return read.Span{Number: number, Range: to, All: true}, err
}

// showRanges has all devices read the ranges as they are, and batches that begin from now on read by the only one, or by what words say if that is -1.
func (w *Writer) showRanges(table, only int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.err != nil {
		return w.mu.err
	}
	ranges, image := w.set.Tables[table].Resident.Rows.Ranges, make([]byte, kernels.RangesBytes)
	changes := ranges.Use(only)
	w.set.Renew()
	const front = 8
	return w.failLocked(w.mu.index.onMirrors(func(i int, m *mirror) error {
		d := w.set.Devices[i]
		at := d.Table(table).Resident
		ranges.Image(at, image)
		return errors.Join(
			device.Upload(d.Device, at.Directory.Slice(front, kernels.RangesBytes), image[front:]),
			m.store(at.Directory.Slice(0, front), []word{{0, changes}}), m.finish(),
		)
	}))
}

// endMove has batches read by the one range, and gives back what the others had. REQUIRES: all rows are there or on their way.
func (w *Writer) endMove(ctx context.Context, table int, to read.Span) error {
	r := w.set.Tables[table].Resident
	to.From, to.To = 0, r.Rows.LocalRows(0)
	r.SetSpans([]read.Span{to})
	if err := w.showRanges(table, to.Number); err != nil {
		return err
	}
	return w.dropUnused(ctx, table)
}

// dropUnused gives back the memory of ranges that no row is in, as words of batches that have begun from now on say.
func (w *Writer) dropUnused(ctx context.Context, table int) error {
	r := w.set.Tables[table].Resident
	unused := map[int]*kernels.Range{}
	for n := range buddy.MaxRanges {
		if of := r.Rows.Ranges.Of(n); of != nil && !r.Uses(of) {
			unused[n] = of
		}
	}
	if len(unused) == 0 {
		return nil
	}
	if err := w.epoch(ctx); err != nil {
		return err
	}
	for n := range unused {
		r.Rows.Ranges.Set(n, nil)
	}
	if w.set.Shared { // other processes give the memory up
		w.set.Renew()
		if err := w.epoch(ctx); err != nil {
			for n, of := range unused {
				r.Rows.Ranges.Set(n, of) // for the next call
			}
			return err
		}
	}
	for _, of := range unused {
		w.dropRange(r, of)
	}
	return nil
}

// epoch is Set.WaitEpoch that also ends when another process has held it back for too long.
func (w *Writer) epoch(ctx context.Context) error {
	r := w.set.Readers()
	if r == nil {
		return w.set.WaitEpoch(ctx)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	passed := make(chan error, 1)
	go func() { passed <- w.set.WaitEpoch(ctx) }()
	for {
		select {
		case err := <-passed:
			return err
		case <-time.After(heldInterval):
		}
		if err := r.Held(); err != nil {
			stop()
			<-passed
			return err
		}
	}
}

// windowShare is the share of the overlay, one in so much, that a window takes.
const windowShare = 4

// moveWindow takes rows to another range, behind so many local numbers that have been taken there: from the first on or, if up is false, from the last.
// It returns how many. The rows are then in the overlay, in batches that land in the other range.
func (w *Writer) moveWindow(ctx context.Context, table int, to read.Span, done int64, up bool) (int64, error) {
	r := w.set.Tables[table].Resident
	local, devices, stride := r.Rows.LocalRows(0), int64(r.Rows.Devices), int64(place.OverlayBytes(r.Rows.RowBytes))
	places := min(w.store.Overlay.Slots.Capacity()/windowShare/stride, residentBytes/stride, residentRows)
	n, together := min(local-done, max(1, places/devices)), int(devices)
	if places < devices { // one device's row at a time
		together = 1
	}
	if to.From, to.To = done, done+n; !up {
		to.From, to.To = local-done-n, local-done
	}
	r.Gate.Lock()
	defer r.Gate.Unlock()
	if err := w.awaitHome(ctx, r, to); err != nil {
		return 0, err
	}
	before := r.Spans()
	for d := 0; d < int(devices); d += together {
		b, err := w.beginMove(ctx, table, to, d, min(d+together, int(devices)))
		for d > 0 && err != nil && w.life.Err() == nil && w.Err() == nil { // another process holds it back
			time.Sleep(heldInterval)
			b, err = w.beginMove(ctx, table, to, d, min(d+together, int(devices)))
		}
		if err == nil {
			if err = w.stage(r, b, before); err == nil {
				err = w.publishMove(ctx, table, b, to)
			}
			if err != nil {
				w.dropResident(b)
			}
		}
		if err != nil && d > 0 { // of a local number, some devices' rows are on their way and others are not
			w.mu.Lock()
			err = w.failLocked(err)
			w.mu.Unlock()
		}
		if err != nil {
			return 0, err
		}
		ctx = w.life
	}
	return n, nil
}

// awaitHome waits until no row of a span is in the overlay. REQUIRES: nobody updates the table.
func (w *Writer) awaitHome(ctx context.Context, r *read.Resident, of read.Span) error {
	busy := func() bool {
		for row := of.From * int64(r.Rows.Devices); row < min(of.To*int64(r.Rows.Devices), r.Rows.Rows); row++ {
			if r.Batch(row) != 0 {
				return true
			}
		}
		return false
	}
	for {
		w.mu.Lock()
		err, busy, progress := w.mu.err, busy(), w.mu.retire.progress
		if busy {
			w.startProcessingLocked()
		}
		w.mu.Unlock()
		if err != nil || !busy {
			return err
		}
		if err := w.await(ctx, progress); err != nil {
			return err
		}
	}
}

// beginMove returns a batch of the rows of a span that some devices have, with places in the overlay.
func (w *Writer) beginMove(ctx context.Context, table int, of read.Span, first, end int) (*residentBatch, error) {
	r := w.set.Tables[table].Resident
	b := &residentBatch{table: table, stride: place.OverlayBytes(r.Rows.RowBytes)}
	for d := first; d < end; d++ {
		for local := of.From; local < min(of.To, r.Rows.LocalRows(d)); local++ {
			b.rows = append(b.rows, r.Rows.Row(d, local))
		}
	}
	b.stored, b.piece.Bytes = make([]uint32, len(b.rows)), max(1, len(b.rows))*b.stride
	for {
		w.mu.Lock()
		err, wait, all := w.mu.err, w.mu.retire.progress, &w.mu.residents
		number, ok := all.next()
		if ok && err == nil {
			b.number = number
			if b.piece.Offset, ok = w.store.Overlay.Slots.Alloc(b.piece.Bytes); ok {
				all.put(number, b)
			}
		}
		if !ok {
			w.startProcessingLocked()
		}
		w.mu.Unlock()
		if ok || err != nil {
			return b, err
		}
		if err := w.await(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// stage copies the rows of a batch to the overlay, from where they lie by spans. No batch writes there: the rows are in no other batch.
func (w *Writer) stage(r *read.Resident, b *residentBatch, spans []read.Span) error {
	to := w.store.Overlay.Mem.Bytes()
	for i := 0; i < len(b.rows); {
		d, local := r.Rows.Device(b.rows[i]), r.Rows.Local(b.rows[i])
		s := spans[slices.IndexFunc(spans, func(s read.Span) bool { return local < s.To })]
		n := 1 // rows of one device and span follow each other
		for i+n < len(b.rows) && r.Rows.Device(b.rows[i+n]) == d && r.Rows.Local(b.rows[i+n]) < s.To {
			n++
		}
		slots := r.Rows.Slots[d].Slice(s.SlotOf(local), s.SlotOf(local+int64(n)))
		from := slots.Bytes()
		if from == nil {
			from = make([]byte, slots.Size())
			if err := device.Download(w.set.Devices[d].Device, from, slots); err != nil {
				return err
			}
		}
		overs := s.Buddy[d]
		if over := int64(buddy.Over(s.Target, r.Rows.RowBytes)); over > 0 {
			overs = overs.Slice(s.OverflowOf(local, r.Rows.RowBytes), s.OverflowOf(local+int64(n), r.Rows.RowBytes))
		}
		rest := overs.Bytes()
		if rest == nil && overs.Size() > 0 {
			rest = make([]byte, overs.Size())
			if err := device.Download(w.set.Devices[s.Writer(d)].Device, rest, overs); err != nil {
				return err
			}
		}
		for j := range n {
			stored := r.Stored(b.rows[i+j])
			if stored == 0 { // nobody has written it
				stored = r.Rows.RowBytes
			}
			b.stored[i+j] = uint32(stored)
			at := to[b.place(i+j).Offset:]
			if head := copy(at, from[j*s.Target:][:min(stored, s.Target)]); head < stored {
				copy(at[head:], rest[j*buddy.Over(s.Target, r.Rows.RowBytes):][:stored-head])
			}
		}
		i += n
	}
	return nil
}

// publishMove has the rows of a batch read from the overlay, and land in a span, which is theirs from now on.
func (w *Writer) publishMove(ctx context.Context, table int, b *residentBatch, to read.Span) error {
	if err := w.lockShown(ctx, b); err != nil {
		return err
	}
	defer w.mu.Unlock()
	r := w.set.Tables[table].Resident
	var words [slab.MaxSlabs][]word
	for i, row := range b.rows {
		d, n := r.Rows.Device(row), int(b.stored[i])
		r.Enter(row, b.number)
		at := buddy.At(w.store.Overlay.Location(b.place(i), n, n < r.Rows.RowBytes))
		words[d] = append(words[d], word{uint64(r.Rows.Local(row)), uint64(at)})
	}
	w.mu.index.residents.add(table, &words)
	w.mu.residents.rows += int64(len(b.rows))
	w.mu.retire.open.residents = append(w.mu.retire.open.residents, b)
	w.respan(w.set.Tables[table], to)
	return w.publishLocked()
}

// respan notes that rows are of another span. It does nothing if they are already.
func (w *Writer) respan(t *read.Table, to read.Span) {
	r := t.Resident
	if s := r.At(to.From); s.Range == to.Range && s.To >= to.To {
		return
	}
	var after []read.Span
	var by read.ResidentChange
	put := false
	for _, s := range r.Spans() {
		first, end := max(s.From, to.From)*int64(r.Rows.Devices), min(min(s.To, to.To)*int64(r.Rows.Devices), r.Rows.Rows)
		for row := first; row < end; row++ {
			by.Moved(r.Stored(row), s.Target, to.Target)
		}
		before, behind := s, s
		before.To, behind.From = min(s.To, to.From), max(s.From, to.To)
		if before.From < before.To {
			after = append(after, before)
		}
		if !put && to.From < s.To {
			after, put = append(after, to), true
		}
		if behind.From < behind.To {
			after = append(after, behind)
		}
	}
	r.SetSpans(after)
	t.Apply(by)
}

// retargetInterval is how often it is looked whether a table should be moved.
const retargetInterval = time.Second

// retargeting moves a table by itself when more of its rows have overflow than it wants. What did not succeed is tried again when there are a tenth more.
func (w *Writer) retargeting(table int) {
	t, failed := w.set.Tables[table], int64(0)
	w.every("retarget", retargetInterval, func() {
		over, _ := t.Resident.Overflow()
		if over <= failed+failed/10 || !t.Resident.Past(t.Tier.Rows()) {
			return
		}
		before := t.Resident.Target()
		if err := w.Retarget(w.life, table, 0); err != nil {
			if readers := w.set.Readers(); readers != nil && readers.Held() != nil { // for a while
				return
			}
			failed = over
			w.watch.Log.Warn("resident table not moved to another target", "table", t.Name, slog.Any("error", err))
			return
		}
		failed = 0
		w.watch.Log.Info("resident table moved to another target", "table", t.Name, "from", before, "to", t.Resident.Target())
	})
}
