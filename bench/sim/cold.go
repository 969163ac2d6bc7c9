package sim

import (
	"cmp"
	"fmt"

	"github.com/dustin/go-humanize"

	"github.com/tensorcache/tensorcache/bench/sim/demand"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/internal/faults"
)

// TierBatch is what a mean batch takes of a cache on a GPU, a host tier, and what lies below.
type TierBatch struct {
	Requests int `json:"requests"`
	// Reads and BytesRead are those below the host tier: pages that two rows of a batch share are counted twice.
	Reads     float64 `json:"reads"`
	BytesRead float64 `json:"bytes_read"`
	// ResidentMS is the time for hits of cache and host tier, one after the other, as policies count it (admission.Cost); ColdMS that of the reads. MS has one after the
	// other, PrefetchedMS the longer of both.
	ResidentMS   float64 `json:"resident_ms"`
	ColdMS       float64 `json:"cold_ms"`
	MS           float64 `json:"batch_ms"`
	PrefetchedMS float64 `json:"prefetched_ms"`
}

// blockBytes is what reads past the page cache are multiples of.
const blockBytes = 4096

func (c *Config) validateCold(f *faults.List) {
	c.Cold.Validate(f)
	_, err := c.page()
	f.Add(err)
	f.If(c.BatchSize < 0, "--batch-size (%d) must be at least 1", c.BatchSize)
	f.If(len(c.HostSizes) == 0 && (c.Cold.Known() || c.Page != "" || c.BatchSize != 0), "--cold-bandwidth, --cold-reads-per-second, --cold-latency, --page and --batch-size need --host-sizes")
	f.If(c.Cold.Bandwidth != "" && c.UnitSize && c.Page == "", "--cold-bandwidth with --unit-size needs --page, as the bytes of rows are not known")
}

// page returns Page in bytes, 0 if there is none.
func (c *Config) page() (int64, error) {
	if c.Page == "" {
		return 0, nil
	}
	n, err := humanize.ParseBytes(c.Page)
	if err != nil || n < 1 || n > 1<<30 {
		return 0, fmt.Errorf("--page (%q) must be a size such as 4KiB, of at most 1GiB", c.Page)
	}
	return int64(n), nil
}

// readCold adds what is read below the host tier. of is what the cache alone does.
func (c *Config) readCold(tier *TierResult, of *Result, t *demand.Trace) {
	page, _ := c.page()
	mean := 0.0 // bytes of a row
	if t.Sizes != nil {
		mean = float64(t.WorkingSet()) / float64(max(1, t.Rows))
	}
	if page == 0 && mean > 0 {
		page = (int64(mean) + blockBytes - 1) / blockBytes * blockBytes
	}
	tier.ColdBytesRead = tier.ColdMisses * page
	if !c.Cold.Known() {
		return
	}
	n := cmp.Or(c.BatchSize, defaultBatch)
	b := &TierBatch{Requests: n, Reads: float64(n) * tier.ColdMissRatio}
	b.BytesRead = b.Reads * float64(page)
	cost := admission.GPUCost(max(1, int(cmp.Or(mean, defaultRow))), 0)
	b.ResidentMS = 1e3 * float64(n) * ((1-of.MissRatio)*cost.Hit + tier.HostHitRatio*cost.Miss(int(cmp.Or(mean, defaultRow))))
	b.ColdMS = 1e3 * c.Cold.Seconds(b.BytesRead, b.Reads)
	b.MS, b.PrefetchedMS = b.ResidentMS+b.ColdMS, max(b.ResidentMS, b.ColdMS)
	tier.Batch = b
}

const (
	defaultBatch = 4096
	// defaultRow is the bytes of a row where rows count 1.
	defaultRow = 512
)
