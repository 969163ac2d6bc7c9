package read

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache/internal/cold"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// On a GPU the absent rows of a batch pass through page-locked staging memory in rounds, which the batch's stream waits for: see kernels.AbsentBatch. All is
// enqueued at once, with as many rounds as it would take if all rows were absent. When the stream reaches the batch, the GPU lists what is absent, and the
// host reads it while the GPU reads the host tier. There are two halves of staging memory: one is filled while the GPU writes the rows of the other.
const mostRounds = 16 // so that a batch has few launches that may have nothing to do

// rounds is what a lane of a GPU, or a captured batch, has for absent rows. A lane's batch makes a list of its absent rows for each part of it, one after the other,
// and a captured batch one for each replay that has any. Lists are numbered. The next one is made when the GPU has ended the one before.
type rounds struct {
	owner   *Device
	table   *TableView
	from    RowFetcher
	batch   kernels.AbsentBatch
	memory  device.Buffer // page-locked
	state   device.Buffer
	tierEnd device.Event // of a lane: what the last part reads of slabs and of the host tier is read

	// The batch is enqueued as a whole; it will not be, because of an error.
	enqueued, abandoned atomic.Bool

	count  int // rounds of a part
	rows   int // of a round, but the last
	slot   int // bytes of a row in a half
	halves [2]half
	fetch  kernels.Fetch

	// What follows is that of lists: see lists.go.
	lists struct {
		sync.Mutex
		ctx      context.Context
		lane     *lane          // nil: of a captured batch
		ahead    *kernels.Ahead // of the tier; nil: nothing is read ahead
		last     uint32         // number of a lane's last list
		step     int            // the position of the first row of a part is its number, from 0 on, times this
		gone     bool           // nobody looks for lists any more
		taken    uint32         // number of the last list that was taken
		busy     bool           // it is being answered
		below    cold.Outcome   // what became of absent rows
		read     uint64         // of a captured batch: rows read ahead that have been noted
		answered sync.WaitGroup
	}
}

// half is one half of the staging memory.
type half struct {
	rows, words, found device.Buffer
}

// wordsOf views the words of a half.
func wordsOf(b device.Buffer) []slab.Location {
	mem := b.Bytes()
	return unsafe.Slice((*slab.Location)(unsafe.Pointer(unsafe.SliceData(mem))), len(mem)/8)
}

// reserve makes a lane's rounds fit a batch of n rows. The lane's last batch has ended.
func (l *lane) reserve(n int64) (err error) {
	d := l.owner
	if l.rounds == nil {
		l.rounds = &rounds{}
	}
	r := l.rounds
	if r.tierEnd == nil {
		if r.tierEnd, err = d.Device.NewEvent(); err != nil {
			return err
		}
	}
	least := d.set.Tuning.RoundBytes
	if l.route.left {
		least = 0
	}
	return r.reserve(d, l.route.table.Rows.RowBytes, n, least)
}

// reserve makes memory for a batch of n rows, in rounds of at least so many bytes; without rounds if least is 0.
func (r *rounds) reserve(d *Device, rowBytes int, n, least int64) error {
	r.owner = d
	slot := int64(slab.SlotBytes(rowBytes))
	rows := max(1, min(n, max(least/slot, (n+mostRounds-1)/mostRounds)))
	r.rows, r.slot, r.count = int(rows), int(slot), int((n+rows-1)/rows)
	if least == 0 {
		r.count = 0
	}
	var parts [8]int64 // the host's words, the list, and three of each half that is used
	parts[0], parts[1] = abi.AbsentHostBytes, n*kernels.FoundBytes
	for h := range min(r.count, len(r.halves)) {
		parts[2+3*h], parts[3+3*h], parts[4+3*h] = rows*slot+slab.TailSlack, rows*8, rows*kernels.FoundBytes
	}
	total := int64(0)
	for i := range parts {
		parts[i] = (parts[i] + 127) &^ 127
		total += parts[i]
	}
	if err := r.allocate(d, total); err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	at := int64(0)
	next := func(i int, bytes int64) device.Buffer {
		b := r.memory.Slice(at, at+bytes)
		at += parts[i]
		return b
	}
	r.batch.Host, r.batch.Rows = next(0, parts[0]), next(1, n*kernels.FoundBytes)
	for h := range min(r.count, len(r.halves)) {
		r.halves[h] = half{next(2+3*h, rows*slot+slab.TailSlack), next(3+3*h, rows*8), next(4+3*h, rows*kernels.FoundBytes)}
	}
	return nil
}

func (r *rounds) allocate(d *Device, bytes int64) (err error) {
	if r.state.Size() == 0 {
		if r.state, err = d.Device.Alloc(abi.AbsentStateBytes, "batch scratch"); err != nil {
			return err
		}
	}
	if r.memory.Size() >= bytes {
		return nil
	}
	d.staged.Add(-r.memory.Size())
	d.Device.Free(r.memory)
	r.memory = device.Buffer{}
	if r.memory, err = d.allocNear(bytes+bytes/4, "staging of absent rows"); err != nil {
		return err
	}
	d.staged.Add(r.memory.Size())
	return nil
}

// shrink frees the staging memory of a lane that is opened only while batches wait: else a burst of them would keep it until Close. Another goroutine frees it, as
// that may wait for the device, and who releases a lane may be about to enqueue. REQUIRES: the lane's last batch has ended.
func (l *lane) shrink() {
	d := l.owner
	if l.rounds == nil || l.rounds.memory.Size() == 0 || l.index < len(d.lanes)-d.spare {
		return
	}
	memory := l.rounds.memory
	l.rounds.memory = device.Buffer{}
	d.freeing.Go(func() {
		d.freeOne.Lock()
		defer d.freeOne.Unlock()
		d.Device.Free(memory)
		d.staged.Add(-memory.Size())
	})
}

// close gives the memory back. It ignores nil. REQUIRES: no batch runs or will run.
func (r *rounds) close(d *Device) {
	if r == nil {
		return
	}
	r.lists.answered.Wait()
	d.staged.Add(-r.batch.Ahead.Size())
	d.Device.Free(r.batch.Ahead)
	if r.tierEnd != nil {
		r.tierEnd.Close()
	}
	d.staged.Add(-r.memory.Size())
	d.Device.Free(r.memory)
	d.Device.Free(r.state)
}

// enqueueRounds enqueues a batch some of whose rows may be absent: route.enqueue.
func (r *route) enqueueRounds(l *lane, s, second device.Stream, lookup kernels.Lookup, rows int64) error {
	n, g := rows*kernels.FoundBytes, l.rounds
	found, resolved, ordered, words := l.lists.Slice(0, n), l.lists.Slice(n, 2*n), l.lists.Slice(2*n, 3*n), l.lists.Slice(3*n, 3*n+8*rows)
	lookup.Found = found
	l.lookup = lookup
	b, always := &g.batch, l.owner.set.Tuning.OrderMisses
	b.Misses, b.Counters, b.Tier, b.Resolved, b.Words, b.State, b.Ending = found, l.counters, r.table.Rows, resolved, words, g.state, l.ending(1)
	b.Timeout = l.from.Longest()
	b.Pool = r.pool
	if first := l.batch == l.firstPart; r.left {
		g.lists.ahead = r.table.Rows.ReadAhead
		g.ready(uint32(l.batch), 0, true)
	} else if first {
		// From now on the host looks for lists: a call of the driver can return as late as when the GPU is idle, and the GPU waits for the rows.
		g.expect(l)
	}
	if err := s.Launch(&l.lookup); err != nil {
		return err
	}
	l.mark(s, PointLookedUp)
	if err := s.Launch(b.List()); err != nil {
		return err
	}
	tier := r.table.Rows
	tier.Index = words
	batch := transfer.Batch{
		Found: resolved, Ordered: ordered, Counters: l.counters, Buckets: l.buckets, Out: lookup.Out,
		Reading: transfer.Reading{Ordered: r.misses.Ordered || always, Units: r.misses.Units || always},
	}
	if err := l.plan.Enqueue(s, tier, r.table.Codec, batch, l.fetchBegun); err != nil {
		return err
	}
	l.mark(s, PointFetched)
	l.decode = kernels.Decode{
		Found: found, Counters: l.counters, Slabs: l.view.Slabs, Codec: r.table.Codec, Out: lookup.Out, RowBytes: tier.RowBytes, Peers: l.view.Peers, Leave: 1,
	}
	if err := l.enqueueDecode(s, second); err != nil {
		return err
	}
	if r.left { // the first wait also keeps what was counted so far
		if err := s.Launch(b.Wait(0)); err != nil {
			return err
		}
		return s.Launch(b.End())
	}
	if err := s.Record(g.tierEnd); err != nil {
		return err
	}
	return g.enqueue(s, lookup.Out, func(device.Stream) error { return nil })
}

// enqueue enqueues the rounds of a batch, then what uses the rows, and the batch's end.
func (r *rounds) enqueue(s device.Stream, out device.Buffer, use func(device.Stream) error) error {
	b := &r.batch
	for i := range r.count {
		h := &r.halves[i%2]
		if err := s.Launch(b.Wait(i)); err != nil {
			return err
		}
		r.fetch = kernels.Fetch{
			Misses: h.found, AtBack: true, Counters: b.Counters, Codec: r.table.Codec, Out: out,
			Tier: kernels.HostRows{Mem: h.rows, Index: h.words, RowBytes: r.table.Rows.RowBytes},
		}
		if err := s.Launch(&r.fetch); err != nil {
			return err
		}
	}
	if err := use(s); err != nil {
		return err
	}
	return s.Launch(b.End())
}

// list returns the first n rows of the list, and their positions in the batch.
func (r *rounds) list(n int) (rows []int64, positions []uint32) {
	rows, positions = make([]int64, n), make([]uint32, n)
	for i, f := range kernels.FoundView(r.batch.Rows)[:n] {
		rows[i], positions[i] = int64(f.Word), f.Position
	}
	return rows, positions
}
