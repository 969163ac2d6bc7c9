package read

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// epochWords say which batches of a lane run. A batch begins before it loads anything that a writer may withdraw, and ends once
// nothing of it runs any more. Only the lane's user writes them.
type epochWords struct {
	begun, ended atomic.Uint64 // numbers of the lane's last batch that has begun, and that has ended
}

func (w *epochWords) begin() { w.begun.Add(1) }

// running returns the number of the batch that runs, 0 for none.
func (w *epochWords) running() uint64 {
	ended := w.ended.Load()
	if begun := w.begun.Load(); begun != ended {
		return begun
	}
	return 0
}

// passed says whether batch n of the lane has ended.
func (w *epochWords) passed(n uint64) bool { return w.ended.Load() >= n }

// progress wakes those who wait for batches to end. The common case, that nobody waits, is one atomic load.
type progress struct {
	waiting atomic.Int32
	mu      sync.Mutex
	changed chan struct{} // closed, and replaced, when something has happened while someone waits
}

// wait registers a waiter. The channel is closed at the next notify. done must be called.
func (p *progress) wait() <-chan struct{} {
	p.waiting.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.changed
}

func (p *progress) done() { p.waiting.Add(-1) }

func (p *progress) notify() {
	if p.waiting.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// pollEpoch is how often a writer that waits asks the device about batches that nobody waits for.
const pollEpoch = 200 * time.Microsecond

// WaitEpoch waits until every batch that has begun on any device has ended.
func (s *Set) WaitEpoch(ctx context.Context) error {
	type batch struct {
		lane *lane
		n    uint64
	}
	s.fence.Add(1) // what was withdrawn is stored before the lanes' words are loaded
	for _, d := range s.Devices {
		var running []batch
		for i := range d.lanes {
			if l := d.lanes[i].Load(); l != nil {
				if n := l.words.running(); n != 0 {
					running = append(running, batch{l, n})
				}
			}
		}
		for _, b := range running {
			for !b.lane.words.passed(b.n) {
				changed := d.progress.wait()
				if b.lane.words.passed(b.n) {
					d.progress.done()
					break
				}
				d.SettleFinished()
				d.settleFailed()
				select {
				case <-changed:
				case <-time.After(pollEpoch):
				case <-ctx.Done():
					d.progress.done()
					return ctx.Err()
				}
				d.progress.done()
			}
		}
	}
	return nil
}
