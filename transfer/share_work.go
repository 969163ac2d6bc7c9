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

// shareWork is the share that a Sharer's workers gather for, and the words by which they join and leave it. All workers but the first
// may run in C, where this is struct tensorcache_share_work. C needs addresses; workers in Go use job.
type shareWork struct {
	// Addresses of the list, the staging memory and the host tier, and of words of ShareHost. Only the first worker changes them and
	// job, and only while inside is 0.
	list, staging, mem, memBytes         uintptr
	opened, closed, low, claimed, listed uintptr
	number, pieces, piece, unit, slot    uint32
	working, inside                      uint32                  // the number of the share that workers may join, 0 for none; the workers that have joined
	hot                                  uint32                  // not 0: workers look for work
	stopped                              uint32                  // not 0: workers leave the share
	ready                                [abi.SharePieces]uint32 // for each piece, the number of the last share for which it was gathered
	job                                  shareJob
}

// shareJob is a share as workers in Go see it.
type shareJob struct {
	number, pieces uint32
	terms          *kernels.Share
	mem            []byte
}

const (
	// Workers that slept were seen to come later than a time-out of 500 µs. So after a batch they look for the next one for shareLinger.
	// While batches are enqueued they go on: for shareSpin without a pause, then with pauses of shareSleep.
	shareLinger = 2 * time.Millisecond
	shareSpin   = 4 * time.Millisecond
	shareSleep  = 50 * time.Microsecond
	// Pieces are sent in order. If the next piece is not gathered while the first worker gathers shareLate others, or waits for
	// shareLateAfter, the system has probably suspended its worker. The first worker then gathers it again, to spare staging memory, at
	// most shareSpares times in a share.
	shareLate      = 3
	shareLateAfter = 100 * time.Microsecond
	shareSpares    = 8
	// The first worker sends shareSend pieces at a time. A copy and its word take it 5 to 6 µs in the driver, a third
	// of the time for gathering a piece. It sends fewer at the beginning, at the end, and after shareLateAfter.
	shareSend = 8
)

// set makes j the job of the workers. REQUIRES: w.inside is 0.
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

// spin is called in loops that wait. Every 32nd call lets other goroutines run.
func spin(i *int) {
	if *i++; *i%32 == 0 {
		runtime.Gosched()
	}
}

// woken waits until a worker is to look for work, and returns true, or until it is to end, and returns false.
func (s *Sharer) woken(wake chan struct{}) bool {
	select {
	case <-wake:
		return true
	case <-s.done:
		return false
	}
}

// wakeWorkers wakes the other workers, which look for work until restWorkers is called.
func (s *Sharer) wakeWorkers() {
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

func (s *Sharer) restWorkers() { atomic.StoreUint32(&s.work.hot, 0) }

// fail ends all sharing, because copies or launches could not be enqueued or the device is lost.
func (s *Sharer) fail() {
	s.failed.Store(true)
	atomic.StoreUint32(&s.work.stopped, 1)
}

// lead runs the first worker, which looks for shares, gathers, and enqueues the copies.
func (s *Sharer) lead() {
	last := uint32(0)
	for s.woken(s.wake) {
		s.wakeWorkers()
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
				if s.device.Err() != nil { // no enqueued work will end
					s.fail()
				}
				s.restWorkers()
				time.Sleep(shareSleep)
			}
		}
		s.restWorkers()
	}
}

// keep pins the calling worker to those of the given processors that it may use, if there are at least least of them. Its thread ends with
// the worker. The first worker is not pinned: it yields to other goroutines while it looks for work, which on a locked thread would take
// two thread switches each time.
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

// help runs each of the other workers.
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
			if atomic.LoadUint32(&s.work.working) == number { // the job does not change until inside is 0 again
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
	if int(table) >= len(s.mu.tables) || s.mu.tables[table] == nil || s.failed.Load() {
		pieces = 0
	}
	if pieces != 0 {
		t := s.mu.tables[table]
		s.mu.serving = t
		s.work.set(shareJob{number, min(pieces, uint32(t.terms.MaxPieces)), &t.terms, t.tier.Mem.Bytes()}, s.host, s.staging)
	}
	s.mu.Unlock()
	if pieces != 0 {
		atomic.StoreUint32(&s.host.Claimed, abi.CountWord(number, 0))
		s.wakeWorkers()
		atomic.StoreUint32(&s.work.working, number)
		s.deliver()
		for i := 0; atomic.LoadUint32(&s.work.inside) != 0; spin(&i) {
		}
		s.mu.Lock()
		s.mu.serving = nil
		s.mu.left.Broadcast()
		s.mu.Unlock()
	}
	if s.failed.Load() {
		return // the device shares no more batches
	}
	if err := s.writeValue(quietOffset, number); err != nil {
		s.fail()
	}
}

// deliver gathers pieces beside the other workers, and enqueues the copies of all pieces. When it returns, no worker can join the share,
// and what workers still do for it is not needed.
func (s *Sharer) deliver() {
	sent, turns, spares, since := uint32(0), 0, 0, time.Now()
	claimed := func() uint32 {
		return min(abi.Counted(atomic.LoadUint32(&s.host.Claimed), s.work.job.number), s.work.job.pieces)
	}
	for more := true; more; {
		more = s.gather(true)
		if end := s.gathered(sent); end != sent { // the next piece is gathered
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
	// No more workers may join. Each one that has joined may still claim a piece, which is sent too.
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

// over says whether the rest of the job is not needed.
func (s *Sharer) over() bool {
	number := s.work.job.number
	if s.device.Err() != nil {
		s.fail()
	}
	return atomic.LoadUint32(&s.work.stopped) != 0 || atomic.LoadUint32(&s.host.Closed) == number ||
		atomic.LoadUint32(&s.host.Opened) != number
}

// gather claims a piece and gathers it. It returns false if none is left. first says that the first worker calls it.
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

// gatherPiece gathers piece p to place at of the staging memory.
func (s *Sharer) gatherPiece(p uint32, at int) {
	t := s.work.job.terms
	list := t.ListView()[int(p)*t.Piece:][:t.Piece]
	gatherRows(s.staged(at), t.Slot, s.work.job.mem, list)
}

// staged returns place at of the staging memory, which has room for one piece.
func (s *Sharer) staged(at int) []byte {
	t := s.work.job.terms
	return s.staging.Bytes()[at*t.Piece*t.Slot:][:t.Piece*t.Slot]
}

// gatherAgain gathers and sends piece p, whose worker is late. It uses a spare place behind those of all pieces. It returns false if the
// device has not listed the piece yet.
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

// gathered returns the end of the gathered pieces that follow the first sent ones without a gap.
func (s *Sharer) gathered(sent uint32) uint32 {
	j, end := &s.work.job, sent
	for end < j.pieces && atomic.LoadUint32(&s.work.ready[end]) == j.number {
		end++
	}
	return end
}

// send enqueues the copy of pieces from to to-1, which are gathered, and returns the number of pieces sent so far.
func (s *Sharer) send(from, to uint32) uint32 {
	if from == to || s.failed.Load() {
		return from
	}
	s.copy(from, to, int(from))
	return to
}

// copy enqueues the copy of pieces from to to-1, which lie in the staging memory from place at on, and then the store of the number that have arrived.
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
