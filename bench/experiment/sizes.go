package experiment

import (
	"fmt"
	"sort"

	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// sizes is what a table's rows take with a codec, and what a cache of them takes besides.
type sizes struct {
	codec        string // the one that was chosen
	ratio        float64
	devices      int64
	stored, slot []uint32
	slots        int64 // of all rows
	fixed        int64 // tail slack and row bits of a device
	codecBytes   int64 // on each device, outside the budget
	indexBytes   int64 // of a packed tier, on each device, outside the budget
}

// measureSizes encodes the table as the cache does.
func measureSizes(t *dataset.Table, cfg *Config, codec string) (*sizes, error) {
	mode, err := transfer.ParseMode(cfg.HostTier)
	if err != nil {
		return nil, err
	}
	home := host.Open(1, cfg.Workers)[0]
	defer home.Close()
	tier, err := transfer.Load(home, transfer.SourceOf(t.Data, t.RowBytes), transfer.Options{
		Codec: codec, DType: t.DType, Mode: mode, Seed: cfg.Seed, Workers: cfg.Workers,
	})
	if err != nil {
		return nil, fmt.Errorf("codec %s: %w", codec, err)
	}
	defer tier.Close()
	total := tier.Totals()
	s := &sizes{codec: "none", ratio: ratio(total.RawBytes, total.StoredBytes), devices: int64(cfg.Devices), slots: total.SlotBytes}
	s.fixed = slab.TailSlack + tier.BitmaskBytes() + (total.Rows+63)/64*8
	s.indexBytes = tier.IndexBytes()
	if c := tier.Codec(); c != nil {
		s.codec, s.codecBytes = c.Name(), c.MetadataBytes()
	}
	s.stored, s.slot = make([]uint32, total.Rows), make([]uint32, total.Rows)
	for r := range total.Rows {
		n, err := tier.StoredBytes(r)
		if err != nil {
			return nil, fmt.Errorf("codec %s: %w", codec, err)
		}
		s.stored[r], s.slot[r] = uint32(n), uint32(slab.SlotBytes(n))
	}
	return s, nil
}

// budgetFor returns the bytes that each device needs for so many rows of so many slot bytes, which are spread over the devices.
func (s *sizes) budgetFor(rows, bytes int64) int64 {
	payload := (bytes + s.devices - 1) / s.devices
	return s.fixed + hashmap.LayoutFor(max(1, rows)).Bytes() + (payload+slab.Align-1)&^(slab.Align-1)
}

// beside is the device memory outside the budget, on each device.
func (s *sizes) beside() int64 { return s.codecBytes + s.indexBytes }

// rowsIn is how many rows of mean size fit in so many slot bytes.
func (s *sizes) rowsIn(capacity int64) int64 {
	rows := int64(len(s.slot))
	return max(1, min(rows, int64(float64(capacity)*float64(rows)/float64(max(1, s.slots)))))
}

// capacityOf returns the slot bytes of a cache with a budget, all devices together, if rows are of mean size.
func (s *sizes) capacityOf(budget int64) int64 {
	units := sort.Search(int(s.slots/slab.Align), func(i int) bool {
		capacity := int64(i+1) * slab.Align
		return s.budgetFor(s.rowsIn(capacity), capacity) > budget
	})
	return int64(units) * slab.Align
}

// problem is what a policy decides about.
func (s *sizes) problem(capacity int64) admission.Problem {
	row := func(key uint64) int64 { _, r := hashmap.SplitKey(key); return r }
	return admission.Problem{
		Rows: []int64{int64(len(s.slot))}, Capacity: capacity,
		SlotBytes:   func(key uint64) int { return int(s.slot[row(key)]) },
		StoredBytes: func(key uint64) int { return int(s.stored[row(key)]) },
	}
}

// curve is the hit ratio of a cache that is filled once, over its size: entry i is of the first i+1 rows in the order of
// admission. It is exact.
type curve struct {
	bytes   []int64 // of slots
	hits    []int64
	lookups int64
}

// newCurve fills a cache in the order of a policy's ranking, then with the rows that it does not rank, as cache.New does.
func newCurve(s *sizes, ranking func(func(uint64) bool), counts []int64) *curve {
	c := &curve{}
	for _, n := range counts {
		c.lookups += n
	}
	ranked := make([]bool, len(s.slot))
	var bytes, hits int64
	add := func(r int64) {
		ranked[r] = true
		bytes, hits = bytes+int64(s.slot[r]), hits+counts[r]
		c.bytes, c.hits = append(c.bytes, bytes), append(c.hits, hits)
	}
	for key := range ranking {
		if _, r := hashmap.SplitKey(key); !ranked[r] {
			add(r)
		}
	}
	for r := range int64(len(s.slot)) {
		if !ranked[r] {
			add(r)
		}
	}
	return c
}

// rowsFor returns how many rows reach a hit ratio, or all of them.
func (c *curve) rowsFor(target float64) int64 {
	i := sort.Search(len(c.hits)-1, func(i int) bool { return float64(c.hits[i]) >= target*float64(c.lookups) })
	return int64(i + 1)
}

// hitRatio returns that of the first rows.
func (c *curve) hitRatio(rows int64) float64 {
	if rows == 0 {
		return 0
	}
	return ratio(c.hits[rows-1], c.lookups)
}

// rowsWithin returns how many rows a budget holds.
func (c *curve) rowsWithin(s *sizes, budget int64) int64 {
	return int64(sort.Search(len(c.bytes), func(i int) bool { return s.budgetFor(int64(i+1), c.bytes[i]) > budget }))
}
