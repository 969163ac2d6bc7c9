package cache

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
)

// fill trains the policy, divides the budget, and admits rows in the policy's order.
func (c *Cache) fill() error {
	space, err := c.divideBudget()
	if err != nil {
		return err
	}
	c.space = space
	if err := c.train(space); err != nil {
		return err
	}
	c.place()
	keys, err := c.choose(space)
	if err != nil {
		return err
	}
	if err := c.allocate(space); err != nil {
		return err
	}
	several, err := c.admit(keys)
	if err != nil {
		return err
	}
	if err := c.openRings(); err != nil {
		return err
	}
	if err := c.startChanges(several); err != nil {
		return err
	}
	restored := keys[:c.snapshots.restored]
	c.snapshots.restored = 0
	for _, key := range restored { // slab or map may have had no place for some
		if c.changes.mu.index.Find(key).Valid() {
			c.snapshots.restored++
		}
	}
	for _, d := range c.devices {
		if err := d.shareMisses(c.opts.HostThreads); err != nil {
			return err
		}
		d.startServing()
	}
	c.startRefresh()
	return nil
}

// space is how the devices' budgets are divided. All maps are equally large.
type space struct {
	budgets []int64
	fixed   int64 // tail slack and row bits: compressed, rejected, and, once known, oversize
	layout  hashmap.Layout
	payload []int64 // for slots
	// smallest is about the shortest slot there is; entries is what the hashmap has room for at least.
	smallest, entries int64
}

// payloadFor returns what a budget leaves for slots beside a hashmap of the given entries.
func (s *space) payloadFor(budget, entries int64) int64 {
	entries = max(entries, s.entries)
	return (budget - s.fixed - hashmap.LayoutFor(entries).Bytes()) &^ (slab.Align - 1)
}

// payloads returns that for each device, at least 0.
func (s *space) payloads(entries int64) []int64 {
	all := make([]int64, len(s.budgets))
	for i, b := range s.budgets {
		all[i] = max(0, s.payloadFor(b, entries))
	}
	return all
}

// divideBudget checks that the budget holds something.
func (c *Cache) divideBudget() (*space, error) {
	s := &space{budgets: c.opts.budgets(), fixed: slab.TailSlack}
	smallest := int64(0)
	for _, t := range c.tables {
		s.fixed += t.tier.BitmaskBytes() + bitsetBytes(t.tier.Capacity())
		n, err := t.smallestSlot()
		if err != nil {
			return nil, err
		}
		if smallest == 0 || n < smallest {
			smallest = n
		}
	}
	for i, b := range s.budgets {
		if s.payloadFor(b, 1) < smallest {
			least, of := smallest+s.fixed+hashmap.LayoutFor(1).Bytes(), ""
			if len(c.opts.Budgets) > 0 {
				of = fmt.Sprintf(" of device %d", i)
			}
			return nil, fmt.Errorf("%w: Budget%s (%d B) must hold at least one slot (%d B) and its metadata: %d B in all", ErrBudget, of, b, smallest, least)
		}
	}
	s.smallest = smallest
	return s, nil
}

// smallestSlot returns the least bytes that one of the table's first rows takes in a slab.
func (t *table) smallestSlot() (int64, error) {
	smallest := int64(slab.SlotBytes(t.tier.RowBytes()))
	for r := range min(t.tier.Rows(), 1024) {
		n, err := t.tier.SlotBytes(r)
		if err != nil {
			return 0, err
		}
		smallest = min(smallest, int64(n))
	}
	return smallest, nil
}

// train starts the policy and lets it observe the training batches.
func (c *Cache) train(s *space) error {
	p := admission.Problem{}
	p.Capacity, s.entries = c.estimate(s)
	if r := &c.opts.Refresh; !c.opts.Cold && r.Interval == 0 && r.Accesses == 0 {
		s.entries = 0 // what is admitted now stays: the hashmap is as large as it needs
	}
	for _, t := range c.tables {
		p.Rows = append(p.Rows, t.tier.Capacity())
	}
	// A row that does not read back is reported when it is admitted; here it counts as raw.
	stored := func(key uint64) int {
		table, row := hashmap.SplitKey(key)
		t := c.tables[table].tier
		n, err := t.StoredBytes(row)
		if err != nil {
			return t.RowBytes()
		}
		return n
	}
	p.StoredBytes = stored
	p.SlotBytes = func(key uint64) int { return slab.SlotBytes(stored(key)) }
	c.learner.slotBytes = p.SlotBytes
	var err error
	if panicked := c.learner.call(func(policy admission.Policy) { err = policy.Start(p) }); panicked != nil || err != nil {
		return errors.Join(panicked, err)
	}
	batch := 0
	for table, rows := range c.opts.Training {
		if table < 0 || table >= len(c.tables) {
			return fmt.Errorf("cache: training batch %d: table (%d) must be 0 to %d", batch, table, len(c.tables)-1)
		}
		if err := checkRows(rows, c.tables[table]); err != nil {
			return fmt.Errorf("cache: training batch %d: %w", batch, err)
		}
		if err := c.learner.call(func(policy admission.Policy) { policy.Observe(table, rows) }); err != nil {
			return err
		}
		c.learner.observed.Add(int64(len(rows)))
		batch++
	}
	c.opts.Training = nil
	return nil
}

// estimate returns the slot bytes that all slabs together will hold if admitted rows are as large as the mean, and how many
// rows that are.
func (c *Cache) estimate(s *space) (bytes, rowsCached int64) {
	var slots, rows int64
	for _, t := range c.tables {
		slots += t.tier.Totals().SlotBytes
		rows += t.tier.Rows()
	}
	var budget, devices float64
	for _, b := range s.budgets {
		budget += float64(b - s.fixed)
		devices++
	}
	mean := max(slab.Align, slots/rows)
	// Entries e satisfy the sum over devices of budget - fixed - map(e) = e × mean, map(e) being e × SlotBytes / Load. Where rows
	// are copied fewer fit: the map is not smaller for that, since copies may go.
	entries := budget / (float64(mean) + devices*hashmap.SlotBytes/hashmap.Load)
	rowsCached = max(1, int64(min(entries, float64(rows))))
	for _, payload := range s.payloads(rowsCached) {
		bytes += min(payload, slots)
	}
	return min(slots, bytes), rowsCached
}

// choose walks the policy's ranking, then the rows it did not offer, until the budget is spent, and fixes the map's
// size. Free space costs nothing to fill, and a row nobody asked for yet may still be asked for. What is offered beyond
// that is noted as rejected.
func (c *Cache) choose(s *space) (keys []uint64, err error) {
	sp := c.spread.Load()
	offered := make([]bitset, len(c.tables))
	for i, t := range c.tables {
		offered[i] = newBitset(t.tier.Capacity())
		t.rejected = newBitset(t.tier.Capacity())
	}
	// What the rows take in each clique's slabs, and of that by rows that are copied.
	used, full := make([]int64, len(sp.cliques)), false
	bytes, hot := int64(0), c.placing.hot.Load()
	if err := c.markOversize(s, offered); err != nil {
		return nil, err
	}
	take := func(ranking iter.Seq[uint64], offer bool) error {
		for key := range ranking {
			table, row := hashmap.SplitKey(key)
			if table >= len(c.tables) || row >= c.tables[table].tier.Rows() || offered[table].has(row) {
				continue
			}
			t := c.tables[table]
			offered[table].add(row)
			if !full {
				n, err := t.tier.SlotBytes(row)
				if err != nil {
					return err
				}
				full = true
				for q, members := range sp.cliques {
					room, takes := int64(0), int64(n)
					for _, i := range members {
						room += max(0, s.payloadFor(s.budgets[i], int64(len(keys))+1))
					}
					if bytes+int64(n) <= hot {
						takes *= int64(len(members))
					}
					if used[q]+takes <= room {
						used[q] += takes
						full = false
					}
				}
				if !full {
					bytes += int64(n)
					keys = append(keys, key)
					continue
				}
			}
			if !offer {
				return nil
			}
			t.rejected.add(row)
		}
		return nil
	}
	restored, err := c.observeRestored()
	if err != nil {
		return nil, err
	}
	if err := take(slices.Values(restored), false); err != nil {
		return nil, err
	}
	c.snapshots.restored = int64(len(keys))
	if !c.opts.Cold {
		panicked := c.learner.call(func(policy admission.Policy) { err = take(policy.Rank(), true) })
		if err := errors.Join(panicked, err); err != nil {
			return nil, err
		}
	}
	for i, t := range c.tables {
		if full || c.opts.Cold {
			break
		}
		if err := take(allRows(i, t.tier.Rows()), false); err != nil {
			return nil, err
		}
	}
	s.layout = hashmap.LayoutFor(max(1, int64(len(keys)), s.entries))
	s.payload = s.payloads(max(1, int64(len(keys))))
	// No more than all rows could ever take, were they raw and all on one device.
	most := int64(0)
	for _, t := range c.tables {
		most += t.tier.Capacity() * int64(slab.SlotBytes(t.tier.RowBytes()))
	}
	for i := range s.payload {
		s.payload[i] = min(s.payload[i], most, slab.MaxBytes-slab.TailSlack)
	}
	for _, t := range c.tables { // seldom any
		if len(t.oversize) != 0 {
			bits := bitsetBytes(t.tier.Capacity())
			for i := range s.payload {
				s.payload[i] = max(0, s.payload[i]-bits)
			}
			s.fixed += bits // for later budgets
		}
	}
	return keys, nil
}

// observeRestored returns the keys of the snapshot to start from, after the policy has observed them.
func (c *Cache) observeRestored() ([]uint64, error) {
	keys := c.restore()
	rows := make([][]int64, len(c.tables))
	for _, key := range keys {
		if table, row := hashmap.SplitKey(key); row < c.tables[table].tier.Rows() {
			rows[table] = append(rows[table], row)
		}
	}
	for table, all := range rows {
		for part := range slices.Chunk(all, learnBatch) {
			if err := c.learner.call(func(p admission.Policy) { p.Observe(table, part) }); err != nil {
				return nil, err
			}
		}
	}
	return keys, nil
}

// markOversize notes the rows larger than a slab as such, whoever might offer them later, and as offered. Where not even a raw one
// is, it looks at none.
func (c *Cache) markOversize(s *space, offered []bitset) error {
	largest := s.payloadFor(slices.Max(s.budgets), 1)
	for i, t := range c.tables {
		if int64(slab.SlotBytes(t.tier.RowBytes())) <= largest {
			continue
		}
		for row := range t.tier.Rows() {
			n, err := t.tier.SlotBytes(row)
			if err != nil {
				return err
			}
			if int64(n) > largest {
				if t.oversize == nil {
					t.oversize = newBitset(t.tier.Capacity())
				}
				t.oversize.add(row)
				offered[i].add(row)
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

// allocate takes the budget from every device.
func (c *Cache) allocate(s *space) (err error) {
	if err := c.openOverlay(s.payload[0]); err != nil {
		return err
	}
	for i, d := range c.devices {
		if d.slab, err = d.device.Alloc(c.overlay.extend(i, s.payload[i]+slab.TailSlack), "slab"); err != nil {
			return err
		}
		if d.hashes, err = d.device.Alloc(s.layout.Bytes(), "hashmap"); err != nil {
			return err
		}
		d.layout = s.layout
		d.slots = slab.NewAllocator(s.payload[i])
		d.limit = d.slots.Capacity()
		d.tables = make([]atomic.Pointer[tableOnDevice], len(c.tables))
		for i, t := range c.tables {
			rows, codec, err := t.tier.Attach(d.device)
			if err != nil {
				return err
			}
			d.tables[i].Store(&tableOnDevice{tier: rows, codec: codec})
		}
	}
	return nil
}

// entry is a row and its places.
type entry struct {
	key    uint64
	places places
}

// admit places rows in slabs, as far as they have room, builds the hashmaps, and lets the devices know which rows were
// declined. It returns the rows whose places not every map names alike.
func (c *Cache) admit(keys []uint64) (several []entry, err error) {
	writers := make([]*slabWriter, len(c.devices))
	for i, d := range c.devices {
		w, err := newSlabWriter(d)
		if err != nil {
			return nil, err
		}
		defer w.close()
		writers[i] = w
	}
	entries := make([]hashmap.Entry, 0, len(keys))
	sp, bytes, hot := c.spread.Load(), int64(0), c.placing.hot.Load()
	for _, key := range keys {
		table, row := hashmap.SplitKey(key)
		t := c.tables[table]
		stored, compressed, err := t.tier.Stored(row)
		if err != nil {
			return nil, fmt.Errorf("cache: table %s: %w", t.name, err)
		}
		n := slab.SlotBytes(len(stored))
		bytes += int64(n)
		var all []slab.Location
		for i := range slabsOf(sp.targets(key, bytes <= hot, nowhere())) {
			offset, ok := c.devices[i].slots.Alloc(n)
			if !ok { // rows are spread by hash, so one slab is full before the others
				continue
			}
			if err := writers[i].write(offset, stored); err != nil {
				return nil, err
			}
			all = append(all, locationOf(i, offset, len(stored), compressed))
		}
		if len(all) == 0 {
			t.rejected.add(row)
			continue
		}
		p := placesOf(all)
		if len(c.devices) > 1 && c.views(p) != nil {
			several = append(several, entry{key, p})
		}
		entries = append(entries, hashmap.Entry{Key: key, Location: p.first})
	}
	for _, w := range writers {
		if err := w.flush(); err != nil {
			return nil, err
		}
	}
	if err := c.buildMaps(entries, several); err != nil {
		return nil, err
	}
	for _, d := range c.devices {
		for i, t := range c.tables {
			var err error
			if d.table(i).rejected, err = d.upload(t.rejected, "rejected rows"); err != nil {
				return nil, err
			}
			if d.table(i).oversize, err = d.upload(t.oversize, "oversize rows"); err != nil {
				return nil, err
			}
		}
	}
	return several, nil
}

// locationOf returns the location word of a row in a slot.
func locationOf(id int, offset int64, stored int, compressed bool) slab.Location {
	if compressed {
		return slab.Compressed(id, offset, stored)
	}
	return slab.Raw(id, offset)
}

// upload puts a set of rows in the device's memory; an empty one takes none.
func (d *deviceState) upload(set bitset, what string) (device.Buffer, error) {
	if len(set) == 0 {
		return device.Buffer{}, nil
	}
	b, err := d.device.Alloc(int64(len(set))*8, what)
	if err != nil {
		return device.Buffer{}, err
	}
	return b, device.Upload(d.device, b, AsBytes(set))
}
