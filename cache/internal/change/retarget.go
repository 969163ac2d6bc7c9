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

// A table of resident rows moves to another target, or to several by range of rows, in place: the slots of the new ranges take the memory of the old ones,
// window by window, in an order (moveOrder) in which a new slot covers only old ones of its window and of windows that have moved. Overflow places lie in buddy
// memory of the new ranges' own; that of the old ones is freed at the end.
//
// A window is a batch, like one of updates: its rows are put in the overlay, as they are, and their words say so. It goes through the steps of such batches, an epoch
// after each other: the rows are written to their places, which are in the new range now; their words name these. Rows that are in the overlay as a window
// comes to them are waited for, and updates wait until the window is in the overlay.

// Retarget moves a resident table to a target, 0 for those with the least expected time of a row. After an error, and when it is cut short, some
// rows have moved, and the table is read and updated as before; the next Retarget moves the others.
func (w *Writer) Retarget(ctx context.Context, table, target int) (err error) {
	r := w.set.Tables[table].Resident
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
	defer w.guard(&err)
	err = w.retarget(ctx, table, target)
	if err != nil && w.moving.Err() != nil {
		return w.o.Closed
	}
	return err
}

// retarget is Retarget. REQUIRES: Resident.Mover is held.
func (w *Writer) retarget(ctx context.Context, table, target int) error {
	t := w.set.Tables[table]
	r := t.Resident
	if err := w.dropUnused(ctx, table); err != nil { // of a call that was held back
		return err
	}
	free := r.Rows.Ranges.Unset()
	parts, err := w.partsFor(table, target, max(1, free))
	if err != nil {
		return err
	}
	if missingRanges(w.spansOf(r, parts)) > free { // the move that ended early, whose ranges have numbers, is completed before: it gives others back
		if r.Moving == nil {
			return fmt.Errorf("cache: table %s: ranges must be at most %d", t.Name, buddy.MaxRanges)
		}
		if err := w.move(ctx, table, r.Moving); err != nil {
			return err
		}
	}
	return w.move(ctx, table, parts)
}

// partsFor returns the parts that a table is to have: one of a given target or, if that is 0, at most `most`, for the rows as they are now.
func (w *Writer) partsFor(table, target, most int) ([]buddy.Part, error) {
	t := w.set.Tables[table]
	r := t.Resident
	if longest := r.MostTarget(); target > longest {
		return nil, fmt.Errorf("%w: table %s: target (%d B) must be at most %d B, for which device memory was taken (MaxTarget)", place.ErrBudget, t.Name, target, longest)
	}
	if target != 0 {
		return []buddy.Part{{To: r.Rows.LocalRows(0), Target: target}}, nil
	}
	stored := make([]int32, t.Tier.Rows())
	for row := range stored {
		stored[row] = int32(r.Stored(int64(row)))
	}
	lim := buddy.Limits{Bytes: r.SlotsRoom(), Overflow: t.WantResident.MaxOverflow, Parts: min(most, buddy.MostParts)}
	c, ok := buddy.ChooseParts(r.Rows.Layout, stored, lim, w.store.OverflowTimes(table, t, r.Rows.Devices, r.Rows.LocalRows(0)))
	if !ok {
		return nil, fmt.Errorf("%w: table %s needs slots of more than %d B for at most %g %% of overflowing rows: MaxTarget says how much device memory is taken",
			place.ErrBudget, t.Name, r.MostTarget(), 100*t.WantResident.MaxOverflow)
	}
	return c.Parts, nil
}

// Interrupt ends calls of Retarget, after the window that they are moving, and those of Update that another process holds back.
func (w *Writer) Interrupt() { w.endMoves() }

// spansOf returns the spans of parts whose slots lie back to back. Their ranges are those of the table that have such slots; the others, without one yet,
// have the number -1.
func (w *Writer) spansOf(r *read.Resident, parts []buddy.Part) (want []read.Span) {
	at := int64(0)
	for _, p := range parts {
		s := read.Span{From: p.From, To: p.To, Number: -1, Range: &kernels.Range{Target: p.Target, Slot: at - p.From*int64(p.Target)}}
		for n := range buddy.MaxRanges {
			of := r.Rows.Ranges.Of(n)
			if of != nil && of.Target == s.Target && of.Slot == s.Slot && r.Covers(of, p.From, p.To) {
				s.Number, s.Range = n, of
				break
			}
		}
		want, at = append(want, s), at+(p.To-p.From)*int64(p.Target)
	}
	return want
}

// missingRanges returns how many of the spans have no range of the table yet.
func missingRanges(want []read.Span) (n int) {
	for _, s := range want {
		n += max(0, -s.Number)
	}
	return n
}

// move moves all rows to parts. REQUIRES: Resident.Mover is held; there are numbers for the ranges that are missing.
func (w *Writer) move(ctx context.Context, table int, parts []buddy.Part) error {
	r := w.set.Tables[table].Resident
	now, want := r.Spans(), w.spansOf(r, parts)
	if slices.Equal(now, want) && (r.Rows.Ranges.Only() >= 0) == (len(now) == 1) {
		r.Moving = nil
		return w.dropUnused(ctx, table)
	}
	if err := w.takeRanges(ctx, table, want); err != nil {
		return err
	}
	r.Moving = parts
	for _, l := range moveOrder(now, want) {
		for l.from < l.end {
			if err := ctx.Err(); err != nil {
				return err
			}
			n, err := w.moveWindow(ctx, table, l)
			if err != nil {
				return err
			}
			if l.down {
				l.end -= n
			} else {
				l.from += n
			}
		}
	}
	return w.endMove(ctx, table, want)
}

// takeRanges makes the ranges that spans are missing, and lets batches know that words name several.
func (w *Writer) takeRanges(ctx context.Context, table int, want []read.Span) error {
	t := w.set.Tables[table]
	r, only := t.Resident, t.Resident.Rows.Ranges.Only()
	if missingRanges(want) == 0 && only < 0 {
		return nil
	}
	var taken []int // indices in want
	give := func() {
		for _, i := range taken {
			r.Rows.Ranges.Set(want[i].Number, nil)
			w.dropRange(r, want[i].Range) // no word names it
		}
	}
	for i, s := range want {
		if s.Number >= 0 {
			continue
		}
		of, err := w.newRange(t, s)
		if err != nil {
			give()
			return err
		}
		want[i].Number, want[i].Range = r.Rows.Ranges.Free(), of
		r.Rows.Ranges.Set(want[i].Number, of)
		taken = append(taken, i)
	}
	err := w.publishRanges(table, -1)
	// Batches that have begun read by other ranges, and kernels that began meanwhile may have found those in caches.
	for range 2 {
		if err == nil {
			err = w.epoch(ctx)
		}
	}
	if err != nil && !w.set.Shared { // else other processes may have mapped them: dropUnused of a later call frees them
		give()
	}
	return err
}

// publishRanges gives all devices the ranges as they are. Batches that begin from now on read by range only, or by the ranges that words name if only is -1.
func (w *Writer) publishRanges(table, only int) error {
	return w.change(func() error { return w.publishRangesLocked(table, only) })
}

func (w *Writer) publishRangesLocked(table, only int) error {
	ranges, image := w.set.Tables[table].Resident.Rows.Ranges, make([]byte, kernels.RangesBytes)
	changes := ranges.Use(only)
	w.set.Renew()
	const front = 8
	return w.failLocked(w.mu.index.onDevices(func(i int, m *deviceWriter) error {
		d := w.set.Devices[i]
		at := d.Table(table).Resident
		ranges.Image(at, image)
		return errors.Join(
			device.Upload(d.Device, at.Directory.Slice(front, kernels.RangesBytes), image[front:]),
			m.store(at.Directory.Slice(0, front), []word{{0, changes}}), m.finish(),
		)
	}))
}

// endMove makes batches read by the ranges that rows have moved to, and gives back what the others had. REQUIRES: all rows are there or on their way.
func (w *Writer) endMove(ctx context.Context, table int, want []read.Span) error {
	r := w.set.Tables[table].Resident
	r.Moving = nil
	r.SetSpans(want)
	if len(want) == 1 {
		if err := w.publishRanges(table, want[0].Number); err != nil {
			return err
		}
	}
	return w.dropUnused(ctx, table)
}

// dropUnused gives back the memory of ranges that no row is in, as words of batches that have begun from now on say.
func (w *Writer) dropUnused(ctx context.Context, table int) error {
	if err := w.Err(); err != nil { // devices may not have stored the words that name other ranges
		return err
	}
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

// A window takes at most one in windowShare bytes of the overlay.
const windowShare = 4

// moveWindow takes the next rows of a move to its span's range. It returns how many local numbers. The rows are then in the overlay, in batches that are
// written to the other range.
func (w *Writer) moveWindow(ctx context.Context, table int, l move) (int64, error) {
	r := w.set.Tables[table].Resident
	devices, stride := int64(r.Rows.Devices), int64(place.OverlayBytes(r.Rows.RowBytes))
	places := min(w.store.Overlay.Slots.Capacity()/windowShare/stride, residentBytes/stride, residentRows)
	n, together := min(l.end-l.from, max(1, places/devices)), int(devices)
	if places < devices { // one device's row at a time
		together = 1
	}
	to := l.to
	if to.From, to.To = l.from, l.from+n; l.down {
		to.From, to.To = l.end-n, l.end
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
				err = w.onceReadable(ctx, b, func() error { return w.publishMoveLocked(table, b, to) })
			}
			if err != nil {
				w.dropResident(b)
			}
		}
		if err != nil && d > 0 { // of a local number, some devices' rows are on their way and others are not
			err = w.fail(err)
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
	// busy returns what to wait for, nil if no row is in the overlay.
	busy := func() (wait <-chan struct{}, err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for row := of.From * int64(r.Rows.Devices); row < min(of.To*int64(r.Rows.Devices), r.Rows.Rows); row++ {
			if r.Batch(row) != 0 {
				w.startProcessingLocked()
				return w.mu.retire.progress, w.mu.err
			}
		}
		return nil, w.mu.err
	}
	for {
		wait, err := busy()
		if err != nil || wait == nil {
			return err
		}
		if err := w.await(ctx, wait); err != nil {
			return err
		}
	}
}

// beginMove returns a batch of the rows of a span that some devices have, with slots in the overlay.
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
		var wait <-chan struct{} // nil if the batch has slots
		err := w.change(func() error {
			all := &w.mu.residents
			number, ok := all.next()
			if ok {
				b.number = number
				if b.piece.Offset, ok = w.store.Overlay.Slots.Alloc(b.piece.Bytes); ok {
					all.batches[number] = b
					return nil
				}
			}
			wait = w.mu.retire.progress
			w.startProcessingLocked()
			return nil
		})
		if wait == nil || err != nil {
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
			at := to[b.slot(i+j).Offset:]
			if head := copy(at, from[j*s.Target:][:min(stored, s.Target)]); head < stored {
				copy(at[head:], rest[j*buddy.Over(s.Target, r.Rows.RowBytes):][:stored-head])
			}
		}
		i += n
	}
	return nil
}

// publishMoveLocked makes batches read the rows from the overlay. Their places are in another span from now on.
func (w *Writer) publishMoveLocked(table int, b *residentBatch, to read.Span) error {
	r := w.set.Tables[table].Resident
	var words [slab.MaxSlabs][]word
	for i, row := range b.rows {
		d, n := r.Rows.Device(row), int(b.stored[i])
		r.Enter(row, b.number)
		at := buddy.At(w.store.Overlay.Location(b.slot(i), n, n < r.Rows.RowBytes))
		words[d] = append(words[d], word{uint64(r.Rows.Local(row)), uint64(at)})
	}
	w.mu.index.residents.add(table, &words)
	w.mu.residents.rows += int64(len(b.rows))
	w.mu.retire.open.residents = append(w.mu.retire.open.residents, b)
	w.respan(w.set.Tables[table], to)
	return w.publishLocked()
}

// respan notes that rows belong to another span. It does nothing if they already do.
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
			by.Moved(r.Stored(row), s, to)
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

// retargetInterval is the time between two looks at whether a table should be moved.
const retargetInterval = time.Second

// retargeting moves a table by itself when more rows of a range have overflow than it wants. What did not succeed is tried again when there are a tenth more.
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
			if failed = over; w.life.Err() != nil {
				return
			}
			w.watch.Log.Warn("resident table not moved to another target", "table", t.Name, slog.Any("error", err))
			return
		}
		failed = 0
		w.watch.Log.Info("resident table moved to another target", "table", t.Name, "from", before, "to", t.Resident.Target(), "ranges", len(t.Resident.Spans()))
	})
}
