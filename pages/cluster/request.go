package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
	"github.com/valkey-io/valkey-go"
)

// The states of a page that is read. Whoever moves it to claimed may write to its memory; whoever moves it to done calls the reader.
const (
	waiting uint32 = iota
	claimed        // a connection has its answer and is reading it
	done
)

// read is one call of ReadPages.
type read struct {
	s        *Store
	into     [][]byte
	done     func(i int, page []byte, err error)
	keys     []string
	states   []atomic.Uint32
	requests []atomic.Pointer[request] // that each page belongs to
	patience time.Time
}

// deliver tells the reader of a page that this goroutine moved to done.
func (r *read) deliver(i int, page []byte, err error) {
	r.done(i, page, err)
	q := r.requests[i].Load()
	if q.left.Add(-1) == 0 {
		close(q.finished)
	}
}

// settle moves a page that nobody reads to done and tells the reader.
func (r *read) settle(i int, err error) {
	if r.states[i].CompareAndSwap(waiting, done) {
		r.deliver(i, nil, err)
	}
}

// give fails pages, also those that a connection is reading.
func (r *read) give(i int, err error) {
	if r.states[i].Swap(done) != done {
		r.deliver(i, nil, err)
	}
}

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
	impatient := func() error {
		return fmt.Errorf("cluster: no answer within %v: %w", s.o.Patience, errors.Join(last))
	}
	for {
		if running == 0 && !start() {
			if fatal(last) {
				q.each(func(i int) { q.settle(i, last) })
				return nil
			}
			if len(tried) == 0 { // every node that may have the pages failed several times in a row
				if err := s.net.refresh(ctx); err == nil {
					if rest := q.rest(); q.movedFrom(rest) {
						return rest
					}
				}
				q.each(func(i int) { q.settle(i, s.down(q.shard, last)) })
				return nil
			}
			tried, hedged = nil, false
			if !sleepUntil(ctx, wait, q.patience) {
				err := ctx.Err()
				if err == nil {
					err = impatient()
				}
				q.each(func(i int) { q.settle(i, err) })
				return nil
			}
			wait = longer(wait)
			s.counts.retries.Add(1)
			if err := s.net.refresh(ctx); err == nil {
				if rest := q.rest(); q.movedFrom(rest) {
					return rest
				}
			}
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
					q.each(func(i int) { q.settle(i, errors.Join(ctx.Err(), impatient())) })
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
			q.each(func(i int) { q.give(i, impatient()) })
			return nil
		case <-ctx.Done():
			q.each(func(i int) { q.give(i, ctx.Err()) })
			return nil
		}
	}
}

func (q *request) each(f func(i int)) {
	for _, i := range q.which {
		f(i)
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

// attempt asks one node for the pages that are not done.
func (q *request) attempt(n *node) (o outcome) {
	s := q.s
	end, err := n.begin(s.life, q.finished)
	if err != nil {
		return outcome{err: &nodeError{n.addr, err}}
	}
	if end == nil {
		return outcome{}
	}
	var ask []int
	var commands []valkey.Completed
	client := *n.client.Load()
	for _, i := range q.which {
		if q.states[i].Load() != done {
			ask = append(ask, i)
			commands = append(commands, client.B().Get().Key(q.keys[i]).Build())
		}
	}
	if len(ask) == 0 {
		end(nil)
		return outcome{}
	}
	// The client's own time-out bounds connecting and the answer. A context that ends while it connects would cost it, for good, one of the
	// connections that it may have (valkey-go 1.0.79 does not take the connection back).
	stream := client.DoMultiStream(s.life, commands...)
	for _, i := range ask {
		var fault error
		if fault, err = q.receive(&stream, i, n); err != nil {
			break
		}
		if ve, ok := valkey.IsValkeyErr(fault); ok {
			o.moved = o.moved || redirected(ve)
		}
		if fault != nil && o.err == nil {
			o.err = &nodeError{n.addr, fault}
		}
	}
	end(err)
	if err != nil {
		o.err = &nodeError{n.addr, err}
		if errors.Is(err, valkey.ErrClosing) { // the client has another connection to the node by now
			s.net.refresh(s.life) //nolint:errcheck // the node is tried again anyway
		}
	}
	return o
}

// receive reads the answer for one page. err is set if the connection cannot be used any more, fault if the node has an error instead of the
// page.
func (q *request) receive(stream *valkey.MultiValkeyResultStream, i int, n *node) (fault, err error) {
	w := pageWriter{q: q, i: i}
	_, err = stream.WriteTo(&w)
	if valkey.IsValkeyNil(err) {
		switch {
		case n == q.shard.master():
			q.settle(i, &nodeError{n.addr, ErrMissing})
		default:
			q.master.Store(true)
		}
		return nil, nil
	}
	if _, ok := valkey.IsValkeyErr(err); ok {
		return err, nil
	}
	switch {
	case err != nil:
		if w.mine {
			q.states[i].CompareAndSwap(claimed, waiting)
		}
		return nil, err
	case w.foreign:
		q.settle(i, &nodeError{n.addr, errors.New("the key of a page holds no string")})
	case w.long:
		if q.states[i].CompareAndSwap(claimed, done) {
			q.deliver(i, nil, &nodeError{n.addr, fmt.Errorf("page must have at most %d bytes", len(q.into[i]))})
		}
	case w.mine || w.n == 0 && !w.begun && q.states[i].CompareAndSwap(waiting, claimed):
		if q.states[i].CompareAndSwap(claimed, done) {
			n.counts.pages.Add(1)
			n.counts.bytes.Add(int64(w.n))
			q.deliver(i, q.into[i][:w.n], nil)
		}
	}
	return nil, nil
}

// pageWriter takes an answer to a page's memory, unless another connection does.
type pageWriter struct {
	q                          *request
	i, n                       int
	begun, mine, long, foreign bool
}

// ReadFrom implements io.ReaderFrom, by which the client hands over strings.
func (w *pageWriter) ReadFrom(r io.Reader) (int64, error) {
	w.begun = true
	if w.mine = w.q.states[w.i].CompareAndSwap(waiting, claimed); !w.mine {
		return io.Copy(io.Discard, r)
	}
	into := w.q.into[w.i]
	for w.n < len(into) {
		n, err := r.Read(into[w.n:])
		w.n += n
		if err == io.EOF {
			return int64(w.n), nil
		}
		if err != nil {
			return int64(w.n), err
		}
	}
	more, err := io.Copy(io.Discard, r)
	w.long = more > 0
	return int64(w.n) + more, err
}

// Write takes what is no string.
func (w *pageWriter) Write(b []byte) (int, error) {
	w.foreign = true
	return len(b), nil
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
