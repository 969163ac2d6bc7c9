package statjson

import (
	"time"

	"github.com/tensorcache/tensorcache/cache"
)

// Explanation says where a row is, or why it is not cached.
type Explanation struct {
	Row         int64      `json:"row"`
	Cached      bool       `json:"cached"`
	Overlay     bool       `json:"overlay,omitempty"` // on its way from an update to the host tier
	Tier        string     `json:"tier"`              // where it is read: slab, overlay, host, log or pages
	TierSeconds float64    `json:"tier_s,omitempty"`  // since it came there, if that is known
	Device      *int       `json:"device,omitempty"`  // whose memory holds the row
	AgeSeconds  float64    `json:"age_s,omitempty"`   // since it was cached
	Reason      string     `json:"reason,omitempty"`  // why it is not cached
	Compressed  bool       `json:"compressed"`
	StoredBytes int        `json:"stored_bytes"`
	SlotBytes   int        `json:"slot_bytes"`
	Withdrawn   *Withdrawn `json:"withdrawn,omitempty"`
	Policy      *Policy    `json:"policy,omitempty"`
}

// Withdrawn says when a row was withdrawn last, how long it had been cached, and by what.
type Withdrawn struct {
	Time       float64 `json:"time"` // seconds since 1970
	AgeSeconds float64 `json:"age_s"`
	By         string  `json:"by"`
}

// Policy is what the policy thinks of a row: see admission.Estimate.
type Policy struct {
	Frequency float64 `json:"frequency"`
	Score     float64 `json:"score"`
	Victim    float64 `json:"victim_score"`
	Rejected  bool    `json:"rejected"`
}

// Explain returns for each row of a table where it is, or why it is not cached. Errors are those of Cache.Explain.
func Explain(c *cache.Cache, table int, rows []int64) ([]Explanation, error) {
	found, err := c.Explain(table, rows)
	if err != nil {
		return nil, err
	}
	all := make([]Explanation, len(found))
	for i, f := range found {
		e := Explanation{
			Row: f.Row, Cached: f.Cached, Overlay: f.Overlay, Compressed: f.Compressed, StoredBytes: f.StoredBytes, SlotBytes: f.SlotBytes,
			AgeSeconds: f.Age.Seconds(), Policy: (*Policy)(f.Policy),
		}
		if e.Tier = f.Tier; !f.Since.IsZero() {
			e.TierSeconds = time.Since(f.Since).Seconds()
		}
		switch {
		case !f.Cached:
			e.Reason = f.Reason.String()
		case !f.Overlay:
			e.Device = &f.Device
		}
		if f.Eviction != nil {
			e.Withdrawn = &Withdrawn{float64(f.Eviction.At.UnixNano()) / float64(time.Second), f.Eviction.Age.Seconds(), f.Eviction.By}
		}
		all[i] = e
	}
	return all, nil
}
