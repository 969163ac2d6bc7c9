package serve

import (
	"time"

	"github.com/tensorcache/tensorcache/internal/statjson"
)

// Status is what a running owner says of itself.
type Status struct {
	// Clients is the number of attached processes, and Attached describes them, the oldest first.
	Clients  int      `json:"clients"`
	Attached []Client `json:"attached"`
	Process  int      `json:"process"`
	Draining bool     `json:"draining"`
	statjson.Stats
}

// Client describes an attached process.
type Client struct {
	Name    string    `json:"name"`
	Process int       `json:"process"` // 0 if it is not visible to the owner
	Since   time.Time `json:"since"`
	// Counters since it attached.
	Gathers int64 `json:"gathers"`
	Lookups int64 `json:"lookups"`
	Hits    int64 `json:"hits"`
	// MaxScratch is the most bytes that it may allocate on each device: what it has asked for, or else Options.MaxScratch; 0: no limit.
	MaxScratch int64 `json:"max_scratch"`
	// HoldsSeconds is how long it has held back changes, 0 unless that is longer than Options.StoppedAfter.
	HoldsSeconds float64 `json:"holds_s"`
}
