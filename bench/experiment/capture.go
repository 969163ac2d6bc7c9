package experiment

import (
	"github.com/tensorcache/tensorcache/bench/trace"
	"github.com/tensorcache/tensorcache/cache"
)

// capture writes every measured access of one cache as a trace, and whether it hit. IDs are row numbers, times batch numbers,
// sizes the rows' lengths.
type capture struct {
	w        *trace.Writer
	rowBytes int64
	batches  int64
	cached   []bool
	requests []trace.Request
}

// newCapture makes the trace; nil if there is to be none.
func newCapture(path string, rowBytes int) (*capture, error) {
	if path == "" {
		return nil, nil
	}
	w, err := trace.Create(path, trace.Options{})
	if err != nil {
		return nil, err
	}
	return &capture{w: w, rowBytes: int64(rowBytes)}, nil
}

// batch writes the batch that is about to begin. Cycles in the background may change the cache before it does.
func (p *capture) batch(c *cache.Cache, rows []int64) (err error) {
	if p == nil {
		return nil
	}
	if p.cached, err = c.Cached(0, rows, p.cached[:0]); err != nil {
		return err
	}
	p.requests = p.requests[:0]
	for i, row := range rows {
		r := trace.Request{ID: uint64(row), Size: p.rowBytes, Next: trace.Unknown, Time: p.batches, Outcome: trace.Miss}
		if p.cached[i] {
			r.Outcome = trace.Hit
		}
		p.requests = append(p.requests, r)
	}
	p.batches++
	return p.w.Write(p.requests)
}

// end completes the trace, or gives it up if the run failed.
func (p *capture) end(err error) error {
	if p == nil {
		return err
	}
	if err != nil {
		p.w.Discard()
		return err
	}
	return p.w.Close()
}
