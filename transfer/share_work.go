package transfer

import (
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/internal/numa"
	"github.com/tensorcache/tensorcache/kernels"
)

// shareWork is the share that a Sharer's workers are at, and how they find and leave it. All workers but the first may be C, to
// which it is struct tensorcache_share_work, and which wants addresses; Go has the job beside it.
type shareWork struct {
	// The addresses of the list, the staging memory and the host tier; and of words of ShareHost. Like the job, only the first
	// worker changes them, while nobody is inside.
	list, staging, mem, memBytes         uintptr
	opened, closed, low, claimed, listed uintptr
	number, pieces, piece, unit, slot    uint32
	working, inside                      uint32                  // the number of the share that workers may join, 0 for none; how many have joined
	hot                                  uint32                  // not 0: workers look for work
	stopped                              uint32                  // not 0: workers leave what they are at
	ready                                [abi.SharePieces]uint32 // the number of the share whose piece is gathered
	job                                  shareJob
}

// shareJob is a share as workers in Go see it.
type shareJob struct {
	number, pieces uint32
	terms          *kernels.Share
	mem            []byte
}

const (
	// Workers that had gone to sleep were seen to miss a time-out of 500 µs: after a batch they look for the next one so long, in
	// all while one is enqueued, and then sleep between looks.
	shareLinger = 2 * time.Millisecond
	shareSpin   = 4 * time.Millisecond
	shareSleep  = 50 * time.Microsecond
	// Pieces arrive in their order. One that is not gathered while the first worker gathers so many others, or waits so long, has a
	// worker that the system has put aside: it is gathered again, to memory of its own, so often in a share.
	shareLate      = 3
	shareLateAfter = 100 * time.Microsecond
	shareSpares    = 8
	// The driver takes 5 to 6 µs of the first worker for a copy and its word, a third of what a piece does: so many pieces go at a time,
	// but for the first ones, the last ones and those of workers that take shareLateAfter for fewer.
	shareSend = 8
)

// set makes j what workers are at. REQUIRES: nobody is inside.
func (w *shareWork) set(j shareJob, host *abi.ShareHost, staging device.Buffer) {
	address := func(p *uint32) uintptr { return uintptr(unsafe.Pointer(p)) }
	w.job = j
	w.list, w.staging = uintptr(unsafe.Pointer(unsafe.SliceData(j.terms.List.Bytes()))), uintptr(unsafe.Pointer(unsafe.SliceData(staging.Bytes())))
	w.mem, w.memBytes = uintptr(unsafe.Pointer(unsafe.SliceData(j.mem))), uintptr(len(j.mem))
	w.opened, w.closed, w.low = address(&host.Opened), address(&host.Closed), address(&host.Low)
	w.claimed, w.listed = address(&host.Claimed), address(&host.Listed[0])
	w.number, w.pieces = j.number, j.pieces
	w.piece, w.unit, w.slot = uint32(j.terms.Piece), uint32(j.terms.Unit), uint32(j.terms.Slot)
}

// spin waits a little, and now and then lets other goroutines run.
func spin(i *int) {
	if *i++; *i%32 == 0 {
		runtime.Gosched()
	}
}

// woken waits until a worker is to look for work; false says that it is to end.
func (s *Sharer) woken(wake chan struct{}) bool {
	select {
	case <-wake:
		return true
	case <-s.done:
		return false
	}
}

// heat makes the other workers look for work until cool is called.
func (s *Sharer) heat() {
	if atomic.SwapUint32(&s.work.hot, 1) != 0 {
		return
	}
	for _, w := range s.wakeOthers {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

func (s *Sharer) cool() { atomic.StoreUint32(&s.work.hot, 0) }

// fail ends all sharing: copies or launches could not be enqueued, or the device is lost.
func (s *Sharer) fail() {
	s.failed.Store(true)
	atomic.StoreUint32(&s.work.stopped, 1)
}

// lead is the first worker: it looks for shares, gathers, and enqueues the copies.
func (s *Sharer) lead() {
	last := uint32(0)
	for s.woken(s.wake) {
		s.heat()
		since := time.Now()
		for i := 0; !s.closing.Load(); spin(&i) {
			if opened := atomic.LoadUint32(&s.host.Opened); opened != last {
				last = opened
				s.serve(opened)
				since = time.Now()
				continue
			}
			if i%32 != 0 {
				continue
			}
			idle := time.Since(since)
			if idle > shareLinger && (s.failed.Load() || atomic.LoadUint32(&s.host.Retired) == s.enqueued.Load()) {
				break
			}
			if idle > shareSpin {
				if s.device.Err() != nil { // nothing that is enqueued will end
					s.fail()
				}
				s.cool()
				time.Sleep(shareSleep)
			}
		}
		s.cool()
	}
}

// keep keeps a worker to those of the given processors, if they are as many as least, for as long as it lives: its thread ends with it. Not the first one, which
// yields to other goroutines while it looks for work: on a thread of its own that takes two switches.
func (s *Sharer) keep(cpus []int, least int) {
	if len(cpus) == 0 {
		return
	}
	runtime.LockOSThread()
	if n, err := numa.KeepThread(cpus, least); err != nil || n == 0 {
		runtime.UnlockOSThread()
		return
	}
	s.kept.Add(1)
}

// help is every other worker.
func (s *Sharer) help(wake chan struct{}) {
	last := uint32(0)
	for s.woken(wake) {
		if s.stall == nil && helpInC(&s.work, &last) {
			continue
		}
		for i := 0; atomic.LoadUint32(&s.work.hot) != 0 && atomic.LoadUint32(&s.work.stopped) == 0; spin(&i) {
			number := atomic.LoadUint32(&s.work.working)
			if number == 0 || number == last {
				continue
			}
			last = number
			atomic.AddUint32(&s.work.inside, 1)
			if atomic.LoadUint32(&s.work.working) == number { // the job is this share's until inside is 0 again
				for s.gather(false) {
				}
			}
			atomic.AddUint32(&s.work.inside, ^uint32(0))
		}
	}
}

// serve does the host's part of a share.
func (s *Sharer) serve(number uint32) {
	pieces, table := atomic.LoadUint32(&s.host.Pieces), atomic.LoadUint32(&s.host.Tier)
	s.mu.Lock()
	if int(table) >= len(s.mu.tables) || s.failed.Load() {
		pieces = 0
	} else {
		t := s.mu.tables[table]
		s.work.set(shareJob{number, min(pieces, uint32(t.terms.MaxPieces)), &t.terms, t.tier.Mem.Bytes()}, s.host, s.staging)
	}
	s.mu.Unlock()
	if pieces != 0 {
		atomic.StoreUint32(&s.host.Claimed, abi.CountWord(number, 0))
		s.heat()
		atomic.StoreUint32(&s.work.working, number)
		s.deliver()
		for i := 0; atomic.LoadUint32(&s.work.inside) != 0; spin(&i) {
		}
	}
	if s.failed.Load() {
		return // the device shares nothing any more
	}
	if err := s.writeValue(quietOffset, number); err != nil {
		s.fail()
	}
}

// deliver gathers pieces along with the other workers, and enqueues the copies of all. When it returns no worker joins, and those that
// have joined are at nothing that is wanted.
func (s *Sharer) deliver() {
	sent, turns, spares, since := uint32(0), 0, 0, time.Now()
	claimed := func() uint32 {
		return min(abi.Counted(atomic.LoadUint32(&s.host.Claimed), s.work.job.number), s.work.job.pieces)
	}
	for more := true; more; {
		more = s.gather(true)
		if end := s.gathered(sent); end != sent { // no worker is late
			turns = 0
			if end-sent >= shareSend || sent == 0 || !more || time.Since(since) > shareLateAfter {
				sent, since = s.send(sent, end), time.Now()
			}
			continue
		}
		if turns++; turns >= shareLate && sent < claimed() && spares < shareSpares && s.gatherAgain(sent, spares) {
			sent, turns, spares = sent+1, 0, spares+1
		}
	}
	// A worker that has joined may claim one piece yet: it is sent too, and no other worker joins.
	atomic.StoreUint32(&s.work.working, 0)
	since = time.Now()
	for i := 0; (atomic.LoadUint32(&s.work.inside) != 0 || sent < claimed()) && !s.over(); spin(&i) {
		if end := s.send(sent, s.gathered(sent)); end != sent {
			sent, since = end, time.Now()
			continue
		}
		if sent == claimed() {
			since = time.Now()
			continue
		}
		if i%32 == 0 && spares < shareSpares && time.Since(since) > shareLateAfter && s.gatherAgain(sent, spares) {
			sent, since, spares = sent+1, time.Now(), spares+1
		}
	}
}

// over says whether nothing more of the job is wanted.
func (s *Sharer) over() bool {
	number := s.work.job.number
	if s.device.Err() != nil {
		s.fail()
	}
	return atomic.LoadUint32(&s.work.stopped) != 0 || atomic.LoadUint32(&s.host.Closed) == number ||
		atomic.LoadUint32(&s.host.Opened) != number
}

// gather claims a piece and gathers it; false says that there is none left. first says that the first worker does it.
func (s *Sharer) gather(first bool) bool {
	j, h := &s.work.job, s.host
	next := abi.Counted(atomic.LoadUint32(&h.Claimed), j.number)
	if next >= j.pieces || s.over() || uint64(next+1)*uint64(j.terms.Piece) > uint64(atomic.LoadUint32(&h.Low))*uint64(j.terms.Unit) {
		return false
	}
	p := abi.Counted(atomic.AddUint32(&h.Claimed, 1), j.number) - 1
	if p >= j.pieces {
		return false
	}
	for i := 0; atomic.LoadUint32(&h.Listed[p]) != j.number; spin(&i) {
		if s.over() {
			return false
		}
	}
	if s.stall != nil {
		s.stall(int(p), first)
	}
	s.gatherPiece(p, int(p))
	atomic.StoreUint32(&s.work.ready[p], j.number)
	return true
}

// gatherPiece gathers a piece to where the at-th would go.
func (s *Sharer) gatherPiece(p uint32, at int) {
	t := s.work.job.terms
	list := t.ListView()[int(p)*t.Piece:][:t.Piece]
	gatherRows(s.staged(at), t.Slot, s.work.job.mem, list)
}

// staged returns the staging memory of the at-th piece.
func (s *Sharer) staged(at int) []byte {
	t := s.work.job.terms
	return s.staging.Bytes()[at*t.Piece*t.Slot:][:t.Piece*t.Slot]
}

// gatherAgain gathers and sends a piece whose worker is late, to a spare place behind those of all pieces; false says that it is
// not listed yet.
func (s *Sharer) gatherAgain(p uint32, spare int) bool {
	j := &s.work.job
	if atomic.LoadUint32(&s.host.Listed[p]) != j.number || s.failed.Load() {
		return false
	}
	at := j.terms.MaxPieces + spare
	s.gatherPiece(p, at)
	s.copy(p, p+1, at)
	return true
}

// gathered returns how many pieces are gathered, one after the other, where sent have been sent.
func (s *Sharer) gathered(sent uint32) uint32 {
	j, end := &s.work.job, sent
	for end < j.pieces && atomic.LoadUint32(&s.work.ready[end]) == j.number {
		end++
	}
	return end
}

// send enqueues the copy of pieces that are gathered, and returns how many have then been sent.
func (s *Sharer) send(from, to uint32) uint32 {
	if from == to || s.failed.Load() {
		return from
	}
	s.copy(from, to, int(from))
	return to
}

// copy enqueues the copy of pieces that lie from the at-th place on, and then that they have arrived.
func (s *Sharer) copy(from, to uint32, at int) {
	j := &s.work.job
	bytes := int64(j.terms.Piece * j.terms.Slot)
	n := int64(to-from) * bytes
	err := s.copies.Copy(s.terms.Stage.Slice(int64(from)*bytes, int64(from)*bytes+n), s.staging.Slice(int64(at)*bytes, int64(at)*bytes+n))
	if err == nil {
		err = s.writeValue(arrivedOffset, abi.CountWord(j.number, to))
	}
	if err != nil {
		s.fail()
	}
}
