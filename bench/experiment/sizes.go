package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// sizes is what a table's rows take with a codec, and what a cache of them takes besides. Of large tables it has those of some rows only.
type sizes struct {
	codec        string // the one that was chosen
	ratio        float64
	devices      int64
	rows         int64
	looked       *looked  // rows that stored and slot are of
	stored, slot []uint32 // of them
	others       others   // the other rows
	lengths      []int32  // stored lengths of rows like all of them, in no order; nil: stored has all
	cost         admission.Cost
	slots        int64            // of all rows, those that share a slot together
	group        []uint32         // of each row: 0, or the number of the rows that share its slot; nil if none do
	members      []int64          // rows of each group
	sharing      transfer.Sharing // of the groups
	alone        [2]int64         // rows of no group, and their slot bytes
	fixed        int64            // tail slack and row bits of a device
	codecBytes   int64            // on each device, outside the budget
	indexBytes   int64            // of a packed tier, on each device, outside the budget
}

// others are rows that no batch looks up: their number, and the mean of their bytes.
type others struct {
	rows         int64
	stored, slot float64
}

// newSizes returns sizes of a table without those of its rows. c is nil for rows as they are.
func newSizes(t *dataset.Table, cfg *Config, c codec.Codec) *sizes {
	s := &sizes{codec: registry.None, devices: int64(cfg.Devices), rows: int64(t.Rows), cost: admission.GPUCost(t.RowBytes, cfg.link())}
	bits := int64(t.Rows+63) / 64 * 8
	s.fixed = slab.TailSlack + bits // of rejected rows
	if cfg.HostTier == transfer.Packed.String() {
		s.indexBytes = int64(t.Rows) * 8
	} else if c != nil {
		s.fixed += bits // of compressed rows
	}
	if c != nil {
		s.codec, s.codecBytes = c.Name(), c.MetadataBytes()
	}
	return s
}

// measureSizes encodes the table as the cache does, row by row: nothing is kept but lengths.
func measureSizes(ctx context.Context, t *dataset.Table, cfg *Config, name string, progress Progress) (*sizes, error) {
	progress.Stage("training ("+name+")", 0)
	c, err := trainAs(name, t, cfg.Seed)
	if err != nil {
		return nil, fmt.Errorf("codec %s: %w", name, err)
	}
	s := newSizes(t, cfg, c)
	s.stored, s.slot = make([]uint32, t.Rows), make([]uint32, t.Rows)
	var sums struct {
		sync.Mutex
		stored int64
	}
	progress.Stage("encoding ("+name+")", (t.Rows+partRows-1)/partRows)
	err = eachPart(ctx, cfg.Workers, t.Rows, func(from, to int) error {
		var dst []byte
		if c != nil {
			dst = make([]byte, c.EncodeBound())
		}
		stored, slots := int64(0), int64(0)
		for r := from; r < to; r++ {
			n, err := storedBytes(c, dst, t.Row(int64(r)))
			if err != nil {
				return fmt.Errorf("codec %s: row %d: %w", name, r, err)
			}
			s.stored[r], s.slot[r] = uint32(n), uint32(slab.SlotBytes(n))
			stored, slots = stored+int64(n), slots+int64(s.slot[r])
		}
		sums.Lock()
		defer sums.Unlock()
		t.Unload(from, to)
		progress.Step()
		sums.stored, s.slots = sums.stored+stored, s.slots+slots
		return nil
	})
	s.ratio = ratio(int64(len(t.Data)), sums.stored)
	if err == nil && t.Paged() == nil && (!cfg.NoEqualRows || s.indexBytes > 0) { // rows of pages have slots of their own
		err = s.share(ctx, t, cfg)
	}
	return s, err
}

// storedBytes returns how many bytes a row is stored in. dst has room for them.
func storedBytes(c codec.Codec, dst, row []byte) (int, error) {
	if c == nil {
		return len(row), nil
	}
	n, err := c.Encode(dst, row)
	if errors.Is(err, codec.ErrIncompressible) {
		return len(row), nil
	}
	return n, err
}

// share finds the rows that share slots.
func (s *sizes) share(ctx context.Context, t *dataset.Table, cfg *Config) error {
	mode, err := transfer.ParseMode(cfg.HostTier)
	if err != nil {
		return err
	}
	if s.group, err = transfer.Equal(ctx, t.Data, t.RowBytes, mode, cfg.Workers); s.group == nil {
		return err
	}
	s.members = make([]int64, slices.Max(s.group)+1)
	for _, g := range s.group {
		s.members[g]++
	}
	s.slots, s.alone = 0, [2]int64{s.members[0], 0}
	seen := make([]bool, len(s.members))
	for r, g := range s.group {
		bytes := int64(s.slot[r])
		switch {
		case g == 0:
			s.alone[1] += bytes
		case seen[g]:
			continue
		default:
			s.sharing.Add(s.members[g], bytes)
		}
		seen[g] = true
		s.slots += bytes
	}
	return nil
}

// priced returns what policies see as the slot bytes of each row in a cache of so many bytes of slots and map.
func (s *sizes) priced(bytes int64) []uint32 {
	if s.group == nil {
		return s.slot
	}
	prices, _ := s.sharing.Prices(s.sharing.Share(bytes, true, s.mapBytes(), s.alone[0], s.alone[1]), s.mapBytes())
	all := slices.Clone(s.slot)
	for r, g := range s.group {
		if g != 0 {
			all[r] = uint32(prices.Of(s.members[g], int64(s.slot[r])))
		}
	}
	return all
}

func (s *sizes) mapBytes() float64 { return float64(s.devices) * hashmap.EntryBytes }

// trainAs makes the named codec as a cache of the table with this seed does; nil for rows as they are.
func trainAs(name string, t *dataset.Table, seed uint64) (c codec.Codec, err error) {
	if name == registry.None {
		return nil, nil
	}
	sample := t.Sample(seed)
	if name == registry.Auto {
		c, _, err = registry.Pick(sample, t.RowBytes, t.DType, registry.Terms{Rows: int64(t.Rows)})
		return c, err
	}
	return registry.Train(name, sample, t.RowBytes, t.DType)
}

// partRows is how many rows eachPart hands out at a time.
const partRows = 4096

// eachPart calls do for parts of the rows, on so many goroutines; 0: one a processor.
func eachPart(ctx context.Context, workers, rows int, do func(from, to int) error) error {
	var next atomic.Int64
	errs := make([]error, cmp.Or(workers, runtime.GOMAXPROCS(0)))
	var wg sync.WaitGroup
	for w := range errs {
		wg.Go(func() {
			for errs[w] == nil {
				from := int(next.Add(partRows)) - partRows
				if from >= rows {
					return
				}
				if errs[w] = ctx.Err(); errs[w] == nil {
					errs[w] = do(from, min(from+partRows, rows))
				}
			}
		})
	}
	wg.Wait()
	return cmp.Or(errs...)
}

// budgetFor returns the bytes that each device needs for so many rows of so many slot bytes, which are spread over the devices.
func (s *sizes) budgetFor(rows, bytes int64) int64 {
	payload := (bytes + s.devices - 1) / s.devices
	return s.fixed + hashmap.LayoutFor(max(1, rows)).Bytes() + (payload+slab.Align-1)&^(slab.Align-1)
}

// beside is the device memory outside the budget, on each device.
func (s *sizes) beside() int64 { return s.codecBytes + s.indexBytes }

// rowsIn is how many rows of mean size fit in so many slot bytes, of those that share slots as many as are expected.
func (s *sizes) rowsIn(capacity int64) int64 {
	if s.group != nil {
		cached, _ := s.sharing.Cached(s.sharing.Share(capacity, false, s.mapBytes(), s.alone[0], s.alone[1]), s.mapBytes(), s.alone[0], s.alone[1])
		return max(1, int64(cached))
	}
	return max(1, min(s.rows, int64(float64(capacity)*float64(s.rows)/float64(max(1, s.slots)))))
}

// capacityOf returns the slot bytes of a cache with a budget, all devices together, if rows are of mean size.
func (s *sizes) capacityOf(budget int64) int64 {
	units := sort.Search(int(s.slots/slab.Align), func(i int) bool {
		capacity := int64(i+1) * slab.Align
		return s.budgetFor(s.rowsIn(capacity), capacity) > budget
	})
	return int64(units) * slab.Align
}

// problem is what a policy decides about, in a cache of so many slot bytes and rows.
func (s *sizes) problem(capacity, rows int64) admission.Problem {
	row := func(key uint64) int64 { _, r := hashmap.SplitKey(key); return r }
	priced := s.priced(capacity + int64(float64(rows)*s.mapBytes()))
	return admission.Problem{
		Rows: []int64{int64(len(s.slot))}, Capacity: capacity, MapBytes: int(s.mapBytes()), Costs: []admission.Cost{s.cost},
		SlotBytes:   func(key uint64) int { return int(priced[row(key)]) },
		StoredBytes: func(key uint64) int { return int(s.stored[row(key)]) },
	}
}
