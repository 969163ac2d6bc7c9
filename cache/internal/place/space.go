package place

import (
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// Space is the division of the devices' budgets, in bytes of each device. It is not changed while the cache serves, but replaced.
type Space struct {
	Budgets []int64
	Buddy   []int64        // of each device, for overflow places of resident tables
	Fixed   int64          // for tail slack, resident tables, and row bits: compressed, rejected and, if there are any, oversize
	Layout  hashmap.Layout // of the hashmap, on every device
	Payload []int64        // for slots
	// Smallest is about the shortest slot of any row. Entries is the least number of entries that the hashmap is made for.
	Smallest, Entries int64
}

// PayloadFor returns the bytes that a device's budget leaves for slots if the hashmap has the given number of entries. They may be negative.
func (s *Space) PayloadFor(device int, entries int64) int64 {
	return s.payload(device, s.Budgets[device], hashmap.LayoutFor(max(entries, s.Entries)))
}

// PayloadOf returns the bytes that a budget for a device leaves for slots beside the hashmap. They may be negative.
func (s *Space) PayloadOf(device int, budget int64) int64 { return s.payload(device, budget, s.Layout) }

func (s *Space) payload(device int, budget int64, of hashmap.Layout) int64 {
	return (budget - s.Fixed - s.Buddy[device] - of.Bytes()) &^ (slab.Align - 1)
}

// Payloads returns PayloadFor of each device's budget, at least 0.
func (s *Space) Payloads(entries int64) []int64 {
	all := make([]int64, len(s.Budgets))
	for i := range s.Budgets {
		all[i] = max(0, s.PayloadFor(i, entries))
	}
	return all
}

// ErrBudget is wrapped by errors for budgets that do not hold a single row.
var ErrBudget = errors.New("cache: budget too small")

// NewSpace returns the space of the devices' budgets, each of which must hold at least one row. single says that all budgets are the
// same, for the error's text. resident is what slots and words of resident tables take of each, and buddy what their overflow places do.
func NewSpace(budgets []int64, single bool, tables []*read.Table, resident int64, buddy []int64) (*Space, error) {
	s := &Space{Budgets: budgets, Buddy: buddy, Fixed: slab.TailSlack + resident}
	smallest := int64(0)
	for t := range cacheable(tables) {
		s.Fixed += t.Tier.BitmaskBytes() + read.BitsetBytes(t.Tier.Capacity())
		n, err := smallestSlot(t)
		if err != nil {
			return nil, err
		}
		if smallest == 0 || n < smallest {
			smallest = n
		}
	}
	for i, b := range s.Budgets {
		if s.PayloadFor(i, 1) < smallest {
			least, of := smallest+s.Fixed+s.Buddy[i]+hashmap.LayoutFor(1).Bytes(), ""
			if !single {
				of = fmt.Sprintf(" of device %d", i)
			}
			return nil, fmt.Errorf("%w: GPUMemory%s (%d B) must hold at least one slot (%d B) and its metadata: %d B in all", ErrBudget, of, b, smallest, least)
		}
	}
	s.Smallest = smallest
	return s, nil
}

// MostEntries returns the most entries with which every device's budget has room for the hashmap and a slot. The maps of all devices have one layout, so a
// budget that is much smaller than the others limits the rows in all.
func (s *Space) MostEntries() int64 {
	room := int64(math.MaxInt64)
	for i, b := range s.Budgets {
		room = min(room, b-s.Buddy[i])
	}
	return max(1, hashmap.EntriesIn(room-s.Fixed-s.Smallest))
}

// smallestSlot returns the length of the shortest slot of the table's first rows.
func smallestSlot(t *read.Table) (int64, error) {
	smallest := int64(slab.SlotBytes(t.Tier.RowBytes()))
	for r := range min(t.Tier.Rows(), 1024) {
		n, err := t.Tier.SlotBytes(r)
		if err != nil {
			return 0, err
		}
		smallest = min(smallest, int64(n))
	}
	return smallest, nil
}

// cacheable yields the tables whose rows slabs may hold.
func cacheable(tables []*read.Table) iter.Seq[*read.Table] {
	return func(yield func(*read.Table) bool) {
		for _, t := range tables {
			if _, most := t.Cacheable(); most > 0 && !yield(t) {
				return
			}
		}
	}
}

// fullBytes returns the slot bytes of the rows of a table that slabs may hold, once it has all the rows that it can.
func fullBytes(t *read.Table) int64 {
	_, most := t.Cacheable()
	if most == 0 {
		return 0
	}
	total := t.Tier.Totals()
	return total.SlotBytes + (most-total.Rows)*int64(slab.SlotBytes(t.Tier.RowBytes()))
}

// Estimate returns the slot bytes that all slabs together will hold, and their number of rows, if cached rows are as long as the mean.
// Tables are taken to be as long as their capacity.
func (s *Space) Estimate(tables []*read.Table) (bytes, rowsCached int64) {
	// Resident tables take none of either.
	var slots, shared, rows int64
	for _, t := range tables {
		slots += fullBytes(t)
		shared += t.Tier.SharedBytes()
		_, most := t.Cacheable()
		rows += most
	}
	var budget, devices float64
	for i, b := range s.Budgets {
		budget += float64(b - s.Fixed - s.Buddy[i])
		devices++
	}
	// The number of entries e solves: sum over devices of (budget - fixed - map(e)) = e × mean, where map(e) = e × SlotBytes / Load.
	// If rows are copied, fewer fit. The map is sized without copies all the same, because copies may be removed.
	mean := float64(slots / max(1, rows))
	entries := budget / (mean + devices*hashmap.EntryBytes)
	if shared > 0 {
		entries, _ = cached(tables, s.share(tables), devices*hashmap.EntryBytes)
	}
	rowsCached = max(1, int64(min(entries, float64(rows), float64(s.MostEntries()))))
	for _, payload := range s.Payloads(rowsCached) {
		bytes += min(payload, slots)
	}
	return min(slots, bytes), rowsCached
}

// cached returns how many rows caches hold that hold a share of the rows without equals, and their slot bytes.
func cached(tables []*read.Table, share, mapBytes float64) (rows, bytes float64) {
	for _, t := range tables {
		sharing, slots := t.Tier.Sharing(), fullBytes(t)
		_, alone := t.Cacheable()
		for _, class := range sharing {
			alone, slots = alone-class.Rows, slots-class.Bytes
		}
		n, b := sharing.Cached(share, mapBytes, max(0, alone), max(0, slots))
		rows, bytes = rows+n, bytes+b
	}
	return rows, bytes
}

// share returns which share of the rows without equals the budgets hold, if all rows are used equally often.
func (s *Space) share(tables []*read.Table) float64 {
	budget, mapBytes := 0.0, float64(len(s.Budgets))*hashmap.EntryBytes
	for i, b := range s.Budgets {
		budget += float64(b - s.Fixed - s.Buddy[i])
	}
	low, high := 0.0, 1.0
	for range 40 {
		mid := (low + high) / 2
		if rows, bytes := cached(tables, mid, mapBytes); bytes+rows*mapBytes <= budget {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// Prices returns, for each table, which part of its slot a row pays for that shares it: see transfer.Sharing.
func (s *Space) Prices(tables []*read.Table) (all []transfer.Prices) {
	share := s.share(tables)
	for _, t := range tables {
		prices, _ := t.Tier.Sharing().Prices(share, float64(len(s.Budgets))*hashmap.EntryBytes)
		all = append(all, prices)
	}
	return all
}
