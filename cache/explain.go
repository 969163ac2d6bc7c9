package cache

import (
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
)

// Explanation says where a row is, or why it is not cached.
type Explanation struct {
	Table int
	Row   int64
	// Cached says that a Gather that begins now hits. Then Device is the device whose slab has the row, and Offset its byte there;
	// or the row lies in the overlay, in host memory, on its way from an Update to the host tier: Device is -1, and Offset counts
	// from the overlay's begin. Age is the time since the row was admitted, or since the cache was filled; 0 in the overlay.
	Cached, Overlay bool
	Device          int
	Offset          int64
	Age             time.Duration
	// Reason is why it is not cached: what its next miss is counted as.
	Reason Reason
	// Compressed and StoredBytes are of the newest version, wherever it is; SlotBytes is what it takes, or would take, in a slab.
	Compressed             bool
	StoredBytes, SlotBytes int
	// Eviction is when the row was withdrawn last, nil if it never was or that is forgotten: some 32,000 rows are remembered.
	Eviction *Eviction
	// Policy is what the admission policy thinks of the row, nil where it does not say.
	Policy *admission.Estimate
}

// Eviction says when and how a row was withdrawn.
type Eviction struct {
	At time.Time
	// Age is how long the row had been cached.
	Age time.Duration
	// By is "refresh", "update", "invalidate" or "device_loss", and Span its span, where that was sampled.
	By   string
	Span trace.SpanContext
}

// Explain says of each row of a table where it is or why not, with the policy's numbers, as of now. It waits for the policy and
// for other changes, not for batches. Row numbers outside the table are an error that wraps ErrRows.
func (c *Cache) Explain(table int, rows []int64) ([]Explanation, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	if _, err := c.tableFor(table, rows, false); err != nil {
		return nil, err
	}
	all := make([]Explanation, len(rows))
	for i, w := range c.writer.Where(table, rows) {
		e := &all[i]
		*e = Explanation{
			Table: table, Row: rows[i], Cached: w.Cached, Overlay: w.Overlay, Device: w.Device, Offset: w.Offset, Age: w.Age, Reason: w.Reason,
			Compressed: w.Compressed, StoredBytes: w.Stored, SlotBytes: slab.SlotBytes(w.Stored),
		}
		if out := w.Withdrawn; !out.At.IsZero() {
			e.Eviction = &Eviction{At: out.At, Age: out.Age}
			if out.By != nil {
				e.Eviction.By, e.Eviction.Span = out.By.What, out.By.Span
			}
		}
	}
	// A policy that panics has nothing to say, and is reported by Refresh.
	c.learner.Call(func(p admission.Policy) {
		if e, ok := p.(admission.Explainer); ok {
			for i, row := range rows {
				estimate := e.Explain(hashmap.Key(table, row))
				all[i].Policy = &estimate
			}
		}
	})
	return all, nil
}
