package cache

import (
	"context"
	"sync"
	"time"

	"github.com/tensorcache/tensorcache/slab"
)

// epochs counts the batches of one device: each gets a number when it begins, before anything of it is enqueued, and is
// ended once nothing of it runs any more. The epoch of a moment has passed when every batch that had begun by then has
// ended.
type epochs struct {
	mu struct {
		sync.Mutex
		next    uint64        // number of the next batch
		oldest  uint64        // batches before it have ended
		ended   []bool        // of batches oldest, oldest + 1, ... next - 1
		advance chan struct{} // closed, and replaced, when oldest grows; nil when nobody waits
	}
}

// begin returns the number of a batch that begins.
func (e *epochs) begin() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.mu.next
	e.mu.next++
	e.mu.ended = append(e.mu.ended, false)
	return n
}

// end ends batch n.
func (e *epochs) end(n uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.ended[n-e.mu.oldest] = true
	passed := 0
	for passed < len(e.mu.ended) && e.mu.ended[passed] {
		passed++
	}
	if passed == 0 {
		return
	}
	e.mu.oldest += uint64(passed)
	e.mu.ended = e.mu.ended[:copy(e.mu.ended, e.mu.ended[passed:])] // as short as there are lanes
	if e.mu.advance != nil {
		close(e.mu.advance)
		e.mu.advance = nil
	}
}

// end counts that nothing of the lane's batch runs any more.
func (l *lane) end() {
	if l.running {
		l.running = false
		l.owner.epochs.end(l.epoch)
	}
}

// now returns the epoch of this moment.
func (e *epochs) now() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.next
}

// passed says whether an epoch has passed; if not, the channel is closed when to ask again.
func (e *epochs) passed(epoch uint64) (bool, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.oldest >= epoch {
		return true, nil
	}
	if e.mu.advance == nil {
		e.mu.advance = make(chan struct{})
	}
	return false, e.mu.advance
}

// waitEpoch waits until every batch that has begun on any device has finished. Batches that nobody waits for are asked now
// and then.
func (c *Cache) waitEpoch(ctx context.Context) error {
	var epochs [slab.MaxSlabs]uint64
	for i, d := range c.devices {
		epochs[i] = d.epochs.now()
	}
	for i, d := range c.devices {
		for {
			passed, changed := d.epochs.passed(epochs[i])
			if passed {
				break
			}
			d.settleFinished()
			d.settleFailed()
			select {
			case <-changed:
			case <-time.After(4 * pollBatches):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}
