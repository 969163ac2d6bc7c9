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

// listReader looks for lists of absent rows that a GPU has made, for batches of lanes and for captured ones, and has their rows read. One goroutine does so
// while there are any.
type listReader struct {
	sync.Mutex
	all     []*rounds
	lanes   int // of all, those of lanes
	looking bool
	more    chan struct{} // has room for one: another batch has come
}

const (
	// The host looks for a list without a pause for spinLists, because batches often follow each other closely, then with pauses.
	spinLists  = 100 * time.Microsecond
	pauseLists = 20 * time.Microsecond
	// longestListPause is also how late a list of a captured batch is seen that has not been replayed for some time.
	longestListPause = time.Millisecond
)

// pauseAfter returns how long the host pauses before it looks again for what it has waited for so long: about an eighth of that, so that a batch which is
// queued behind much other work takes little of a processor and is hardly seen later.
func pauseAfter(waited time.Duration) time.Duration {
	return min(max(waited/8, pauseLists), longestListPause)
}

// errGaveUp is why rows fail for which the GPU has waited too long.
var errGaveUp = errors.New("the GPU has waited too long for the host")

// errUnseen is why rows fail whose list was replaced by the next one before the host saw it. How many there were is not known.
var errUnseen = fmt.Errorf("%w, which has not seen which rows were absent: there may be more", errGaveUp)

// add has the lists of a batch read from now on.
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

// remove has no further lists of a batch read. It ignores one that was removed before.
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

// look takes lists until there is no batch that makes any.
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

// expect has the lists of a lane's batch read, whose first part is about to be enqueued.
func (r *rounds) expect(l *lane) {
	r.table, r.from = l.route.table, l.from
	r.enqueued.Store(false)
	r.abandoned.Store(false)
	s := &r.lists
	s.Lock()
	s.ctx, s.lane, s.ahead = l.ctx, l, l.route.table.Rows.ReadAhead
	s.taken, s.last, s.step = uint32(l.batch-1), uint32(l.batch)+uint32(l.route.parts()-1), l.route.part
	s.gone, s.below = false, cold.Outcome{}
	atomic.StoreUint64(&r.batch.HostView().GaveUp, uint64(s.taken)) // the number of no list of this batch
	s.Unlock()
	r.owner.lists.add(r)
}

// listed returns the number of the last list that the GPU has made, and of how many rows it is.
func (r *rounds) listed() (number uint32, n int) {
	word := atomic.LoadUint64(&r.batch.HostView().Listed)
	return uint32(word >> 32), int(uint32(word))
}

// gaveUp says whether the GPU does not wait for the rows of a list any more: what it has listed may be those of a later list.
func (r *rounds) gaveUp(number uint32) bool {
	host := r.batch.HostView()
	gaveUp, later := uint32(atomic.LoadUint64(&host.GaveUp)), uint32(0)
	if r.lists.lane != nil {
		later = r.lists.last - number
	} else if int32(uint32(atomic.LoadUint64(&host.Replayed))-number) >= 0 {
		return true
	}
	return gaveUp-number <= later
}

// take begins to read the rows of a list that the GPU has made since the last one, if there is one. last says that it was a lane's last list.
func (r *rounds) take() (taken, last bool) {
	s := &r.lists
	s.Lock()
	defer s.Unlock()
	if s.gone {
		return false, true
	}
	number, n := r.listed()
	if s.lane == nil {
		r.useAheadOfReplays()
	} else if number-s.taken > s.last-s.taken { // it is of an earlier batch
		return false, false
	}
	if number == s.taken || s.busy || n == 0 && s.lane == nil {
		return false, false
	}
	if gaveUp := uint32(atomic.LoadUint64(&r.batch.HostView().GaveUp)); int32(gaveUp-s.taken) > 0 && int32(number-gaveUp) > 0 {
		s.below.Add(&cold.Outcome{Rows: 1, Failed: 1, Err: errUnseen})
	}
	s.taken = number
	if s.lane != nil {
		r.useAhead()
		last = number == s.last
	}
	if n > 0 {
		s.busy = true
		if s.lane != nil {
			s.lane.waitsBelow()
		}
		s.answered.Go(func() { r.reply(number, n) })
	}
	return true, last
}

// reply reads the rows of a list.
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
	o := cold.Outcome{Rows: int64(n), Failed: int64(n), Err: errGaveUp}
	if !r.gaveUp(number) {
		o = r.answer(ctx, number, rows, positions, tierRead)
	}
	o.At += at
	s.Lock()
	defer s.Unlock()
	s.below.Add(&o)
	s.busy = false
}

// leave has nobody take a list any more. Those that were taken may still be read.
func (r *rounds) leave() {
	r.lists.Lock()
	r.lists.gone = true
	r.lists.Unlock()
}

// useAhead notes which rows that were read ahead a part of a lane's batch has read. REQUIRES: they are listed.
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

// useAheadOfReplays notes which rows that were read ahead replays have read, but for those that later ones have displaced from the list. REQUIRES: r.lists is
// locked.
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

// replayed returns the number of the last replay that has ended and of whose absent rows it is known what became of them.
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

// outcomeOfReplays returns what became of absent rows since the last call.
func (r *rounds) outcomeOfReplays() cold.Outcome {
	s := &r.lists
	s.Lock()
	defer s.Unlock()
	r.useAheadOfReplays()
	o := s.below
	s.below = cold.Outcome{}
	return o
}

// waitsBelow lets other batches have a lane more, until this one is released: its batch waits for absent rows.
func (l *lane) waitsBelow() {
	if !l.waits {
		l.waits = true
		l.owner.waiting.Add(1)
		l.owner.progress.notify()
	}
}

// answered returns what became of the absent rows of the lane's batch, once nothing reads any of them any more. The GPU has ended the batch, or has failed.
func (l *lane) answered() cold.Outcome {
	if !l.route.absent || l.route.left || l.rounds == nil {
		return cold.Outcome{}
	}
	r := l.rounds
	l.owner.lists.remove(r)
	s := &r.lists
	s.Lock()
	if s.lane != nil && !s.gone { // nobody has read the last list, nor will
		if number, n := r.listed(); number != s.taken && number-s.taken <= s.last-s.taken && n > 0 {
			r.useAhead()
			at := int(number-uint32(l.firstPart))*s.step + int(kernels.FoundView(r.batch.Rows)[0].Position)
			s.below.Add(&cold.Outcome{Rows: int64(n), Failed: int64(n), At: at, Err: errGaveUp})
		}
		s.gone = true
	}
	s.Unlock()
	s.answered.Wait()
	s.Lock()
	defer s.Unlock()
	return s.below
}

// abandonRounds keeps the GPU from waiting for rows of a batch that was not enqueued as a whole, until end is called, when the GPU has ended what was enqueued.
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
			case <-time.After(pauseLists):
			}
		}
	})
	return func() {
		close(ended)
		all.Wait()
		l.stream.Fill(r.state, 0)
	}
}

// ready lets the GPU know that rounds of a list lie in the staging memory. last says that there are no more.
func (r *rounds) ready(number uint32, rounds int, last bool) {
	word := uint64(number)<<32 | uint64(rounds)
	if last {
		word |= abi.AbsentLast
	}
	atomic.StoreUint64(&r.batch.HostView().Ready, word)
}
