package fill

import (
	"errors"
	"iter"
	"slices"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/cache/internal/learn"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/numa"
	"github.com/tensorcache/tensorcache/slab"
)

// choose walks the policy's ranking, then the rows it did not offer, until the budget is spent, and fixes the map's
// size. It appends the chosen rows to keys. Free space costs nothing to fill, and a row nobody asked for yet may still be asked for. What is offered beyond
// that is noted as rejected.
func (f *filler) choose(keys []uint64) (_ []uint64, err error) {
	topology, s := f.store.Topology.Load(), f.store.Space.Load()
	offered := make([]read.Bitset, len(f.set.Tables))
	for i, t := range f.set.Tables {
		_, most := t.Cacheable()
		offered[i], t.Rejected = read.NewBitset(most), read.NewBitset(most)
	}
	// What the rows take in each clique's slabs, and of that by rows that are copied.
	used, full, entries := make([]int64, len(topology.Cliques)), false, int64(0)
	f.room, f.ringRoom, f.fits = make([]int64, len(f.set.Tables)), make([]int64, len(f.set.Tables)), make([]bool, len(f.set.Tables))
	for i, t := range f.set.Tables {
		if t.Tier.Partial() {
			f.room[i], _ = t.Tier.MainBytes()
			f.ringRoom[i] = t.Tier.FillAheadBytes()
			f.fits[i] = f.room[i] >= t.Tier.Totals().SlotBytes
		}
	}
	bytes, hot := int64(0), f.store.Hot.Bytes.Load()
	placed, memory := numa.Make[uint8](int64(len(f.groupRows))) // for each group of equal rows, bits of the cliques that a slot is counted for
	defer memory.Free()
	if err := f.markOversize(offered); err != nil {
		return nil, err
	}
	for _, t := range f.set.Tables { // seldom any
		if len(t.Oversize) != 0 {
			s.Fixed += read.BitsetBytes(t.Tier.Capacity())
			if s.Entries > 0 { // the map is the smaller for it
				_, s.Entries = s.Estimate(f.set.Tables)
			}
		}
	}
	most := s.MostEntries()
	// takeOne says whether the ranking goes on.
	takeOne := func(key uint64, offer bool) (bool, error) {
		table, row := hashmap.SplitKey(key)
		if table >= len(f.set.Tables) {
			return true, nil
		}
		if now, _ := f.set.Tables[table].Cacheable(); row >= now || offered[table].Has(row) {
			return true, nil
		}
		t := f.set.Tables[table]
		offered[table].Add(row)
		if full = full || entries == most; !full {
			n, err := f.slotBytes(key)
			if err != nil {
				return false, err
			}
			full = true
			group := f.group(key)
			shared := group != 0
			counted := shared && placed[group] != 0
			for q, members := range topology.Cliques {
				room, takes := int64(0), int64(n)
				for _, i := range members {
					room += max(0, s.PayloadFor(i, entries+1))
				}
				if bytes+int64(n) <= hot {
					takes *= int64(len(members))
				}
				if shared && placed[group]>>q&1 != 0 {
					takes = 0
				}
				if used[q]+takes <= room {
					used[q] += takes
					full = false
					if shared {
						placed[group] |= 1 << q
					}
				}
			}
			if !full {
				if !counted {
					bytes += int64(n)
				}
				entries++
				if !t.Tier.Partial() {
					keys = append(keys, key)
					return true, nil
				}
				f.chosen = append(f.chosen, key)
				if f.o.Inclusive || f.fits[table] {
					f.host(table, key)
				}
				return true, nil
			}
		}
		f.host(table, key)
		if offer {
			t.Rejected.Add(row)
		}
		return offer, nil
	}
	take := func(ranking iter.Seq[uint64], offer bool) error {
		for part := range f.inParts(ranking) {
			if err := f.o.Context.Err(); err != nil {
				return err
			}
			fetchGroups(f, part, placed, 1)
			for _, key := range part {
				if on, err := takeOne(key, offer); !on {
					return err
				}
			}
		}
		return nil
	}
	restored, err := f.observeRestored()
	if err != nil {
		return nil, err
	}
	if err := take(slices.Values(restored), false); err != nil {
		return nil, err
	}
	f.restored = len(keys)
	if !f.o.Cold {
		panicked := f.o.Learner.Call(func(policy admission.Policy) { err = take(policy.Rank(), true) })
		if err := errors.Join(panicked, err); err != nil {
			return nil, err
		}
	}
	for i, t := range f.set.Tables {
		if full || f.o.Cold {
			break
		}
		now, _ := t.Cacheable()
		if err := take(allRows(i, now), false); err != nil {
			return nil, err
		}
	}
	for i, t := range f.set.Tables {
		now, _ := t.Cacheable()
		for row := range now {
			if f.room[i] <= 0 && f.ringRoom[i] <= 0 {
				break
			}
			if !offered[i].Has(row) {
				f.host(i, hashmap.Key(i, row))
			}
		}
	}
	f.divide(entries)
	return keys, nil
}

// divide fixes the size of the hashmaps, for this number of rows, and of the slabs.
func (f *filler) divide(entries int64) {
	s := f.store.Space.Load()
	s.Layout = hashmap.LayoutFor(max(1, entries, s.Entries))
	s.Payload = s.Payloads(max(1, entries))
	if rows := max(entries, s.Entries); rows == s.MostEntries() && len(s.Budgets) > 1 {
		f.o.Log.Warn("the smallest budget limits the cached rows: the hashmap, which every device has, leaves room for one slot", "budget", slices.Min(s.Budgets), "rows", rows)
	}
	// No more than all rows could ever take, were they raw and all on one device.
	most := int64(0)
	for _, t := range f.set.Tables {
		_, rows := t.Cacheable()
		most += rows * int64(slab.SlotBytes(t.Tier.RowBytes()))
	}
	for i := range s.Payload {
		s.Payload[i] = min(s.Payload[i], most)
	}
}

// host chooses a row for its table's host tier, if that is Partial and has room.
func (f *filler) host(table int, key uint64) {
	of, room := &f.hosts, &f.room[table]
	if *room <= 0 {
		of, room = &f.rings, &f.ringRoom[table]
	}
	if *room <= 0 {
		return
	}
	n, err := f.slotBytes(key)
	if err != nil {
		return // fillHosts reports it
	}
	*room -= int64(n)
	*of = append(*of, key)
}

// observeRestored returns the keys of the snapshot to start from, after the policy has observed them.
func (f *filler) observeRestored() ([]uint64, error) {
	keys := f.o.Restored
	rows := make([][]int64, len(f.set.Tables))
	for _, key := range keys {
		table, row := hashmap.SplitKey(key)
		if now, _ := f.set.Tables[table].Cacheable(); row < now {
			rows[table] = append(rows[table], row)
		}
	}
	for table, all := range rows {
		for part := range slices.Chunk(all, learn.ObserveRows) {
			if err := f.o.Learner.Call(func(p admission.Policy) { p.Observe(table, part) }); err != nil {
				return nil, err
			}
		}
	}
	return keys, nil
}

// markOversize notes the rows larger than a slab as such, whoever might offer them later, and as offered. Where not even a raw one
// is, it looks at none.
func (f *filler) markOversize(offered []read.Bitset) error {
	s := f.store.Space.Load()
	largest := int64(0)
	for i := range s.Budgets {
		largest = max(largest, s.PayloadFor(i, 1))
	}
	for i, t := range f.set.Tables {
		now, _ := t.Cacheable()
		if int64(slab.SlotBytes(t.Tier.RowBytes())) <= largest {
			continue
		}
		for row := range now {
			if row%ahead == 0 {
				if err := f.o.Context.Err(); err != nil {
					return err
				}
			}
			n, err := f.slotBytes(hashmap.Key(i, row))
			if err != nil {
				return err
			}
			if int64(n) > largest {
				if t.Oversize == nil {
					t.Oversize = read.NewBitset(t.Tier.Capacity())
				}
				t.Oversize.Add(row)
				offered[i].Add(row)
			}
		}
	}
	return nil
}

func allRows(table int, rows int64) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for r := range rows {
			if !yield(hashmap.Key(table, r)) {
				return
			}
		}
	}
}
