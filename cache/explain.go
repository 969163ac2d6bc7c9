package cache

import (
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/slab"
)

// Explanation says where a row lies, or why it is not cached.
type Explanation struct {
	Table int
	Row   int64
	// Cached says that a lookup that begins now hits. The row then lies at byte Offset of the slab of Device. Or, with Overlay, it lies at
	// byte Offset of the overlay, on its way from an Update to the host tier, and Device is -1. Age is the time since the row was
	// admitted or the cache was filled, 0 in the overlay.
	Cached, Overlay bool
	Device          int
	Offset          int64
	Age             time.Duration
	// Tier is where the newest version of the row is read next: "slab", "overlay", "host", or, of a table of FromPages, "log" for a row of the log of
	// updates and "pages". Since is when it came there, the zero time if that is not known; of rows in no slab up to a second earlier.
	Tier  string
	Since time.Time
	// Reason is the reason of the row's next miss, if it is not cached.
	Reason slab.Reason
	// Compressed and StoredBytes describe the newest version of the row. SlotBytes is the slab memory that it takes or would take. Of a row in
	// pages that cannot be read they are false and 0.
	Compressed             bool
	StoredBytes, SlotBytes int
	// Eviction describes the last time that the row was withdrawn. It is nil if there was none or it is forgotten; about the last 32,000
	// rows are remembered, fewer in small caches.
	Eviction *Eviction
	// Policy is the admission policy's estimate of the row, nil if it makes none.
	Policy *admission.Estimate
}

// Eviction describes the withdrawal of a row.
type Eviction struct {
	At time.Time
	// Age is the time for which the row had been cached.
	Age time.Duration
	// By is "refresh", "update", "invalidate" or "device_loss". Span is the span of that operation, if it was sampled and the cache is not
	// attached.
	By   string
	Span trace.SpanContext
}

// Explain returns for each row where it lies, or why it is not cached, with the policy's estimate. It waits for calls of the policy and
// for other changes, not for batches, and reads the rows that lie in pages, to know their lengths, up to HostOptions.ColdTimeout. For row numbers
// outside the table the error wraps ErrRows.
func (c *Cache) Explain(table int, rows []int64) ([]Explanation, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	if _, err := c.tableFor(table, rows, false); err != nil {
		return nil, err
	}
	return c.owner.explain(table, rows)
}
