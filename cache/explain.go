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
	t, err := c.tableFor(table, rows, false)
	if err != nil {
		return nil, err
	}
	all := make([]Explanation, len(rows))
	for from := 0; from < len(rows); from += changedRows {
		to := min(from+changedRows, len(rows))
		c.locate(t, table, rows[from:to], all[from:to])
	}
	// A policy that panics has nothing to say, and is reported by Refresh.
	c.learner.call(func(p admission.Policy) {
		e, ok := p.(admission.Explainer)
		if !ok {
			return
		}
		for i, row := range rows {
			estimate := e.Explain(hashmap.Key(table, row))
			all[i].Policy = &estimate
		}
	})
	return all, nil
}

// locate fills in all but what the policy thinks.
func (c *Cache) locate(t *table, table int, rows []int64, all []Explanation) {
	ch := &c.changes
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for i, row := range rows {
		e, key := &all[i], hashmap.Key(table, row)
		*e = Explanation{Table: table, Row: row, Device: -1}
		if stored, compressed, err := t.tier.Stored(row); err == nil { // a corrupt row is for Gather to report
			e.StoredBytes, e.Compressed = len(stored), compressed
		}
		l := ch.mu.index.Find(key)
		e.Cached = l.Valid()
		switch {
		case e.Cached && c.overlay.has(l):
			e.Overlay, e.Offset = true, l.Offset()-c.overlay.base
		case e.Cached:
			e.Device, e.Offset = l.Slab(), l.Offset()
			if s, ok := ch.mu.index.Slot(key); ok {
				e.Age = time.Duration(ch.now()-ch.mu.born[s]) * (100 * time.Millisecond)
			}
		default:
			e.Reason = l.Reason()
			if e.Reason == Cold { // the hashmap knows nothing of rows it never held
				switch {
				case t.oversize.has(row):
					e.Reason = Oversize
				case t.rejected.has(row):
					e.Reason = Rejected
				}
			}
		}
		if e.Cached {
			e.StoredBytes, e.Compressed = l.Stored(t.tier.RowBytes()), l.Compressed()
		}
		e.SlotBytes = slab.SlotBytes(e.StoredBytes)
		if w, ok := ch.evictions.find(key); ok {
			e.Eviction = &Eviction{At: w.at, Age: w.age}
			if w.by != nil {
				e.Eviction.By, e.Eviction.Span = w.by.what, w.by.span
			}
		}
	}
}
