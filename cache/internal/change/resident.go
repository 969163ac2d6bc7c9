package change

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tensorcache/tensorcache/cache/internal/observe"
	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// residentBatch is rows of a resident table that are updated together: in the overlay they have slots of one length in one piece. All processors, or the
// devices, share the work. The batch leaves the overlay as an updatedRow does. An epoch after it came, the devices copy the rows
// to their slots and overflow places, which no batch reads; two epochs later the rows' words say so, and the piece of the overlay is retired. Rows of which
// a later batch has a newer version are left out of these steps.
type residentBatch struct {
	number uint32 // in Writer.mu.residents, and in read.Resident for each row whose newest version this is
	table  int
	rows   []int64
	stored []uint32 // stored lengths; raw rows have the row bytes
	piece  place.OverlaySlot
	stride int
	steps  int
}

const (
	// residentRows and residentBytes bound a batch: what one hold of the writer's lock publishes. A batch takes at most one of residentPieces parts of the
	// overlay, as there are several on their way.
	residentRows, residentBytes = 1 << 15, 32 << 20
	residentPieces              = 8
	// residentPart is how many rows a goroutine takes at a time: few, as the last one holds up all others.
	residentPart = 512
	// residentSteps are the epochs that a batch waits for: until no batch reads the rows' places, and two after they are written. As with slots of the
	// overlay (processLocked), a kernel that runs while the words change must not find a slot's old bytes in a cache that an earlier kernel filled.
	residentSteps = 3
)

// residents are the batches in the overlay, by number from 1 on. rows is how many rows are served from them.
type residents struct {
	batches map[uint32]*residentBatch
	last    uint32 // number given
	rows    int64
	// slots and overs are memory for what goes to slots and overflow places of the devices.
	slots [slab.MaxSlabs][]kernels.ScatterItem
	overs [buddy.MaxRanges][slab.MaxSlabs][]kernels.ScatterItem // by range
}

// next returns a number that no batch has.
func (r *residents) next() (n uint32, ok bool) {
	if len(r.batches) == read.Batches-1 {
		return 0, false
	}
	for {
		if r.last = (r.last + 1) % read.Batches; r.last != 0 && r.batches[r.last] == nil {
			return r.last, true
		}
	}
}

// slot returns the slot of a row of the batch.
func (b *residentBatch) slot(i int) place.OverlaySlot {
	return place.OverlaySlot{Offset: b.piece.Offset + int64(i*b.stride), Bytes: b.stride}
}

// inParts calls f for parts of the batch, and then done for each, one after the other.
func (b *residentBatch) inParts(f func(from, to int) (done func())) {
	var one sync.Mutex
	host.Workers(0).For(len(b.rows), residentPart, func(from, to int) {
		if done := f(from, to); done != nil {
			one.Lock()
			defer one.Unlock()
			done()
		}
	})
}

// residentWords are words of resident tables that the devices do not have yet, by table and device. A row has at most one word between two publications.
type residentWords map[int]*[slab.MaxSlabs][]word

// add adds words of one table, by device.
func (r residentWords) add(table int, words *[slab.MaxSlabs][]word) {
	if r[table] == nil {
		r[table] = new([slab.MaxSlabs][]word)
	}
	for d, of := range words {
		r[table][d] = append(r[table][d], of...)
	}
}

// publishResident stores the words of resident tables on the devices. finish waits for it.
func (x *index) publishResident() error {
	var errs []error
	for table, words := range x.residents {
		r := x.set.Tables[table].Resident.Rows
		errs = append(errs, x.onDevices(func(i int, m *deviceWriter) error {
			if len(words[i]) == 0 {
				return nil
			}
			return m.store(r.Words[i], words[i])
		}))
		for i := range words {
			words[i] = words[i][:0]
		}
	}
	return errors.Join(errs...)
}

func (r *resident) update(ctx context.Context, rows []int64, data []byte, _ *observe.Cause) (done int, err error) {
	w, t, table, rowBytes := r.w, r.t, r.table, r.t.Tier.RowBytes()
	gate := t.Resident.Gate.RLocker()
	if err := lock(ctx, gate, t.Resident.Gate.TryRLock); err != nil {
		return 0, err
	}
	defer gate.Unlock()
	// While a batch is published the next one is encoded.
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	type encoded struct {
		b   *residentBatch
		err error
	}
	next := make(chan encoded, 1)
	encode := func(from int) {
		b, err := w.encodedResident(ctx, t, table, rows[from:], data[from*rowBytes:])
		next <- encoded{b, err}
	}
	encoding := false
	defer func() { // after a panic, too: Close must not free what is being encoded
		if encoding {
			stop()
			if unused := <-next; unused.err == nil {
				w.dropResident(unused.b)
			}
		}
	}()
	if len(rows) > 0 {
		encode(0)
	}
	for done < len(rows) {
		now := <-next
		encoding = false
		if now.err != nil {
			return done, now.err
		}
		end := done + len(now.b.rows)
		if end < len(rows) {
			encoding = true
			go encode(end)
		}
		if err := w.onceReadable(ctx, now.b, func() error { return w.publishBatchLocked(t, now.b) }); err != nil {
			w.dropResident(now.b)
			return done, err
		}
		done = end
	}
	return done, nil
}

// encodedResident returns a batch of the first of some rows, which lie in the overlay.
func (w *Writer) encodedResident(ctx context.Context, t *read.Table, table int, rows []int64, data []byte) (*residentBatch, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		b, wait, err := w.beginResident(t, table, rows)
		if err != nil {
			return nil, err
		}
		if b != nil {
			if err := w.encodeResident(t, b, data[:len(b.rows)*t.Tier.RowBytes()]); err != nil {
				w.dropResident(b)
				return nil, err
			}
			return b, nil
		}
		w.Counts.Waits.Add(1)
		if err := w.await(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// lock locks what a move to another target holds while it waits for batches, unless ctx ends before.
func lock(ctx context.Context, l sync.Locker, try func() bool) error {
	if try() {
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	locked := make(chan struct{})
	go func() {
		l.Lock()
		select {
		case locked <- struct{}{}:
		case <-ctx.Done():
			l.Unlock()
		}
	}()
	select {
	case <-locked:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// beginResident returns a batch of the first of some rows, with slots in the overlay. If there is no room yet, it returns a channel to wait for.
func (w *Writer) beginResident(t *read.Table, table int, rows []int64) (b *residentBatch, wait <-chan struct{}, err error) {
	w.mu.Lock()
	defer w.unlock()
	all, of := w.store.Overlay.Slots, &w.mu.residents
	stride := place.OverlayBytes(t.Tier.RowBytes())
	most := max(1, min(residentRows, residentBytes/stride, int(all.Capacity()/residentPieces)/stride))
	number, ok := of.next()
	if w.mu.err != nil || !ok {
		return nil, w.mu.retire.progress, w.mu.err
	}
	b = &residentBatch{number: number, table: table, stride: stride}
	for n := min(len(rows), most); n > 0; n /= 2 {
		b.piece.Bytes = n * stride
		if b.piece.Offset, ok = all.Alloc(b.piece.Bytes); ok {
			b.rows, b.stored = slices.Clone(rows[:n]), make([]uint32, n) // the caller's rows are its own again when Update has returned
			of.batches[number] = b
			return b, nil, nil
		}
		if len(of.batches) > 0 && n <= min(len(rows), most)/4 { // a longer piece will be free when some batch has left
			break
		}
	}
	return nil, w.mu.retire.progress, nil
}

// dropResident gives up a batch that has not been published. If it has, the writer has failed.
func (w *Writer) dropResident(b *residentBatch) {
	w.mu.Lock()
	defer w.unlock()
	if w.mu.err == nil {
		w.store.Overlay.Slots.Free(b.piece.Offset, b.piece.Bytes)
		delete(w.mu.residents.batches, b.number)
	}
	w.advanceLocked()
}

// encodeResident writes a batch's rows to the overlay.
func (w *Writer) encodeResident(t *read.Table, b *residentBatch, data []byte) error {
	k, rowBytes, to := t.Tier.Codec(), t.Tier.RowBytes(), w.store.Overlay.Mem.Bytes()
	if done, err := w.encodeOnDevice(b, data, rowBytes); done {
		return err
	}
	var failed error
	b.inParts(func(first, end int) func() {
		var buf []byte
		if k != nil {
			buf = make([]byte, k.EncodeBound())
		}
		for i := first; i < end; i++ {
			row, err := encodeRow(k, buf, data[i*rowBytes:][:rowBytes])
			if err != nil {
				return func() { failed = err }
			}
			b.stored[i] = uint32(copy(to[b.slot(i).Offset:], row.stored))
		}
		return nil
	})
	return failed
}

// copyToFrontLocked copies a batch's piece of the overlay to the front of the first device's slab, where devices read it if the overlay is there. If the
// device has been lost and batches still look there, it returns a channel to wait for.
func (w *Writer) copyToFrontLocked(b *residentBatch) (wait <-chan struct{}, err error) {
	first, o := w.set.Devices[0], w.store.Overlay
	if o.Front == 0 || w.losses.frontLeft() {
		return nil, nil
	}
	if first.IsLost() {
		return w.losses.left, nil
	}
	m, from, to := w.mu.index.devices[0], b.piece.Offset, b.piece.Offset+int64(b.piece.Bytes)
	err = errors.Join(m.stream.Copy(first.Slab.Slice(from, to), o.Mem.Slice(from, to)), m.stream.Synchronize())
	if err != nil && w.set.Survives(first) {
		return w.losses.left, nil
	}
	return nil, w.failLocked(err)
}

// onceReadable calls f with the lock held, once devices can read a batch's piece of the overlay, and returns its error.
func (w *Writer) onceReadable(ctx context.Context, b *residentBatch, f func() error) error {
	for {
		var wait <-chan struct{}
		err := w.change(func() (err error) {
			if wait, err = w.copyToFrontLocked(b); wait != nil || err != nil {
				return err
			}
			return f()
		})
		if wait == nil || err != nil {
			return err
		}
		if err := w.await(ctx, wait); err != nil {
			return err
		}
	}
}

// publishBatchLocked makes batches read the rows from the overlay. Rows beyond the table's end make it longer.
func (w *Writer) publishBatchLocked(t *read.Table, b *residentBatch) error {
	r, rowBytes, length := t.Resident, t.Tier.RowBytes(), t.Tier.Rows()
	longest := length
	var all read.ResidentChange
	b.inParts(func(from, to int) func() {
		var words [slab.MaxSlabs][]word
		var by read.ResidentChange
		last := int64(-1)
		for i := from; i < to; i++ {
			row, n, d := b.rows[i], int(b.stored[i]), r.Rows.Device(b.rows[i])
			r.Put(row, n, b.number, length, &by)
			at := buddy.At(w.store.Overlay.Location(b.slot(i), n, n < rowBytes))
			words[d] = append(words[d], word{uint64(r.Rows.Local(row)), uint64(at)})
			last = max(last, row)
		}
		return func() {
			w.mu.index.residents.add(b.table, &words)
			all.Add(by)
			longest = max(longest, last+1)
		}
	})
	t.Apply(all)
	w.mu.residents.rows += all.Overlay
	w.mu.retire.open.residents = append(w.mu.retire.open.residents, b)
	w.Counts.Updated.Add(int64(len(b.rows)))
	if err := w.publishLocked(); err != nil {
		return err
	}
	if longest > length { // after publishing, so that a row number becomes valid only once its row can be found
		t.Tier.Grow(longest)
		t.GrownResident(length)
		w.set.Lengthened(b.table)
	}
	return nil
}

// advanceResidentLocked takes a batch one step out of the overlay. REQUIRES: an epoch has passed since the last step.
func (w *Writer) advanceResidentLocked(b *residentBatch) error {
	if b.steps++; b.steps == residentSteps {
		w.writeBackLocked(b)
		return nil
	}
	w.mu.retire.open.residents = append(w.mu.retire.open.residents, b)
	if b.steps > 1 {
		return nil
	}
	t := w.set.Tables[b.table].Resident
	r := t.Rows
	slots, overs := &w.mu.residents.slots, &w.mu.residents.overs
	for d := range slots {
		slots[d] = slots[d][:0]
		for n := range overs {
			overs[n][d] = overs[n][d][:0]
		}
	}
	b.inParts(func(from, to int) func() {
		var slot [slab.MaxSlabs][]kernels.ScatterItem
		var over [buddy.MaxRanges][slab.MaxSlabs][]kernels.ScatterItem
		bytes := int64(0)
		for i := from; i < to; i++ {
			row, n := b.rows[i], int(b.stored[i])
			if t.Batch(row) != b.number {
				continue
			}
			d, local, of := r.Device(row), r.Local(row), t.Of(row)
			at, head := uint32(i*b.stride), min(n, of.Target)
			slot[d] = append(slot[d], kernels.ScatterItem{To: uint64(of.SlotOf(local)), From: at, Bytes: uint32(head)})
			if n > head {
				over[of.Number][d] = append(over[of.Number][d], kernels.ScatterItem{To: uint64(of.OverflowOf(local, r.RowBytes)), From: at + uint32(head), Bytes: uint32(n - head)})
				if of.Peers == nil {
					bytes += int64(n - head)
				}
			}
		}
		return func() {
			for d := range slots {
				slots[d] = append(slots[d], slot[d]...)
				for n := range overs {
					overs[n][d] = append(overs[n][d], over[n][d]...)
				}
			}
			w.Counts.HostBytes.Add(bytes)
		}
	})
	from := w.store.Overlay.Mem.Slice(b.piece.Offset, b.piece.Offset+int64(b.piece.Bytes))
	return w.mu.index.onDevices(func(i int, m *deviceWriter) error {
		err := m.scatter(r.Slots[i], from, slots[i])
		for n := range overs {
			for d, items := range overs[n] {
				if of := r.Ranges.Of(n); len(items) > 0 && of.Writer(d) == i {
					err = errors.Join(err, m.scatter(of.Buddy[d], from, items))
				}
			}
		}
		return err
	})
}

// writeBackLocked makes batches read the rows from their slots and overflow places, and retires the batch's piece of the overlay.
func (w *Writer) writeBackLocked(b *residentBatch) {
	t := w.set.Tables[b.table].Resident
	r := t.Rows
	b.inParts(func(from, to int) func() {
		var words [slab.MaxSlabs][]word
		for i := from; i < to; i++ {
			row, n := b.rows[i], int(b.stored[i])
			if t.Batch(row) != b.number {
				continue
			}
			t.Leave(row)
			d := r.Device(row)
			words[d] = append(words[d], word{uint64(r.Local(row)), uint64(buddy.Home(n, n < r.RowBytes).In(t.Of(row).Number))})
		}
		return func() {
			w.mu.index.residents.add(b.table, &words)
			for d := range words {
				w.mu.residents.rows -= int64(len(words[d]))
			}
		}
	})
	delete(w.mu.residents.batches, b.number)
	w.mu.retire.open.overlay = append(w.mu.retire.open.overlay, overlaySlot{OverlaySlot: b.piece})
}
