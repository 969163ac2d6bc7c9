package fill

import (
	"errors"
	"iter"
	"slices"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/cache/internal/learn"
	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/numa"
	"github.com/tensorcache/tensorcache/slab"
)

const (
	// partKeys is how many keys of a ranking are taken at a time.
	partKeys = 1 << 16
	// chooseGrain is how many of them a goroutine takes at a time.
	chooseGrain = 1 << 10
)

// chooser is what choose has chosen so far, best first.
type chooser struct {
	*filler
	topology *place.Topology
	space    *place.Space
	whole    bool          // parts may be taken on all processors: there is one device, and host tiers hold all rows
	part     []uint64      // memory for a part of a ranking
	keys     []uint64      // rows chosen of tables whose host tiers hold all rows
	rows     []int64       // by table, how many slabs may hold
	offered  []read.Bitset // by table
	full     bool
	// entries counts the rows chosen, of which there can be most. used is what their slots take in each clique's slabs. placed are,
	// by clique, the groups of equal rows that it counts a slot for.
	entries, most int64
	used          []int64
	placed        []read.Bitset
	// bytes is what the slots take, were no row copied. As long as it is at most hot, rows are.
	bytes, hot int64
}

// choose walks the policy's ranking, then the rows it did not offer, until the budget is spent, and fixes the map's
// size. It appends the chosen rows to keys. Free space costs nothing to fill, and a row nobody asked for yet may still be asked for. What is offered beyond
// that is noted as rejected.
func (f *filler) choose(keys []uint64) (_ []uint64, err error) {
	part, memory := numa.Make[uint64](partKeys)
	defer memory.Free()
	c := &chooser{
		filler: f, topology: f.store.Topology.Load(), space: f.store.Space.Load(), part: part, keys: keys,
		offered: make([]read.Bitset, len(f.set.Tables)), hot: f.store.Hot.Bytes.Load(),
	}
	for i, t := range f.set.Tables {
		now, most := t.Cacheable()
		c.rows = append(c.rows, now)
		c.offered[i], t.Rejected = read.NewBitset(most), read.NewBitset(most)
	}
	c.used, c.placed = make([]int64, len(c.topology.Cliques)), make([]read.Bitset, len(c.topology.Cliques))
	for q := range c.placed {
		c.placed[q] = read.NewBitset(int64(len(f.groupRows)))
	}
	f.room, f.ringRoom, f.fits = make([]int64, len(f.set.Tables)), make([]int64, len(f.set.Tables)), make([]bool, len(f.set.Tables))
	c.whole = !f.o.oneByOne && len(f.set.Devices) == 1
	for i, t := range f.set.Tables {
		if t.Tier.Partial() {
			c.whole = false
			f.room[i], _ = t.Tier.MainBytes()
			f.ringRoom[i] = t.Tier.FillAheadBytes()
			f.fits[i] = f.room[i] >= t.Tier.Totals().SlotBytes
		}
	}
	if err := f.markOversize(c.offered); err != nil {
		return nil, err
	}
	for _, t := range f.set.Tables { // seldom any
		if len(t.Oversize) != 0 {
			c.space.Fixed += read.BitsetBytes(t.Tier.Capacity())
			if c.space.Entries > 0 { // the map is the smaller for it
				_, c.space.Entries = c.space.Estimate(f.set.Tables)
			}
		}
	}
	c.most = c.space.MostEntries()
	restored, err := f.observeRestored()
	if err != nil {
		return nil, err
	}
	if err := c.take(slices.Values(restored), false); err != nil {
		return nil, err
	}
	f.restored = len(c.keys)
	if !f.o.Cold {
		panicked := f.o.Learner.Call(func(policy admission.Policy) { err = c.take(policy.Rank(), true) })
		if err := errors.Join(panicked, err); err != nil {
			return nil, err
		}
	}
	for i := range f.set.Tables {
		if c.full || f.o.Cold {
			break
		}
		if err := c.takeTable(i); err != nil {
			return nil, err
		}
	}
	for i, now := range c.rows {
		for row := range now {
			if f.room[i] <= 0 && f.ringRoom[i] <= 0 {
				break
			}
			if !c.offered[i].Has(row) {
				f.host(i, hashmap.Key(i, row))
			}
		}
	}
	f.divide(c.entries)
	return c.keys, nil
}

// take takes the keys of a ranking. offer says that they are offered by the policy: those that do not fit are noted as rejected. Other rankings end where
// the first key does not fit.
func (c *chooser) take(ranking iter.Seq[uint64], offer bool) error {
	part := c.part[:0]
	for key := range ranking {
		if part = append(part, key); len(part)%ahead == 0 {
			if err := c.o.Context.Err(); err != nil {
				return err
			}
		}
		if len(part) == cap(part) {
			if on, err := c.takePart(part, offer); !on {
				return err
			}
			part = part[:0]
		}
	}
	_, err := c.takePart(part, offer)
	return err
}

// takeTable takes the rows of a table, up to the first that does not fit.
func (c *chooser) takeTable(table int) error {
	rows, n := c.rows[table], int64(len(c.part))
	for first := int64(0); first < rows; first += n {
		if err := c.o.Context.Err(); err != nil {
			return err
		}
		part := c.part[:min(n, rows-first)]
		for i := range part {
			part[i] = hashmap.Key(table, first+int64(i))
		}
		if on, err := c.takePart(part, false); !on {
			return err
		}
	}
	return nil
}

// takePart takes some keys of a ranking, and says whether it goes on.
func (c *chooser) takePart(part []uint64, offer bool) (bool, error) {
	if c.whole && !c.full && c.takeAll(part) {
		return true, nil
	}
	if c.whole && c.full && offer {
		c.rejectAll(part)
		return true, nil
	}
	for some := range slices.Chunk(part, ahead) {
		if err := c.o.Context.Err(); err != nil {
			return false, err
		}
		c.fetch(some)
		for _, key := range some {
			if on, err := c.takeOne(key, offer); !on {
				return false, err
			}
		}
	}
	return true, nil
}

// takeOne takes a key of a ranking, and says whether it goes on.
func (c *chooser) takeOne(key uint64, offer bool) (bool, error) {
	if !c.isRow(key) {
		return true, nil
	}
	table, row := hashmap.SplitKey(key)
	if c.offered[table].Has(row) {
		return true, nil
	}
	t := c.set.Tables[table]
	c.offered[table].Add(row)
	if c.full = c.full || c.entries == c.most; !c.full {
		n, err := c.slotBytes(key)
		if err != nil {
			return false, err
		}
		c.full = true
		group := int64(c.group(key))
		counted := group != 0 && slices.ContainsFunc(c.placed, func(placed read.Bitset) bool { return placed.Has(group) })
		for q, members := range c.topology.Cliques {
			room, takes := int64(0), int64(n)
			for _, i := range members {
				room += max(0, c.space.PayloadFor(i, c.entries+1))
			}
			if c.bytes+int64(n) <= c.hot {
				takes *= int64(len(members))
			}
			if group != 0 && c.placed[q].Has(group) {
				takes = 0
			}
			if c.used[q]+takes <= room {
				c.used[q] += takes
				c.full = false
				if group != 0 {
					c.placed[q].Add(group)
				}
			}
		}
		if !c.full {
			if !counted {
				c.bytes += int64(n)
			}
			c.entries++
			if !t.Tier.Partial() {
				c.keys = append(c.keys, key)
				return true, nil
			}
			c.chosen = append(c.chosen, key)
			if c.o.Inclusive || c.fits[table] {
				c.host(table, key)
			}
			return true, nil
		}
	}
	c.host(table, key)
	if offer {
		t.Rejected.Add(row)
	}
	return offer, nil
}

// isRow says whether a key is that of a row that slabs may hold.
func (c *chooser) isRow(key uint64) bool {
	table, row := hashmap.SplitKey(key)
	return table < len(c.rows) && row < c.rows[table]
}

// rejectAll notes all keys that are new as rejected.
func (c *chooser) rejectAll(part []uint64) {
	host.Workers(0).For(len(part), chooseGrain, func(from, to int) {
		for _, key := range part[from:to] {
			if table, row := hashmap.SplitKey(key); c.isRow(key) && c.offered[table].AddOnce(row) {
				c.set.Tables[table].Rejected.AddOnce(row)
			}
		}
	})
}

// takeAll takes all keys that are new. It returns false, and has changed nothing, if they may not all fit, if a key is there twice, or if a row does not read
// back. No row is copied on one device, and all rows of a group have one length, so what rows take does not depend on their order.
func (c *chooser) takeAll(part []uint64) bool {
	workers := host.Workers(0)
	var bytes atomic.Int64 // that the part takes at most: rows of a group that is not placed are counted each
	var unread, twice atomic.Bool
	counts := make([]int, (len(part)+chooseGrain-1)/chooseGrain+1) // of new keys: all before each range of chooseGrain
	workers.For(len(part), chooseGrain, func(from, to int) {
		n, sum := 0, int64(0)
		for some := range slices.Chunk(part[from:to], ahead) {
			c.fetch(some)
			for _, key := range some {
				table, row := hashmap.SplitKey(key)
				if !c.isRow(key) || c.offered[table].Has(row) {
					continue
				}
				length := c.lengths[table][row]
				if length < 0 {
					unread.Store(true)
				}
				if group := c.group(key); group == 0 || !c.placed[0].Has(int64(group)) {
					sum += int64(slab.SlotBytes(int(length)))
				}
				n++
			}
		}
		bytes.Add(sum)
		counts[from/chooseGrain+1] = n
	})
	for i := range counts[1:] {
		counts[i+1] += counts[i]
	}
	n, first := counts[len(counts)-1], len(c.keys)
	entries := c.entries + int64(n)
	if unread.Load() || entries > c.most || first+n > cap(c.keys) || c.used[0]+bytes.Load() > max(0, c.space.PayloadFor(0, entries)) {
		return false
	}
	chosen := c.keys[first : first+n]
	ends := make([]int, len(counts)-1) // of the keys that each range has written to chosen
	workers.For(len(part), chooseGrain, func(from, to int) {
		at := counts[from/chooseGrain]
		for _, key := range part[from:to] {
			if table, row := hashmap.SplitKey(key); c.isRow(key) && c.offered[table].AddOnce(row) {
				chosen[at] = key
				at++
			}
		}
		if ends[from/chooseGrain] = at; at != counts[from/chooseGrain+1] {
			twice.Store(true)
		}
	})
	if twice.Load() { // which of the keys came first is not known
		for i, end := range ends {
			for _, key := range chosen[counts[i]:end] {
				table, row := hashmap.SplitKey(key)
				c.offered[table].Remove(row)
			}
		}
		return false
	}
	if len(c.groupRows) > 1 { // count each group once
		bytes.Store(0)
		workers.For(n, chooseGrain, func(from, to int) {
			sum := int64(0)
			for _, key := range chosen[from:to] {
				if group := int64(c.group(key)); group == 0 || !c.placed[0].HasShared(group) && c.placed[0].AddOnce(group) {
					sum += int64(slab.SlotBytes(c.stored(key)))
				}
			}
			bytes.Add(sum)
		})
	}
	c.keys, c.entries = c.keys[:first+n], entries
	c.used[0] += bytes.Load()
	return true
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
