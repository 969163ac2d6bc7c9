package cache

import "github.com/tensorcache/tensorcache/cache/internal/read"

// Batch is what View.Enqueue has enqueued. It is safe for concurrent use. Wait need not be called; the error of such a batch is lost.
//
// For a batch in a captured graph, Done reports whether no replay reads the cache. Wait waits for the replays that have begun, and returns what was wrong
// with those since the last Wait. Outputs are complete in the order of the stream that the graph runs on, as after any kernel: a pooled batch may still add up.
type Batch read.Batch

// Done reports whether the batch has finished, without waiting. An error is the device's; errors of the batch are returned by Wait.
func (b *Batch) Done() (bool, error) { return (*read.Batch)(b).Done() }

// Poll is Wait without waiting: it returns false while the batch, or a replay of it, runs. An error with false is the
// device's.
func (b *Batch) Poll() (done bool, err error) { return (*read.Batch)(b).Poll() }

// Release gives back what a batch in a captured graph holds. It waits for replays that run. The graph must not be replayed afterwards. Without it
// the memory is given back some time after the graph, and what was instantiated of it, is destroyed. For other batches Release does nothing.
func (b *Batch) Release() { (*read.Batch)(b).Release() }

// Wait blocks until the batch has finished. It returns an error that wraps ErrRows, ErrCorrupt or ErrCold, the device's error, or nil.
func (b *Batch) Wait() error { return (*read.Batch)(b).Wait() }

// Check returns what was wrong with batches of View.Enqueue, and with replays of captured ones, that have ended since the last Check, or nil: an
// error that wraps ErrRows, ErrCorrupt, ErrCold or ErrDevice, of the first batch that had one, with the number of the others. It is for programs that do not
// wait for their batches. With wait, it first waits for all that are under way. In an attached cache it then also wraps ErrOwner, if a batch has been replayed
// that was captured for an owner in whose place there is another one. Without wait, Check takes less than a microsecond, and what was wrong with a replay is
// returned some milliseconds after it has ended.
func (c *Cache) Check(wait bool) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	set, pinned := c.pin()
	defer unpin(pinned)
	err := set.Faults(wait)
	if err == nil && wait {
		err = c.owner.checkOld()
	}
	return err
}

// Pending is a GatherAsync under way. It is safe for concurrent use.
type Pending struct {
	done chan struct{}
	err  error
}

// Done returns a channel that is closed when the Gather has returned.
func (p *Pending) Done() <-chan struct{} { return p.done }

// Wait blocks until the Gather has returned and returns its error.
func (p *Pending) Wait() error {
	<-p.done
	return p.err
}
