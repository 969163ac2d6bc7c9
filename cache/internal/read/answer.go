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
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
)

// answers are the batches of a GPU whose absent rows are not listed yet. A goroutine looks for the lists while there are such batches.
type answers struct {
	sync.Mutex
	waiting []*lane
	looking bool
	more    chan struct{} // has room for one: another batch waits
}

const (
	// The host looks for a list without a pause for spinAnswers, because batches often follow each other closely, then with pauses.
	spinAnswers  = 100 * time.Microsecond
	pauseAnswers = 20 * time.Microsecond
	// watchAnswer is how often it is asked whether a batch for which rows are read still reads what changes, and watchDevice how often, once it does not,
	// whether the device has failed.
	watchAnswer = 500 * time.Microsecond
	watchDevice = 10 * time.Millisecond
)

// pauseAfter returns how long the host pauses before it looks again for what it has waited for so long: about an eighth of that, so that a batch which is
// queued behind much other work takes little of a processor and is hardly seen later.
func pauseAfter(waited time.Duration) time.Duration {
	return min(max(waited/8, pauseAnswers), longestReplyPause)
}

// errGaveUp is why rows fail for which the GPU has waited too long.
var errGaveUp = errors.New("the GPU has waited too long for the host")

// errUnseen is why rows of a replay fail whose list was replaced by the next replay's before the host saw it. How many there were is not known.
var errUnseen = fmt.Errorf("%w, which has not seen which rows were absent: there may be more", errGaveUp)

// readsAbsent says whether the device's batches of a table are those of enqueueRounds.
func (d *Device) readsAbsent(table int) bool {
	return d.set.Tables[table].Absent != nil && d.Device.NeedsStaging()
}

// expect has the absent rows of a lane's batch, which is being enqueued, read when the GPU has listed them.
func (d *Device) expect(l *lane) {
	a := &d.answers
	a.Lock()
	defer a.Unlock()
	a.waiting = append(a.waiting, l)
	if !a.looking {
		a.looking = true
		if a.more == nil {
			a.more = make(chan struct{}, 1)
		}
		go d.answerAll()
		return
	}
	select {
	case a.more <- struct{}{}:
	default:
	}
}

// answerAll looks for lists until no batch waits.
func (d *Device) answerAll() {
	a, since := &d.answers, time.Now()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		a.Lock()
		a.waiting = slices.DeleteFunc(a.waiting, func(l *lane) bool {
			n, ok := l.rounds.listed()
			if !ok {
				return false
			}
			since = time.Now()
			if l.useAhead(); n > 0 {
				l.waitsBelow()
				l.rounds.answering.Add(1)
				go func() {
					defer l.rounds.answering.Done()
					rows, positions := l.rounds.list(n)
					l.below = l.rounds.answer(l.ctx, rows, positions, l.end)
				}()
			}
			return true
		})
		if len(a.waiting) == 0 {
			a.looking = false
			a.Unlock()
			return
		}
		a.Unlock()
		waited := time.Since(since)
		if waited < spinAnswers {
			runtime.Gosched()
			continue
		}
		pause.Reset(pauseAfter(waited))
		select {
		case <-pause.C:
		case <-a.more:
			since = time.Now()
		}
	}
}

// waitsBelow lets other batches have a lane more, until this one is released: its batch waits for absent rows, and one that adds these up waits with it.
func (l *lane) waitsBelow() {
	if l.waits = 1; l.route.gathers {
		l.waits = 2
	}
	l.owner.waiting.Add(l.waits)
	l.owner.progress.notify()
}

// answered returns when nothing reads absent rows for the lane's batch any more. The GPU has ended the batch, or has failed.
func (l *lane) answered() {
	if !l.route.absent || l.rounds == nil {
		return
	}
	a := &l.owner.answers
	a.Lock()
	if i := slices.Index(a.waiting, l); i >= 0 {
		a.waiting = slices.Delete(a.waiting, i, i+1)
		if n, ok := l.rounds.listed(); ok {
			if l.useAhead(); n > 0 { // else the device has failed
				l.below = cold.Outcome{Rows: int64(n), Failed: int64(n), At: int(kernels.FoundView(l.rounds.batch.Rows)[0].Position), Err: errGaveUp}
			}
		}
	}
	a.Unlock()
	l.rounds.answering.Wait()
}

// abandonRounds keeps the GPU from waiting for rounds of a batch that was not enqueued as a whole.
func (l *lane) abandonRounds() {
	l.rounds.abandoned.Store(true)
	l.answered()
	l.rounds.ready(0, true)
	l.stream.Fill(l.rounds.state, 0)
}

// useAhead notes which rows that were read ahead the batch has read. REQUIRES: they are listed.
func (l *lane) useAhead() {
	b := &l.rounds.batch
	n := uint32(atomic.LoadUint64(&b.HostView().Ahead))
	if n == 0 || b.Tier.ReadAhead == nil {
		return
	}
	all := kernels.FoundView(b.Rows)
	for _, f := range all[len(all)-int(n):] {
		b.Tier.ReadAhead.Use(int64(f.Word))
	}
}

// answer reads the absent rows that the GPU has listed, puts them in staging memory, and returns what became of them. tierRead is called when the batch
// has read slabs and host tier; it is nil for a replay, which says so itself.
func (r *rounds) answer(ctx context.Context, rows []int64, positions []uint32, tierRead func()) cold.Outcome {
	begun, n := time.Now(), len(rows)
	total := (n + r.rows - 1) / r.rows
	a := &answer{rounds: r, total: total, n: n, positions: positions, arrived: make([]atomic.Int32, total), tierRead: tierRead}
	ctx, cancel := context.WithCancelCause(ctx)
	stopped := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { a.watch(stopped, cancel) })
	r.from.Deliver(ctx, rows, a.put)
	a.finish()
	close(stopped)
	watching.Wait()
	cancel(nil)
	if a.gaveUp() {
		a.fail(int(a.positions[0]), errGaveUp)
	}
	a.outcome.Rows, a.outcome.Took = int64(n), time.Since(begun)
	r.ready(a.published, true)
	return a.outcome
}

// answer is the reading of one batch's absent rows.
type answer struct {
	rounds    *rounds
	tierRead  func() // or nil
	n, total  int    // rows and rounds
	positions []uint32
	next      atomic.Int64   // row of the staging memory
	arrived   []atomic.Int32 // rows of each round
	failed    atomic.Bool    // the device has
	mu        sync.Mutex
	published int // rounds
	outcome   cold.Outcome
	late      []delivered // rows for which there is no room yet, in order
	staging   sync.WaitGroup
	stages    bool // a goroutine stages late rows
}

// delivered is one row, and its place among the batch's absent rows.
type delivered struct {
	place, i   int
	stored     []byte
	compressed bool
	err        error
}

func (a *answer) fail(position int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := &a.outcome
	if o.Failed++; o.Err == nil || position < o.At {
		o.At, o.Err = position, err
	}
}

// watch ends the batch, as far as changes wait for it, once it has read slabs and host tier, and ends the reading if the device fails.
func (a *answer) watch(stopped <-chan struct{}, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(watchAnswer)
	defer tick.Stop()
	for ended := false; ; {
		select {
		case <-stopped:
			return
		case <-tick.C:
		}
		passed, err := false, a.rounds.owner.Device.Err()
		if a.tierRead != nil && err == nil {
			if !a.rounds.enqueued.Load() {
				continue // the event is of an earlier batch
			}
			passed, err = a.rounds.tierEnd.Passed()
		}
		if err != nil {
			a.failed.Store(true)
			cancel(err)
			return
		}
		if passed && !ended {
			ended = true
			a.tierRead()
			tick.Reset(watchDevice)
		}
	}
}

func (a *answer) gaveUp() bool {
	return atomic.LoadUint64(&a.rounds.batch.HostView().GaveUp) == uint64(a.rounds.number())
}

// room returns how many rounds have been given a half of the staging memory: those behind them wait until the GPU has read what it holds. over says that
// it will not.
func (a *answer) room() (rounds int, over bool) {
	rounds = len(a.rounds.halves)
	if word := atomic.LoadUint64(&a.rounds.batch.HostView().Consumed); uint32(word>>32) == a.rounds.number() {
		rounds += int(uint32(word))
	}
	return rounds, a.failed.Load() || a.gaveUp() || a.rounds.abandoned.Load()
}

// sizeOf returns the rows of a round.
func (a *answer) sizeOf(round int) int { return min(a.rounds.rows, a.n-round*a.rounds.rows) }

// put takes one row. It is called once for each. Reading does not wait for the GPU: its time is bounded.
func (a *answer) put(i int, stored []byte, compressed bool, err error) {
	d := delivered{int(a.next.Add(1) - 1), i, stored, compressed, err}
	if rounds, _ := a.room(); d.place/a.rounds.rows < rounds {
		a.stage(&d)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.late = append(a.late, d)
	if !a.stages {
		a.stages = true
		a.staging.Go(a.stageLate)
	}
}

// stageLate stages late rows as the GPU makes room, until there are none.
func (a *answer) stageLate() {
	var held []delivered
	last, pauses, since := 0, 0, time.Now()
	for {
		a.mu.Lock()
		fresh := len(a.late) > 0
		held, a.late = append(held, a.late...), a.late[:0]
		a.stages = len(held) > 0
		a.mu.Unlock()
		rounds, over := a.room()
		if len(held) == 0 || over {
			return
		}
		if !fresh && rounds == last {
			if pauses++; pauses < 32 {
				runtime.Gosched()
			} else {
				time.Sleep(pauseAfter(time.Since(since)))
			}
			continue
		}
		last, pauses, since = rounds, 0, time.Now()
		rest := held[:0]
		for i := range held {
			if held[i].place/a.rounds.rows < rounds {
				a.stage(&held[i])
			} else {
				rest = append(rest, held[i])
			}
		}
		held = rest
	}
}

// finish waits until all rows that were delivered are staged.
func (a *answer) finish() { a.staging.Wait() }

// stage puts a row in staging memory, zeros if it could not be read. There is room.
func (a *answer) stage(d *delivered) {
	g, err := a.rounds, d.err
	round, j := d.place/g.rows, d.place%g.rows
	h, rowBytes := &g.halves[round%len(g.halves)], g.table.Rows.RowBytes
	offset := int64(j * g.slot)
	switch {
	case err != nil:
	case d.compressed && g.table.Codec.Codec == nil:
		err = errors.New("the row is compressed, and its table has no codec")
	case d.compressed && (len(d.stored) == 0 || len(d.stored) > rowBytes) || !d.compressed && len(d.stored) != rowBytes:
		err = fmt.Errorf("the row is stored in %d bytes, and has %d", len(d.stored), rowBytes)
	}
	to, at := h.rows.Bytes()[offset:][:g.slot], slab.Raw(0, offset)
	if err != nil {
		clear(to)
		a.fail(int(a.positions[d.i]), err)
	} else if copy(to, d.stored); d.compressed {
		at = slab.Compressed(0, offset, len(d.stored))
	}
	wordsOf(h.words)[j] = at
	found := kernels.FoundView(h.found)
	found[len(found)-1-j] = kernels.Found{Word: uint64(j), Position: a.positions[d.i]}
	if int(a.arrived[round].Add(1)) == a.sizeOf(round) {
		a.publish()
	}
}

// publish lets the GPU know of the rounds that are complete.
func (a *answer) publish() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.published < a.total && int(a.arrived[a.published].Load()) == a.sizeOf(a.published) {
		a.rounds.batch.HostView().Rows[a.published%2] = uint32(a.sizeOf(a.published))
		a.published++
		a.rounds.ready(a.published, a.published == a.total)
	}
}
