package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
	"github.com/valkey-io/valkey-go"
)

// request is pages of one shard.
type request struct {
	*read
	shard    *shard
	which    []int // indices of pages
	left     atomic.Int64
	finished chan struct{} // closed when all are done
	master   atomic.Bool   // a replica lacked a page
	hops     int           // how often nodes said that another one has the slot
}

// outcome is how an attempt at a request ended.
type outcome struct {
	err   error // of the node, nil if it answered everything
	moved bool  // the node said that another one has the slot
}

// run reads the pages of a request. It returns those that may belong to another shard now.
func (q *request) run(ctx context.Context) (moved []int) {
	s := q.s
	outcomes := make(chan outcome, 2)
	running, hedged := 0, false
	var tried []*node
	var last error
	wait := firstWait
	hedge := time.NewTimer(time.Hour)
	defer hedge.Stop()
	start := func() bool {
		n := q.shard.pick(tried, s.o.Masters || q.master.Load())
		if n == nil {
			return false
		}
		tried = append(tried, n)
		running++
		s.attempts.Go(func() { outcomes <- q.attempt(n) })
		hedge.Reset(max(s.o.Hedge, 4*n.usually()))
		return true
	}
	patience := time.NewTimer(time.Until(q.patience))
	defer patience.Stop()
	for {
		if running == 0 && !start() {
			if moved, again := q.again(ctx, len(tried) > 0, wait, last); !again {
				return moved
			}
			tried, hedged, wait = nil, false, longer(wait)
			continue
		}
		select {
		case <-q.finished:
			return nil
		case o := <-outcomes:
			running--
			if o.err != nil {
				last = o.err
			}
			if o.moved && running == 0 {
				q.hops++
				s.net.refresh(ctx) //nolint:errcheck // the pages are tried again anyway
				if !sleepUntil(ctx, wait, q.patience) {
					q.fail(q.late(ctx, last))
					return nil
				}
				return q.rest()
			}
		case <-hedge.C:
			if s.o.Hedge > 0 && !hedged && running == 1 && s.mayHedge() {
				hedged = true
				if start() {
					s.counts.hedges.Add(1)
				}
			}
		case <-patience.C:
			q.abandon(q.late(ctx, last))
			return nil
		case <-ctx.Done():
			q.abandon(ctx.Err())
			return nil
		}
	}
}

// again prepares a further round over the shard's nodes, after one in which all that were asked failed; asked is false if none was, as all
// are left alone. If there is no further round, the pages that are left belong to other nodes and are returned, or have been failed.
func (q *request) again(ctx context.Context, asked bool, wait time.Duration, last error) (moved []int, again bool) {
	s := q.s
	if fatal(last) {
		q.fail(last)
		return nil, false
	}
	if asked && !sleepUntil(ctx, wait, q.patience) {
		q.fail(q.late(ctx, last))
		return nil, false
	}
	if err := s.net.refresh(ctx); err == nil {
		if rest := q.rest(); q.movedFrom(rest) {
			return rest, false
		}
	}
	if !asked {
		q.fail(q.shard.failed(fmt.Sprintf("failed %d times in a row and are left alone for %v", breakAfter, breakFor), last))
		return nil, false
	}
	s.counts.retries.Add(1)
	return nil, true
}

// late is the error for pages that have not arrived when the context or the store's patience ends.
func (q *request) late(ctx context.Context, last error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return q.shard.failed(fmt.Sprintf("gave no answer within %v", q.s.o.Patience), last)
}

// fail fails the pages that are left. REQUIRES: no attempt is running.
func (q *request) fail(err error) {
	for _, i := range q.which {
		q.settle(i, err)
	}
}

// abandon fails the pages that are left, also those that a connection is reading.
func (q *request) abandon(err error) {
	for _, i := range q.which {
		q.give(i, err)
	}
}

// rest returns the pages that are not done. REQUIRES: no attempt is running.
func (q *request) rest() (rest []int) {
	for _, i := range q.which {
		if q.states[i].Load() != done {
			rest = append(rest, i)
		}
	}
	return rest
}

// movedFrom reports whether pages belong to other nodes now.
func (q *request) movedFrom(which []int) bool {
	t := q.s.net.now.Load()
	for _, i := range which {
		if now := t.shard(slotOf(q.keys[i])); now == nil || !slices.Equal(now.nodes, q.shard.nodes) {
			return true
		}
	}
	return false
}

// fatal reports whether an error will not go away by asking again.
func fatal(err error) bool {
	if err == nil || errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests) {
		return false
	}
	if _, ok := errors.AsType[*valkey.ValkeyError](err); ok {
		return !temporary(err)
	}
	return permanentTLS(err)
}

// sleepUntil is sleep that also ends, with false, at a moment.
func sleepUntil(ctx context.Context, d time.Duration, end time.Time) bool {
	if time.Until(end) < d {
		return false
	}
	return sleep(ctx, d)
}
