package cluster

import (
	"errors"
	"fmt"
	"io"

	"github.com/valkey-io/valkey-go"
)

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
