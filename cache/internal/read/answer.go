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
	// watchAnswer is the interval at which watch asks whether the batch still reads slabs and host tier. Afterwards it
	// only asks whether the device has failed, every watchDevice.
	watchAnswer = 500 * time.Microsecond
	watchDevice = 10 * time.Millisecond
)

// answer reads the absent rows of list number, stages them for the GPU, and returns their outcome. tierRead, if
// not nil, is called when the batch has read slabs and host tier.
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

// answer is the state of reading the rows of one list.
type answer struct {
	rounds    *rounds
	number    uint32 // of the list
	tierRead  func() // may be nil
	n, total  int    // rows, and the rounds that they take
	positions []uint32
	next      atomic.Int64   // the next free place: rows are placed in staging memory in the order in which they arrive
	arrived   []atomic.Int32 // rows staged so far, by round
	failed    atomic.Bool    // the device has failed
	mu        sync.Mutex
	published int // rounds announced to the GPU
	outcome   cold.Outcome
	late      []delivered // rows that have arrived, but have no room in staging memory yet, in order of arrival
	staging   sync.WaitGroup
	stages    bool // the goroutine stageLate runs
}

// delivered is one row that has been read. place is its place in staging memory, counted from the first round; i is
// its index in the list.
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

// watch calls tierRead once the batch has read slabs and host tier: from then on no change waits for the batch. If
// the device fails, watch cancels the reading.
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
				continue // the event was last recorded for an earlier batch
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

func (a *answer) gaveUp() bool { return a.rounds.gaveUpOn(a.number) }

// room returns the number of rounds that may be staged: two, and one more for each round that the GPU has read. over
// says that the GPU reads no more of them.
func (a *answer) room() (rounds int, over bool) {
	rounds = len(a.rounds.halves)
	if word := atomic.LoadUint64(&a.rounds.batch.HostView().Consumed); uint32(word>>32) == a.number {
		rounds += int(uint32(word))
	}
	return rounds, a.failed.Load() || a.gaveUp() || a.rounds.abandoned.Load()
}

// sizeOf returns the number of rows of a round.
func (a *answer) sizeOf(round int) int { return min(a.rounds.rows, a.n-round*a.rounds.rows) }

// put takes one row. Deliver calls it once for each row. A row without room is kept for stageLate, as waiting here
// for the GPU would use up the time limit of the reading.
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

// stageLate stages the rows in a.late as the GPU frees staging memory. It returns when none are left, or when the GPU
// reads no more.
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

// finish waits until stageLate has staged the rows in a.late.
func (a *answer) finish() { a.staging.Wait() }

// stage copies a row to staging memory, or zeros if the row could not be read. A round that is complete is then
// published. REQUIRES: room allows the row's round.
func (a *answer) stage(d *delivered) {
	g, err := a.rounds, d.err
	round, j := d.place/g.rows, d.place%g.rows
	h, rowBytes := &g.halves[round%len(g.halves)], g.table.Rows.RowBytes
	offset := int64(j * g.slot)
	switch {
	case err != nil:
	case d.compressed && g.table.Codec.Codec == nil:
		err = errors.New("the row is compressed, but its table has no codec")
	case d.compressed && (len(d.stored) == 0 || len(d.stored) > rowBytes) || !d.compressed && len(d.stored) != rowBytes:
		err = fmt.Errorf("stored length (%d bytes) does not fit a row of %d bytes", len(d.stored), rowBytes)
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

// publish announces complete rounds to the GPU, in order.
func (a *answer) publish() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.published < a.total && int(a.arrived[a.published].Load()) == a.sizeOf(a.published) {
		a.rounds.batch.HostView().Rows[a.published%2] = uint32(a.sizeOf(a.published))
		a.published++
		a.rounds.ready(a.number, a.published, a.published == a.total)
	}
}
