package experiment

import (
	"context"
	"fmt"
	"time"

	"github.com/tensorcache/tensorcache/cache"
)

// Explained says where a row is after a run, or why it is not cached. Its JSON form is what `cachebench run --explain --json` prints.
type Explained struct {
	Row int64 `json:"row"`
	// Where is "slab", "overlay", or for rows that are not cached "host", or "log" or "pages" below the host tier; Reason is then why.
	Where string `json:"where"`
	// Since is when the row came there, if that is known.
	Since  *time.Time `json:"since,omitempty"`
	Reason string     `json:"reason,omitempty"`
	// Device and Offset say where in a slab, and AgeSeconds since when.
	Device      *int     `json:"device,omitempty"`
	Offset      *int64   `json:"offset,omitempty"`
	AgeSeconds  *float64 `json:"age_seconds,omitempty"`
	Compressed  bool     `json:"compressed"`
	StoredBytes int      `json:"stored_bytes"`
	SlotBytes   int      `json:"slot_bytes"`
	// Eviction is there if the row was withdrawn and that is remembered.
	Eviction *ExplainedEviction `json:"eviction,omitempty"`
	// Policy is there if the policy explains itself.
	Policy *ExplainedPolicy `json:"policy,omitempty"`
}

// ExplainedEviction says when a row was withdrawn last, and how long it had been cached.
type ExplainedEviction struct {
	At         time.Time `json:"at"`
	AgeSeconds float64   `json:"age_seconds"`
	By         string    `json:"by,omitempty"`
	TraceID    string    `json:"trace_id,omitempty"`
}

// ExplainedPolicy is what the policy thinks of a row: see admission.Estimate.
type ExplainedPolicy struct {
	Frequency float64 `json:"frequency"`
	Score     float64 `json:"score"`
	Victim    float64 `json:"victim_score"`
	Rejected  bool    `json:"rejected"`
}

// Explain does what Run does with the cache of the config, without the uncompressed one, and then says of each row of the table
// where it is or why not.
func Explain(ctx context.Context, cfg Config, rows []int64, progress Progress) ([]Explained, error) {
	r, err := prepare(cfg, progress)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		if row < 0 || row >= int64(r.table.Rows) {
			return nil, fmt.Errorf("--explain (%d) must be 0 to %d of table %s", row, r.table.Rows-1, r.table.Name)
		}
	}
	var all []cache.Explanation
	r.explain = func(c *cache.Cache) (err error) {
		all, err = c.Explain(0, rows)
		return err
	}
	if _, err := r.measure(ctx, cfg.Codec, cfg.HostTier, cfg.Verify); err != nil {
		return nil, err
	}
	out := make([]Explained, len(all))
	for i, e := range all {
		out[i] = explained(e)
	}
	return out, nil
}

func explained(e cache.Explanation) Explained {
	x := Explained{Row: e.Row, Where: e.Tier, Compressed: e.Compressed, StoredBytes: e.StoredBytes, SlotBytes: e.SlotBytes}
	switch age := e.Age.Seconds(); {
	case e.Overlay:
	case e.Cached:
		x.Device, x.Offset, x.AgeSeconds = &e.Device, &e.Offset, &age
	default:
		x.Reason = e.Reason.String()
	}
	if !e.Since.IsZero() {
		x.Since = &e.Since
	}
	if v := e.Eviction; v != nil {
		x.Eviction = &ExplainedEviction{At: v.At, AgeSeconds: v.Age.Seconds(), By: v.By}
		if v.Span.IsValid() {
			x.Eviction.TraceID = v.Span.TraceID().String()
		}
	}
	x.Policy = (*ExplainedPolicy)(e.Policy)
	return x
}
