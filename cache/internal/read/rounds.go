package read

import (
	"context"
	"fmt"
	"slices"
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

// maxRounds bounds the rounds of a batch, so that few of its launches can have nothing to do.
//
// On a GPU the absent rows of a batch pass through page-locked staging memory in rounds (kernels.AbsentBatch).
// Everything is enqueued at once, with as many rounds as if all rows were absent, and the batch's stream waits for
// each round. When the stream reaches the batch, the GPU lists the absent rows. The host reads them while the GPU
// reads the host tier. The staging memory has two halves: the host fills one while the GPU copies the rows of the
// other.
const maxRounds = 16

// rounds is what a lane of a GPU, or a captured batch, has for absent rows. A lane's batch makes one list of absent
// rows for each of its parts. A captured batch makes one for each replay that has absent rows. Lists are numbered.
// The GPU makes the next list when it has ended the one before.
type rounds struct {
	owner  *Device
	table  *TableView
	from   RowFetcher
	batch  kernels.AbsentBatch
	memory device.Buffer // page-locked
	state  device.Buffer
	// Of a lane: recorded when the batch's last part has read slabs and host tier.
	tierEnd device.Event

	// Set when all parts of the batch are enqueued, and when an error prevents that.
	enqueued, abandoned atomic.Bool

	count  int // rounds of a part
	rows   int // rows of each round but the last
	slot   int // bytes of a row in staging memory
	halves [2]half
	fetch  kernels.Fetch

	// State of the lists, which lists.go explains.
	lists struct {
		sync.Mutex
		ctx      context.Context
		lane     *lane          // nil for a captured batch
		ahead    *kernels.Ahead // rows of the tier that were read ahead; nil: none
		last     uint32         // number of the last list of a lane's batch
		step     int            // rows of a part but the last; part i of a batch, from 0 on, begins at position i*step
		closed   bool           // further lists are ignored
		taken    uint32         // number of the last list taken
		busy     bool           // that list's rows are being read
		outcome  cold.Outcome   // of reading the absent rows so far
		read     uint64         // for a captured batch: how many rows read ahead are marked as used
		answered sync.WaitGroup
	}
}

// half is one half of the staging memory: stored rows, their location words, and their positions in the batch.
type half struct {
	rows, words, found device.Buffer
}

// wordsOf views the location words of a half.
func wordsOf(b device.Buffer) []slab.Location {
	mem := b.Bytes()
	return unsafe.Slice((*slab.Location)(unsafe.Pointer(unsafe.SliceData(mem))), len(mem)/8)
}

// reserve allocates memory for the absent rows of a batch, or part, of n rows. REQUIRES: the lane's last batch has
// ended.
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
	if l.route.deferred {
		least = 0
	}
	return r.reserve(d, l.route.table.Rows.RowBytes, n, least)
}

// reserve allocates memory for n rows, in rounds of at least the given bytes. If least is 0, there are no rounds.
func (r *rounds) reserve(d *Device, rowBytes int, n, least int64) error {
	r.owner = d
	slot := int64(slab.SlotBytes(rowBytes))
	rows := max(1, min(n, max(least/slot, (n+maxRounds-1)/maxRounds)))
	r.rows, r.slot, r.count = int(rows), int(slot), int((n+rows-1)/rows)
	if least == 0 {
		r.count = 0
	}
	var parts [8]int64 // the host's words, the list, and three buffers for each half in use
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
	old := r.memory
	r.memory = d.surplus.take(bytes)
	d.surplus.give(d, old)
	if r.memory.Size() > 0 {
		// The words in front name batches of the lane that had the memory, and each lane numbers its own.
		clear(r.memory.Bytes()[:abi.AbsentHostBytes])
		return nil
	}
	if r.memory, err = d.allocNear(bytes+bytes/4, "staging of absent rows"); err != nil {
		return err
	}
	d.staged.Add(r.memory.Size())
	return nil
}

// surplus is the staging memory that no lane has now. A lane that needs memory takes it from here first. The rest is
// freed while no batch may wait on the GPU for the host: freeing page-locked memory waits for the GPU, and the driver
// makes other calls wait meanwhile, so they would wait for a page. Replays of captured batches are not known to the
// host, and may still hold up freeing.
type surplus struct {
	mu      sync.Mutex
	freed   sync.Cond // freeing has become false
	memory  []device.Buffer
	waits   int  // batches that are under way and may wait for the host
	freeing bool // a goroutine frees memory, without the lock
}

// give adds memory, if there is any, and has what is surplus freed if no batch may wait.
func (s *surplus) give(d *Device, memory device.Buffer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if memory.Size() > 0 {
		s.memory = append(s.memory, memory)
	}
	if len(s.memory) > 0 && s.waits == 0 && !s.freeing {
		s.freeing = true
		d.freeing.Go(d.freeSurplus)
	}
}

// take returns the smallest memory of at least so many bytes, an empty buffer if there is none.
func (s *surplus) take(bytes int64) (memory device.Buffer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	best := -1
	for i, m := range s.memory {
		if m.Size() >= bytes && (best < 0 || m.Size() < s.memory[best].Size()) {
			best = i
		}
	}
	if best >= 0 {
		memory = s.memory[best]
		s.memory = slices.Delete(s.memory, best, best+1)
	}
	return memory
}

// freeSurplus frees surplus memory until there is none, or a batch may wait for the host.
func (d *Device) freeSurplus() {
	s := &d.surplus
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.waits == 0 && len(s.memory) > 0 {
		memory := s.memory
		s.memory = nil
		s.mu.Unlock()
		for _, m := range memory {
			d.Device.Free(m)
			d.staged.Add(-m.Size())
		}
		s.mu.Lock()
	}
	s.freeing = false
	if s.freed.L != nil {
		s.freed.Broadcast()
	}
}

// beginWait announces that the lane's batch may wait on the GPU for the host. It waits for memory that is being freed.
func (l *lane) beginWait() {
	s := &l.owner.surplus
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.countedWait {
		return
	}
	s.freed.L = &s.mu
	for s.freeing {
		s.freed.Wait()
	}
	l.countedWait = true
	s.waits++
}

// endWait takes beginWait back. A spare lane also gives up its staging memory. Otherwise, after a burst of batches that
// wait for absent rows, many lanes would keep such memory. REQUIRES: the lane's last batch has ended.
func (l *lane) endWait() {
	d := l.owner
	if l.rounds == nil {
		return
	}
	if l.countedWait {
		l.countedWait = false
		d.surplus.mu.Lock()
		d.surplus.waits--
		d.surplus.mu.Unlock()
	}
	var memory device.Buffer
	if l.index >= len(d.lanes)-d.spare {
		memory, l.rounds.memory = l.rounds.memory, device.Buffer{}
	}
	d.surplus.give(d, memory)
}

// close frees the memory. It ignores nil. REQUIRES: no batch runs or will run.
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

// enqueueRounds is enqueue for a GPU batch that may have absent rows.
func (r *route) enqueueRounds(l *lane, s, second device.Stream, lookup kernels.Lookup, rows int64) error {
	n, g := rows*kernels.FoundBytes, l.rounds
	found, resolved, ordered, words := l.scratch.Slice(0, n), l.scratch.Slice(n, 2*n), l.scratch.Slice(2*n, 3*n), l.scratch.Slice(3*n, 3*n+8*rows)
	lookup.Found = found
	l.lookup = lookup
	b, always := &g.batch, l.owner.set.Tuning.OrderMisses
	b.Misses, b.Counters, b.Tier, b.Resolved, b.Words, b.State, b.Ending = found, l.counters, r.table.Rows, resolved, words, g.state, l.ending(1)
	b.Timeout = l.from.Longest()
	b.Pool = r.pool
	if first := l.batch == l.firstPart; r.deferred {
		g.lists.ahead = r.table.Rows.ReadAhead
		g.ready(uint32(l.batch), 0, true)
	} else if first {
		// Poll for lists from now on. The driver call may return only when the GPU is idle, and the GPU waits for the
		// rows.
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
	if r.deferred { // the first wait also saves a counter that End publishes
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

// enqueue enqueues the rounds of a batch, then what uses the rows, and the end of the batch.
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

// list returns the first n rows of the list, and their positions.
func (r *rounds) list(n int) (rows []int64, positions []uint32) {
	rows, positions = make([]int64, n), make([]uint32, n)
	for i, f := range kernels.FoundView(r.batch.Rows)[:n] {
		rows[i], positions[i] = int64(f.Word), f.Position
	}
	return rows, positions
}
