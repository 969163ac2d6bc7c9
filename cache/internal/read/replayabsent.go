package read

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/cold"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
)

// replayAbsent is what a captured batch of a table of pages has for absent rows. A replay lists them itself and waits for them, as no host code runs before
// it. A goroutine looks for lists while a device has such batches. What it answers is that of one replay at a time: the next one lists its rows only when
// this one has ended, and waits until it is answered.
type replayAbsent struct {
	rounds

	mu        sync.Mutex
	gone      bool         // the memory is being given back
	taken     uint32       // number of the last replay whose list was taken
	busy      bool         // it is being answered
	below     cold.Outcome // what became of absent rows since the last look
	read      uint64       // rows read ahead that have been noted
	answering sync.WaitGroup
}

// The pauses of serveReplays grow up to longestReplyPause while no replay lists rows.
const longestReplyPause = time.Millisecond

// mayBeAbsent gives a captured batch of a table of pages what it has for absent rows.
func (c *capture) mayBeAbsent(table, n int) error {
	d := c.owner
	if n == 0 || !d.readsAbsent(table) {
		return nil
	}
	a := &replayAbsent{}
	c.absent = a
	a.table, a.from = d.Table(table), d.set.Tables[table].Absent
	if err := a.reserve(d, a.table.Rows.RowBytes, int64(n), d.set.Tuning.CapturedRoundBytes); err != nil {
		return err
	}
	var err error
	b := &a.batch
	if b.Ahead, err = d.allocNear(int64(n)*8, "a captured batch"); err != nil {
		return err
	}
	d.staged.Add(b.Ahead.Size())
	if c.counters, err = d.Device.Alloc(kernels.CountersBytes, "a captured batch"); err != nil {
		return err
	}
	d.captures.bytes.Add(c.counters.Size())
	b.Counters, b.Tier, b.State, b.Replay, b.Timeout = c.counters, a.table.Rows, a.state, c.kernel.State, a.from.Longest()
	b.Ending.Batch = 1
	c.kernel.Absent = b
	return nil
}

// leave has nobody look at the memory any more, but an answer under way.
func (a *replayAbsent) leave() {
	a.mu.Lock()
	a.gone = true
	a.mu.Unlock()
}

// free gives the memory back. REQUIRES: no replay runs or will run.
func (a *replayAbsent) free(d *Device) {
	a.answering.Wait()
	d.staged.Add(-a.batch.Ahead.Size())
	d.Device.Free(a.batch.Ahead)
	a.close(d)
}

// serveReplays answers replays of the device until there is no captured batch of a table of pages.
func (d *Device) serveReplays() {
	s := &d.captures
	pause := pauseAnswers
	for {
		var all []*replayAbsent
		s.mu.Lock()
		for _, c := range s.all {
			if c.absent != nil {
				all = append(all, c.absent)
			}
		}
		s.serving = len(all) > 0
		s.mu.Unlock()
		if len(all) == 0 {
			return
		}
		for _, a := range all {
			if a.take() {
				pause = pauseAnswers
			}
		}
		time.Sleep(pause)
		pause = min(pause*5/4, longestReplyPause)
	}
}

// take looks whether a replay has listed rows, and begins to answer it.
func (a *replayAbsent) take() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone {
		return false
	}
	a.useAhead()
	number, n := a.lastListed()
	if n == 0 || number == a.taken || a.busy {
		return false
	}
	if gaveUp := uint32(atomic.LoadUint64(&a.batch.HostView().GaveUp)); int32(gaveUp-a.taken) > 0 && int32(number-gaveUp) > 0 {
		a.below.Add(&cold.Outcome{Rows: 1, Failed: 1, Err: errUnseen})
	}
	a.taken, a.busy = number, true
	a.answering.Go(func() { a.reply(number, n) })
	return true
}

// lastListed returns the number of the last replay that has listed rows, and how many.
func (a *replayAbsent) lastListed() (number uint32, n int) {
	word := atomic.LoadUint64(&a.batch.HostView().Listed)
	return uint32(word >> 32), int(uint32(word))
}

// useAhead notes which rows that were read ahead replays have read, but for those that later ones have displaced from the list. REQUIRES: a.mu is locked.
func (a *replayAbsent) useAhead() {
	now, rows := atomic.LoadUint64(&a.batch.HostView().Read), a.batch.AheadView()
	n := uint64(len(rows))
	if now-a.read > n {
		a.read = now - n
	}
	for ; a.read < now; a.read++ {
		a.batch.Tier.ReadAhead.Use(atomic.LoadInt64(&rows[a.read%n]))
	}
}

// reply answers a replay.
func (a *replayAbsent) reply(number uint32, n int) {
	rows, positions := a.list(n)
	var o cold.Outcome
	if ended := uint32(atomic.LoadUint64(&a.batch.HostView().Replayed)); int32(ended-number) >= 0 { // a later replay may have changed the list
		o = cold.Outcome{Rows: int64(n), Failed: int64(n), Err: errGaveUp}
	} else {
		a.current = number
		o = a.answer(context.Background(), rows, positions, nil)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.below.Add(&o)
	a.busy = false
}

// ended returns the number of the last replay that has ended and of whose absent rows it is known what became of them.
func (a *replayAbsent) ended() uint64 {
	ended := atomic.LoadUint64(&a.batch.HostView().Replayed)
	a.mu.Lock()
	defer a.mu.Unlock()
	number, n := a.lastListed()
	if n == 0 || number == a.taken && !a.busy {
		return ended
	}
	if a.busy {
		number = a.taken
	}
	if behind := int32(uint32(ended) - number); behind >= 0 {
		return ended - uint64(behind) - 1
	}
	return ended
}

// outcome returns what became of absent rows since the last call.
func (a *replayAbsent) outcome() cold.Outcome {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.useAhead()
	o := a.below
	a.below = cold.Outcome{}
	return o
}

// enqueueRest enqueues what follows the kernel that replays: the waiting for absent rows, and the use of rows.
func (c *capture) enqueueRest(s device.Stream) error {
	if c.absent == nil {
		return c.useRows(s)
	}
	if err := c.absent.enqueue(s, c.kernel.Serve.Lookup.Out, c.useRows); err != nil {
		return fmt.Errorf("rows below the host tier: %w", err)
	}
	return nil
}

// useRows enqueues the adding up of rows, or copies them to their places, where that is to be done.
func (c *capture) useRows(s device.Stream) error {
	switch {
	case c.sums != nil:
		return s.Launch(c.sums)
	case c.stride != 0:
		return copyRows(s, c.out, c.stride, c.mem, int64(c.kernel.Serve.Lookup.RowBytes))
	}
	return nil
}
