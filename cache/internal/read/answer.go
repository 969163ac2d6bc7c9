package read

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/cold"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
)

const (
	// watchAnswer is how often it is asked whether a batch for which rows are read still reads what changes, and watchDevice how often, once it does not,
	// whether the device has failed.
	watchAnswer = 500 * time.Microsecond
	watchDevice = 10 * time.Millisecond
)

// answer reads the absent rows of a list, puts them in staging memory, and returns what became of them. tierRead, unless nil, is called when the batch has
// read slabs and host tier.
func (r *rounds) answer(ctx context.Context, number uint32, rows []int64, positions []uint32, tierRead func()) cold.Outcome {
	begun, n := time.Now(), len(rows)
	total := (n + r.rows - 1) / r.rows
	a := &answer{rounds: r, number: number, total: total, n: n, positions: positions, arrived: make([]atomic.Int32, total), tierRead: tierRead}
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
	r.ready(number, a.published, true)
	return a.outcome
}

// answer is the reading of the rows of one list.
type answer struct {
	rounds    *rounds
	number    uint32 // of the list
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

// delivered is one row, and its place among the rows of the list.
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
	return atomic.LoadUint64(&a.rounds.batch.HostView().GaveUp) == uint64(a.number)
}

// room returns how many rounds have been given a half of the staging memory: those behind them wait until the GPU has read what it holds. over says that
// it will not.
func (a *answer) room() (rounds int, over bool) {
	rounds = len(a.rounds.halves)
	if word := atomic.LoadUint64(&a.rounds.batch.HostView().Consumed); uint32(word>>32) == a.number {
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
		a.rounds.ready(a.number, a.published, a.published == a.total)
	}
}
