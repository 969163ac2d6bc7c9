package trace

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/hashmap"
)

// Capture writes what a cache samples as a tct trace: IDs are table × 2^56 + row, times milliseconds since the begin. It is
// safe for concurrent use.
//
//	refresh := cache.RefreshOptions{Keys: 0.01}
//	capture, err := trace.NewCapture(file, trace.ByID, 0.01, nil)
//	...
//	c, err := cache.New(cache.Options{..., Refresh: refresh, Capture: capture.Add})
//	...
//	err = errors.Join(c.Close(), capture.Close(), file.Close())
type Capture struct {
	sampling Sampling
	rowBytes []int64
	begin    time.Time

	mu struct {
		sync.Mutex
		w        *BlockWriter
		requests []Request
	}
}

// NewCapture begins a trace of the samples that are kept for one reason: RefreshOptions.Accesses (ByAccess) or
// RefreshOptions.Keys (ByID), whose value rate is. rowBytes are the tables' row lengths, which become sizes; nil: none are
// written.
func NewCapture(w io.Writer, s Sampling, rate float64, rowBytes []int64) (*Capture, error) {
	if s != ByAccess && s != ByID {
		return nil, errors.New("trace: capture: sampling (" + s.String() + ") must be by access or by ID")
	}
	c := &Capture{sampling: s, rowBytes: rowBytes, begin: time.Now()}
	var err error
	c.mu.w, err = NewBlockWriter(w, Header{Sampling: s, Rate: rate, Tick: time.Millisecond})
	return c, err
}

// Add is for cache.Options.Capture. After a failed write it does nothing; Close says so.
func (c *Capture) Add(samples []cache.Sample, lost int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Since(c.begin).Milliseconds()
	c.mu.w.Lose(lost)
	c.mu.requests = c.mu.requests[:0]
	for _, s := range samples {
		if c.sampling == ByAccess && !s.ByAccess || c.sampling == ByID && !s.ByKey {
			continue
		}
		r := Request{ID: hashmap.Key(s.Table, s.Row), Next: Unknown, Time: now, Outcome: Hit}
		if s.Missed {
			r.Outcome = Miss
		}
		if s.Table < len(c.rowBytes) {
			r.Size = c.rowBytes[s.Table]
		}
		c.mu.requests = append(c.mu.requests, r)
	}
	c.mu.w.Write(c.mu.requests) // Close returns its error
}

// Flush writes what there is, so that it can be read already.
func (c *Capture) Flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.w.Flush()
}

// Close ends the trace. The cache must be closed before.
func (c *Capture) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.w.Close()
}
