package read

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/cold"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/kernels"
)

// listReader polls for lists of absent rows that a GPU has made, for batches of lanes and for captured ones, and
// reads their rows. One goroutine does so while all is not empty.
type listReader struct {
	sync.Mutex
	all     []*rounds
	lanes   int // how many of all belong to lanes
	looking bool
	more    chan struct{} // capacity 1; signals that a batch was added
}

const (
	// After a list, the host polls for spinLists without pauses, because batches often follow each other closely. Then
	// it pauses for at least minListPause between polls.
	spinLists    = 100 * time.Microsecond
	minListPause = 20 * time.Microsecond
	// maxListPause also bounds how late the host sees a list of a captured batch that was idle for some time.
	maxListPause = time.Millisecond
)

// pauseAfter returns the pause before the next poll, after the host has waited for a list this long. It is about an
// eighth of that time. So a batch queued behind much other work takes little of a processor, and is seen hardly
// later.
func pauseAfter(waited time.Duration) time.Duration {
	return min(max(waited/8, minListPause), maxListPause)
}

// errGaveUp is the error of rows for which the GPU has waited too long.
var errGaveUp = errors.New("the GPU has waited too long for the host")

// errListLost is the error of a list that the GPU replaced by the next one before the host saw it. The number of its
// rows is not known.
var errListLost = fmt.Errorf("%w, and has replaced the list of absent rows before the host saw it: more rows may have failed", errGaveUp)

// add starts polling for the lists of a batch.
func (q *listReader) add(r *rounds) {
	q.Lock()
	defer q.Unlock()
	q.all = append(q.all, r)
	if r.lists.lane != nil {
		q.lanes++
	}
	if !q.looking {
		q.looking = true
		if q.more == nil {
			q.more = make(chan struct{}, 1)
		}
		go q.look()
		return
	}
	select {
	case q.more <- struct{}{}:
	default:
	}
}

// remove ends polling for the lists of a batch. It ignores a batch that was removed before.
func (q *listReader) remove(r *rounds) {
	q.Lock()
	defer q.Unlock()
	if i := slices.Index(q.all, r); i >= 0 {
		q.removeLocked(i)
	}
}

func (q *listReader) removeLocked(i int) {
	if q.all[i].lists.lane != nil {
		q.lanes--
	}
	q.all = slices.Delete(q.all, i, i+1)
}

// look polls for lists until no batch is left.
func (q *listReader) look() {
	since := time.Now()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		q.Lock()
		for i := 0; i < len(q.all); {
			taken, last := q.all[i].take()
			if taken {
				since = time.Now()
			}
			if last {
				q.removeLocked(i)
			} else {
				i++
			}
		}
		q.looking = len(q.all) > 0
		none, spin := !q.looking, q.lanes > 0
		q.Unlock()
		if none {
			return
		}
		waited := time.Since(since)
		if spin && waited < spinLists {
			runtime.Gosched()
			continue
		}
		pause.Reset(pauseAfter(waited))
		select {
		case <-pause.C:
		case <-q.more:
			since = time.Now()
		}
	}
}

// expect starts polling for the lists of a lane's batch. REQUIRES: the batch's first part is about to be enqueued.
func (r *rounds) expect(l *lane) {
	l.beginWait()
	r.table, r.from = l.route.table, l.from
	r.enqueued.Store(false)
	r.abandoned.Store(false)
	s := &r.lists
	s.Lock()
	s.ctx, s.lane, s.ahead = l.ctx, l, l.route.table.Rows.ReadAhead
	s.taken, s.last, s.step = uint32(l.batch-1), uint32(l.batch)+uint32(l.route.parts()-1), l.route.part
	s.closed, s.outcome = false, cold.Outcome{}
	atomic.StoreUint64(&r.batch.HostView().GaveUp, uint64(s.taken)) // no list of this batch has this number
	s.Unlock()
	r.owner.lists.add(r)
}

// listed returns the number of the GPU's latest list, and how many rows it has.
func (r *rounds) listed() (number uint32, n int) {
	word := atomic.LoadUint64(&r.batch.HostView().Listed)
	return uint32(word >> 32), int(uint32(word))
}

// gaveUpOn says whether the GPU has given up waiting for the rows of a list, or of a later one.
func (r *rounds) gaveUpOn(number uint32) bool {
	later := uint32(64) // for replays: fewer than this give up before the host looks, as each waits for the timeout first
	if r.lists.lane != nil {
		later = r.lists.last - number
	}
	return uint32(atomic.LoadUint64(&r.batch.HostView().GaveUp))-number <= later
}

// replaced says whether the memory of a list may hold a later one: the GPU has given up on it, or its replay has ended.
func (r *rounds) replaced(number uint32) bool {
	replayed := r.lists.lane == nil && int32(uint32(atomic.LoadUint64(&r.batch.HostView().Replayed))-number) >= 0
	return replayed || r.gaveUpOn(number)
}

// take begins to read the rows of the GPU's latest list, unless it was taken before. last says that it was the last
// one of a lane's batch.
func (r *rounds) take() (taken, last bool) {
	s := &r.lists
	s.Lock()
	defer s.Unlock()
	if s.closed {
		return false, true
	}
	number, n := r.listed()
	if s.lane == nil {
		r.useAheadOfReplays()
	} else if number-s.taken > s.last-s.taken { // the list of an earlier batch
		return false, false
	}
	if number == s.taken || s.busy || n == 0 && s.lane == nil {
		return false, false
	}
	if gaveUp := uint32(atomic.LoadUint64(&r.batch.HostView().GaveUp)); int32(gaveUp-s.taken) > 0 && int32(number-gaveUp) > 0 {
		s.outcome.Add(&cold.Outcome{Rows: 1, Failed: 1, Err: errListLost})
	}
	s.taken = number
	if s.lane != nil {
		r.useAhead()
		last = number == s.last
	}
	if n > 0 {
		s.busy = true
		if s.lane != nil {
			s.lane.countAbsentWait()
		}
		s.answered.Go(func() { r.reply(number, n) })
	}
	return true, last
}

// reply reads the rows of a list and records the outcome. If the GPU has given up waiting for them, they fail without
// being read.
func (r *rounds) reply(number uint32, n int) {
	s := &r.lists
	ctx, tierRead, at := context.Background(), (func())(nil), 0
	if l := s.lane; l != nil {
		ctx = s.ctx
		if number == s.last {
			tierRead = l.end
		}
		at = int(number-uint32(l.firstPart)) * s.step
	}
	rows, positions := r.list(n)
	o := cold.Outcome{Rows: int64(n), Failed: int64(n), At: int(positions[0]), Err: errGaveUp}
	if !r.replaced(number) {
		o = r.answer(ctx, number, rows, positions, tierRead)
	}
	o.At += at
	s.Lock()
	defer s.Unlock()
	s.outcome.Add(&o)
	s.busy = false
}

// leave makes take ignore further lists. The rows of lists already taken may still be read.
func (r *rounds) leave() {
	r.lists.Lock()
	r.lists.closed = true
	r.lists.Unlock()
}

// useAhead marks rows of the tier that were read ahead as used, if this part of a lane's batch has read them.
// REQUIRES: the GPU has listed them.
func (r *rounds) useAhead() {
	n := uint32(atomic.LoadUint64(&r.batch.HostView().Ahead))
	if n == 0 || r.lists.ahead == nil {
		return
	}
	all := kernels.FoundView(r.batch.Rows)
	for _, f := range all[len(all)-int(n):] {
		r.lists.ahead.Use(int64(f.Word))
	}
}

// useAheadOfReplays marks rows that were read ahead as used, if replays have read them. It misses those that later
// ones have displaced from the replays' ring of row numbers. REQUIRES: r.lists is locked.
func (r *rounds) useAheadOfReplays() {
	now, rows, s := atomic.LoadUint64(&r.batch.HostView().Read), r.batch.AheadView(), &r.lists
	n := uint64(len(rows))
	if now-s.read > n {
		s.read = now - n
	}
	for ; s.read < now; s.read++ {
		s.ahead.Use(atomic.LoadInt64(&rows[s.read%n]))
	}
}

// replayed returns the number of the last replay that has ended and whose absent rows have all been read or given up.
func (r *rounds) replayed() uint64 {
	ended, s := atomic.LoadUint64(&r.batch.HostView().Replayed), &r.lists
	s.Lock()
	defer s.Unlock()
	number, n := r.listed()
	if n == 0 || number == s.taken && !s.busy {
		return ended
	}
	if s.busy {
		number = s.taken
	}
	if behind := int32(uint32(ended) - number); behind >= 0 {
		return ended - uint64(behind) - 1
	}
	return ended
}

// outcomeOfReplays returns the outcome of reading absent rows since the last call.
func (r *rounds) outcomeOfReplays() cold.Outcome {
	s := &r.lists
	s.Lock()
	defer s.Unlock()
	r.useAheadOfReplays()
	o := s.outcome
	s.outcome = cold.Outcome{}
	return o
}

// countAbsentWait counts the lane's batch as one that waits for absent rows, until the lane is released. It allows the
// other batches one more lane.
func (l *lane) countAbsentWait() {
	if !l.countedWaiting {
		l.countedWaiting = true
		l.owner.waiting.Add(1)
		l.owner.progress.notify()
	}
}

// answered returns the outcome of reading the absent rows of the lane's batch. It waits until nothing reads any of
// them. REQUIRES: the GPU has ended the batch, or has failed.
func (l *lane) answered() cold.Outcome {
	if !l.route.absent || l.route.deferred || l.rounds == nil {
		return cold.Outcome{}
	}
	r := l.rounds
	l.owner.lists.remove(r)
	s := &r.lists
	s.Lock()
	if s.lane != nil && !s.closed { // a last list that was not taken will not be read any more
		number, n := r.listed()
		untaken := number != s.taken && number-s.taken <= s.last-s.taken
		if untaken {
			r.useAhead()
		}
		if untaken && n > 0 {
			at := int(number-uint32(l.firstPart))*s.step + int(kernels.FoundView(r.batch.Rows)[0].Position)
			s.outcome.Add(&cold.Outcome{Rows: int64(n), Failed: int64(n), At: at, Err: errGaveUp})
		}
		s.closed = true
	}
	s.Unlock()
	s.answered.Wait()
	s.Lock()
	defer s.Unlock()
	return s.outcome
}

// abandonRounds tells the GPU not to wait for the rows of a batch that was only enqueued in part. The caller calls
// end when the GPU has ended what was enqueued.
func (l *lane) abandonRounds() (end func()) {
	if !l.route.absent {
		return func() {}
	}
	r := l.rounds
	r.abandoned.Store(true)
	l.answered()
	ended := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for {
			number, _ := r.listed()
			r.ready(number, 0, true)
			select {
			case <-ended:
				return
			case <-time.After(minListPause):
			}
		}
	})
	return func() {
		close(ended)
		all.Wait()
		l.stream.Fill(r.state, 0)
	}
}

// ready announces to the GPU that the first rounds of a list lie in staging memory. last says that no more will come.
func (r *rounds) ready(number uint32, rounds int, last bool) {
	word := uint64(number)<<32 | uint64(rounds)
	if last {
		word |= abi.AbsentLast
	}
	atomic.StoreUint64(&r.batch.HostView().Ready, word)
}
