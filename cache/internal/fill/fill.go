// Package fill fills a cache before it serves: it divides the devices' budgets, has the admission policy learn from the training batches,
// chooses rows by the policy's ranking, writes them to the slabs and builds the hashmaps.
package fill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"slices"
	"sync"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/cache/internal/change"
	"github.com/tensorcache/tensorcache/cache/internal/learn"
	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/numa"
	"github.com/tensorcache/tensorcache/slab"
)

// Options say what a cache is filled with.
type Options struct {
	// Context, if not nil, ends Fill early, with its error.
	Context context.Context
	Learner *learn.Learner
	Log     *slog.Logger
	// Budgets are the bytes of each device. OneBudget says that they were given as one.
	Budgets   []int64
	OneBudget bool
	Workers   int   // goroutines that write resident tables; 0: one a processor
	Overlay   int64 // bytes of the overlay, at least
	Policy    int64 // most bytes of host memory that the policy may take; 0: any
	Training  admission.Training
	Cold      bool // admit nothing but Restored
	Inclusive bool // Partial host tiers are to have rows that slabs have, too
	Fixed     bool // what is admitted now stays: the hashmap is as large as that needs
	// Restored are keys that are admitted before any others, and that the policy observes once.
	Restored []uint64
}

// Filled is what was admitted.
type Filled struct {
	// Differing are the rows whose places not every map names alike.
	Differing []change.Entry
	// Restored are those of Options.Restored for which there was room by bytes. Slabs or maps may have had no place for some.
	Restored []uint64
}

// filler is one run of Fill.
type filler struct {
	o        Options
	set      *read.Set
	store    *place.Store
	restored int // keys chosen that were restored
	// chosen are rows of Partial host tiers that are to be admitted to slabs, hosts those that are to be in the main regions of the host tiers, and rings those
	// that are to be in their rings, all best first. room and ringRoom are the bytes of each that are not chosen for yet.
	chosen, hosts, rings []uint64
	room, ringRoom       []int64
	unread               []unread // by table

	peers map[*read.Table][]int // by device: which one has the overflow places of its rows of a resident table; none: host memory
	fits  []bool                // whether a Partial host tier has room for all rows of its table
	// lengths are the stored lengths of the rows of each table, while Fill runs; -1 for a row that does not read back. Policies and Fill ask
	// for them in any order: read from the rows themselves, each would be a miss of the processor's caches.
	lengths [][]int32
	// groups are, while Fill runs, the numbers of the groups of equal rows in each table, from 1 on in all tables together, 0 for rows without; nil for tables
	// without. groupRows says how many rows each group has. Fill asks for them as for lengths.
	groups    [][]uint32
	groupRows []uint32
	// locks guard lengths and groups against policies that go on in the background when Fill returns: one for each range of hashes, because policies rank
	// ranges of hashes at the same time.
	locks [lengthLocks]lengthLock
}

const lengthLocks = 64

// observeRows is how many rows of a training batch the policy observes at a time.
const observeRows = 1 << 18

// lengthLock is a lock in a cache line of its own.
type lengthLock struct {
	sync.RWMutex
	_ [128 - unsafe.Sizeof(sync.RWMutex{})]byte
}

// stored returns the stored length of a row, -1 if it does not read back. REQUIRES: Fill runs.
func (f *filler) stored(key uint64) int {
	table, row := hashmap.SplitKey(key)
	return int(f.lengths[table][row])
}

// slotBytes returns the bytes of a row's slot, or why the row does not read back. REQUIRES: Fill runs.
func (f *filler) slotBytes(key uint64) (int, error) {
	if n := f.stored(key); n >= 0 {
		return slab.SlotBytes(n), nil
	}
	table, row := hashmap.SplitKey(key)
	_, _, err := f.set.Tables[table].Tier.Stored(row)
	return 0, err
}

// group returns the number of a row's group, 0 if it has none. REQUIRES: Fill runs.
func (f *filler) group(key uint64) uint32 {
	if table, row := hashmap.SplitKey(key); f.groups[table] != nil {
		return f.groups[table][row]
	}
	return 0
}

// ahead is how many keys' lengths are fetched from memory at a time. In the order of a ranking each is a cache miss.
const ahead = 64

// inParts yields the keys of a ranking in parts, the lengths of which are in the processor's caches. A part is valid until the next one.
func (f *filler) inParts(ranking iter.Seq[uint64]) iter.Seq[[]uint64] {
	return func(yield func([]uint64) bool) {
		var buffer [ahead]uint64
		part := buffer[:0]
		for key := range ranking {
			if part = append(part, key); len(part) == ahead {
				f.fetch(part)
				if !yield(part) {
					return
				}
				part = part[:0]
			}
		}
		f.fetch(part)
		yield(part)
	}
}

// fetch loads the lengths and groups of rows, which may be of no table.
func (f *filler) fetch(keys []uint64) {
	sum := int32(0)
	for _, key := range keys { // these loads have no dependencies
		if table, row := hashmap.SplitKey(key); table < len(f.lengths) && uint64(row) < uint64(len(f.lengths[table])) {
			sum += f.lengths[table][row] + int32(f.group(key))
		}
	}
	touch(sum)
}

// fetchGroups loads what of is known of the groups of rows, whose numbers have been fetched: n elements of each.
func fetchGroups[T uint8 | uint32](f *filler, keys []uint64, of []T, n int) {
	if len(f.groupRows) == 1 { // no groups
		return
	}
	sum := T(0)
	for _, key := range keys {
		if table, row := hashmap.SplitKey(key); table < len(f.groups) && uint64(row) < uint64(len(f.groups[table])) {
			sum += of[int(f.groups[table][row])*n]
		}
	}
	touch(int32(sum))
}

// touch keeps the compiler from removing the loads that it depends on.
//
//go:noinline
func touch(int32) {}

// measure reads the stored lengths and groups of all rows. free gives their memory back.
func (f *filler) measure() (free func()) {
	var all []*numa.Memory
	last := uint32(0) // number of a group
	for _, t := range f.set.Tables {
		rows, most := t.Cacheable()
		lengths, memory := numa.Make[int32](most)
		if most > 0 {
			t.Tier.StoredLengths(f.o.Context, lengths[:rows])
		}
		for i := range lengths[rows:] { // rows that the table may grow by
			lengths[rows+int64(i)] = int32(t.Tier.RowBytes())
		}
		f.lengths, all = append(f.lengths, lengths), append(all, memory)
		var groups []uint32
		if most > 0 && t.Tier.Shares() {
			groups, memory = numa.Make[uint32](most)
			last = t.Tier.Groups(f.o.Context, last, groups[:rows])
			all = append(all, memory)
		}
		f.groups = append(f.groups, groups)
	}
	f.groupRows = make([]uint32, last+1)
	for _, groups := range f.groups {
		for _, group := range groups {
			f.groupRows[group]++
		}
	}
	return func() {
		for i := range f.locks {
			f.locks[i].Lock()
			defer f.locks[i].Unlock()
		}
		f.lengths, f.groups, f.groupRows = nil, nil, nil
		for _, m := range all {
			m.Free()
		}
	}
}

// Fill fills the slabs and hashmaps of store's devices. It sets the fields of store that are not set. What they hold is to be freed
// after an error too.
func Fill(store *place.Store, o Options) (*Filled, error) {
	if o.Context == nil {
		o.Context = context.Background()
	}
	f := &filler{o: o, set: store.Set, store: store, unread: make([]unread, len(store.Set.Tables))}
	for table, t := range f.set.Tables {
		f.unread[table].name = t.Name
	}
	resident, buddies, err := f.chooseResident()
	if err != nil {
		return nil, err
	}
	space, err := place.NewSpace(o.Budgets, o.OneBudget, f.set.Tables, resident, buddies)
	if err != nil {
		return nil, err
	}
	if err := f.placeResident(); err != nil {
		return nil, err
	}
	store.Space.Store(space)
	defer f.measure()()
	if err := o.Context.Err(); err != nil {
		return nil, err
	}
	if err := f.train(); err != nil {
		return nil, err
	}
	f.place()
	rows, partial := int64(0), int64(0)
	for _, t := range f.set.Tables {
		now, _ := t.Cacheable()
		if rows += now; t.Tier.Partial() {
			partial += now
		}
	}
	keys, memory := numa.Make[uint64](rows) // takes pages only as far as it is written
	defer memory.Free()
	for _, of := range []*[]uint64{&f.chosen, &f.hosts, &f.rings} { // memory that the Go heap would keep
		all, memory := numa.Make[uint64](partial)
		defer memory.Free()
		*of = all[:0]
	}
	keys, err = f.choose(keys[:0])
	if err = cmp.Or(err, f.o.Context.Err()); err != nil {
		return nil, err
	}
	if err := f.fillHosts(); err != nil {
		return nil, err
	}
	if err := f.allocate(); err != nil {
		return nil, err
	}
	differing, err := f.admit(keys)
	return &Filled{Differing: differing, Restored: slices.Clone(keys[:f.restored])}, err
}

// place finds out which devices read each other's slabs, and which rows are to be copied.
func (f *filler) place() {
	devices := make([]device.Device, len(f.set.Devices))
	for i, d := range f.set.Devices {
		devices[i] = d.Device
	}
	cliques := place.FindCliques(devices)
	_, entries := f.store.Space.Load().Estimate(f.set.Tables) // the map takes its share of small budgets
	payload := f.store.Space.Load().Payloads(entries)
	f.store.Topology.Store(place.NewTopology(cliques, payload))
	if len(cliques) > 1 {
		for _, members := range cliques {
			f.o.Log.Warn("devices cannot all read each other's memory: each set has a cache of its own", "set", members, "of", len(devices))
		}
	}
	if len(devices) == 1 {
		return
	}
	if !f.o.Cold {
		f.o.Learner.Call(func(policy admission.Policy) { f.store.Hot.Decide(f.store, policy, payload) })
	}
	capacity := f.store.Capacity(payload)
	if f.store.Hot.Bytes.Load() > 0 {
		f.o.Learner.Call(func(p admission.Policy) { p.Resize(capacity) })
	}
}

// allocate takes the budget from every device.
func (f *filler) allocate() (err error) {
	s, shared := f.store.Space.Load(), f.set.Shared
	f.store.Overlay, err = place.OpenOverlay(f.set, f.store.Nodes.Tier, f.o.Overlay)
	if err != nil {
		return err
	}
	for i, d := range f.set.Devices {
		front := f.store.Overlay.In(i)
		s.Payload[i] = min(s.Payload[i], slab.MaxBytes-slab.TailSlack-front)
		if d.Slab, err = device.Alloc(d.Device, shared, front+s.Payload[i]+slab.TailSlack, "slab"); err != nil {
			return err
		}
		if d.Map, err = device.Alloc(d.Device, shared, s.Layout.Bytes(), "hashmap"); err != nil {
			return err
		}
		d.Layout = s.Layout
		slots := slab.NewAllocator(front, s.Payload[i])
		f.store.Slabs = append(f.store.Slabs, &place.Slab{Slots: slots, Limit: slots.Capacity()})
		for i, t := range f.set.Tables {
			rows, codec, err := t.Tier.Attach(d.Device)
			if err != nil {
				return err
			}
			resident, err := residentOn(t, d)
			if err != nil {
				return err
			}
			d.SetTable(i, &read.TableView{Rows: rows, Codec: codec, Resident: resident})
		}
	}
	f.store.ShowSlabs()
	return nil
}

// train starts the policy and lets it observe the training batches.
func (f *filler) train() error {
	p, s := admission.Problem{Costs: f.store.Costs, Memory: f.o.Policy}, f.store.Space.Load()
	p.Capacity, s.Entries = s.Estimate(f.set.Tables)
	p.MapBytes = int(float64(len(f.set.Devices)) * hashmap.EntryBytes)
	if f.o.Fixed && !slices.ContainsFunc(f.set.Tables, func(t *read.Table) bool { return t.Tier.Partial() }) {
		s.Entries = 0
	}
	p.Capacity += place.HostCapacity(f.set.Tables)
	for _, t := range f.set.Tables {
		_, most := t.Cacheable()
		p.Rows = append(p.Rows, most)
	}
	// A row that does not read back is reported when it is admitted; here it counts as raw.
	lockOf := func(key uint64) *lengthLock { return &f.locks[hashmap.Hash(key)/(math.MaxUint64/lengthLocks+1)] }
	stored := func(key uint64) int {
		table, row := hashmap.SplitKey(key)
		t := f.set.Tables[table].Tier
		if t.Codec() == nil {
			return t.RowBytes()
		}
		lock := lockOf(key)
		lock.RLock()
		defer lock.RUnlock()
		if f.lengths != nil {
			if n := f.stored(key); n >= 0 {
				return n
			}
			return t.RowBytes()
		}
		n, err := t.StoredBytes(row)
		if err != nil {
			return t.RowBytes()
		}
		return n
	}
	p.StoredBytes = stored
	prices := s.Prices(f.set.Tables)
	// equal returns how many rows a row's group has, and whether it has one.
	equal := func(key uint64) (rows int64, shared bool) {
		if table, _ := hashmap.SplitKey(key); !f.set.Tables[table].Tier.Shares() {
			return 0, false
		}
		lock := lockOf(key)
		lock.RLock()
		defer lock.RUnlock()
		if f.groups != nil {
			group := f.group(key)
			return int64(f.groupRows[group]), group != 0
		}
		_, rows, shared = f.store.GroupOf(key)
		return rows, shared
	}
	p.SlotBytes = func(key uint64) int {
		n := slab.SlotBytes(stored(key))
		if rows, shared := equal(key); shared { // equal rows, which are one slot's, pay for it together
			table, _ := hashmap.SplitKey(key)
			n = int(prices[table].Of(rows, int64(n)))
		}
		return n
	}
	f.o.Learner.SetSlotBytes(p.SlotBytes)
	if err := f.o.Learner.Start(p); err != nil {
		return err
	}
	batch := 0
	for table, rows := range f.o.Training {
		if table < 0 || table >= len(f.set.Tables) {
			return fmt.Errorf("cache: training batch %d: table (%d) must be 0 to %d", batch, table, len(f.set.Tables)-1)
		}
		if err := read.CheckRows(f.set.Tables[table], rows); err != nil {
			return fmt.Errorf("cache: training batch %d: %w", batch, err)
		}
		if p.Rows[table] == 0 { // slabs hold none of its rows
			continue
		}
		for part := range slices.Chunk(rows, observeRows) {
			if err := f.o.Context.Err(); err != nil {
				return err
			}
			if err := f.o.Learner.Call(func(policy admission.Policy) { policy.Observe(table, part) }); err != nil {
				return err
			}
		}
		f.o.Learner.Observed.Add(int64(len(rows)))
		batch++
	}
	return nil
}

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

// divide fixes the size of the hashmaps for so many rows, and of the slabs.
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

// admitted are rows that have places in slabs. Rows in differing are in the order of entries.
type admitted struct {
	entries   []hashmap.Entry
	differing []change.Entry // those whose places not every map names alike
	// shared are the slots of groups. slots has, for each group and device, 1 + the number of its slot, 0 if there is none.
	shared []place.SharedSlot
	slots  []uint32
}

// slot returns the element of a.slots for a group in a slab.
func (a *admitted) slot(f *filler, group uint32, slab int) *uint32 {
	return &a.slots[int(group)*len(f.set.Devices)+slab]
}

// targets returns the slabs that a row is to lie in, and whether an equal row has a slot.
func (a *admitted) targets(f *filler, key uint64, copied func(has bool) bool) uint8 {
	topology, group := f.store.Topology.Load(), f.group(key)
	if group == 0 {
		return topology.Targets(key, copied(false), place.Nowhere())
	}
	have := uint8(0)
	for i := range f.set.Devices {
		if *a.slot(f, group, i) != 0 {
			have |= 1 << i
		}
	}
	if len(f.set.Devices) == 1 {
		return topology.Targets(key, copied(have != 0), place.Nowhere())
	}
	g, _, _ := f.store.GroupOf(key)
	return topology.GroupTargets(g, copied(have != 0), have)
}

// add gives a row places in some of the given slabs, and returns them: none if no slab has room, because rows are divided over slabs by hash, so one is full
// before the others. unwritten are the bits of the slabs where the row is to be written: no equal row has a slot there.
func (a *admitted) add(f *filler, key uint64, slabs uint8, stored int, compressed bool) (p place.Locations, unwritten uint8) {
	p = place.Nowhere()
	group := f.group(key)
	for i := range place.SlabsOf(slabs) {
		var l slab.Location
		if group != 0 && *a.slot(f, group, i) != 0 {
			slot := &a.shared[*a.slot(f, group, i)-1]
			slot.Words++
			l = slot.Location
		} else {
			offset, ok := f.store.Slabs[i].Slots.Alloc(slab.SlotBytes(stored))
			if !ok {
				continue
			}
			unwritten |= 1 << i
			if l = place.Location(i, offset, stored, compressed); group != 0 {
				g, _, _ := f.store.GroupOf(key)
				a.shared = append(a.shared, place.SharedSlot{Group: g, Location: l, Words: 1})
				*a.slot(f, group, i) = uint32(len(a.shared))
			}
		}
		if p.Valid() {
			p.More = append(p.More, l)
		} else {
			p.First = l
		}
	}
	if !p.Valid() {
		table, row := hashmap.SplitKey(key)
		f.set.Tables[table].Rejected.Add(row)
		return p, 0
	}
	if len(f.set.Devices) > 1 && f.store.Words(p) != nil {
		a.differing = append(a.differing, change.Entry{Key: key, Places: p})
	}
	a.entries = append(a.entries, hashmap.Entry{Key: key, Location: p.First})
	return p, unwritten
}

// admit places rows in slabs, as far as they have room, builds the hashmaps, and lets the devices know which rows were
// declined. It returns the rows whose places not every map names alike.
func (f *filler) admit(keys []uint64) (differing []change.Entry, err error) {
	entries, memory := numa.Make[hashmap.Entry](int64(len(keys) + len(f.chosen)))
	defer memory.Free()
	slots, memory := numa.Make[uint32](int64(len(f.groupRows) * len(f.set.Devices)))
	defer memory.Free()
	a := &admitted{entries: entries[:0], slots: slots}
	writers := make([]*slabWriter, len(f.set.Devices))
	for i, d := range f.set.Devices {
		writers[i], err = newSlabWriter(d, f.set.Tables)
		defer func() { writers[i].close() }() // after an error
		if err != nil {
			return nil, err
		}
	}
	if err := f.admitHeld(keys, a, writers); err != nil {
		return nil, err
	}
	if err := f.admitBelow(a, writers); err != nil {
		return nil, err
	}
	if err := f.reportUnread(); err != nil {
		return nil, err
	}
	for _, w := range writers {
		if err := w.synchronize(); err != nil {
			return nil, err
		}
	}
	entries, differing = a.entries, a.differing
	if err := f.buildMaps(entries, differing); err != nil {
		return nil, err
	}
	for _, d := range f.set.Devices {
		for i, t := range f.set.Tables {
			var err error
			if d.Table(i).Rejected, err = f.upload(d.Device, t.Rejected, "rejected rows"); err != nil {
				return nil, err
			}
			if d.Table(i).Oversize, err = f.upload(d.Device, t.Oversize, "oversize rows"); err != nil {
				return nil, err
			}
		}
	}
	return differing, nil
}

// admitHeld places rows that host tiers hold, and writes them to the slabs.
func (f *filler) admitHeld(keys []uint64, a *admitted, writers []*slabWriter) error {
	bytes, hot := int64(0), f.store.Hot.Bytes.Load()
	slots := make([][]hashmap.Entry, len(writers)) // by device, each once, where there are several devices or words
	apart := len(slots) > 1 || slices.ContainsFunc(f.set.Tables, func(t *read.Table) bool { return t.Tier.Shares() })
	if apart {
		for i := range slots {
			all, memory := numa.Make[hashmap.Entry](int64(len(keys))) // pages that are not used take no memory
			defer memory.Free()
			slots[i] = all[:0]
		}
	}
	for k, key := range keys {
		if k%ahead == 0 {
			if err := f.o.Context.Err(); err != nil {
				return err
			}
			part := keys[k:min(k+ahead, len(keys))]
			f.fetch(part)
			fetchGroups(f, part, a.slots, len(f.set.Devices))
		}
		table, _ := hashmap.SplitKey(key)
		t := f.set.Tables[table]
		n, err := f.slotBytes(key)
		if err != nil {
			return fmt.Errorf("cache: table %s: %w", t.Name, err)
		}
		slabs := a.targets(f, key, func(has bool) bool {
			if !has { // the slot is this row's
				bytes += int64(n)
			}
			return bytes <= hot
		})
		stored := f.stored(key)
		p, unwritten := a.add(f, key, slabs, stored, stored < t.Tier.RowBytes())
		if apart {
			for l := range p.All() {
				if unwritten>>l.Slab()&1 != 0 {
					slots[l.Slab()] = append(slots[l.Slab()], hashmap.Entry{Key: key, Location: l})
				}
			}
		}
	}
	if !apart {
		slots[0] = a.entries
	}
	f.store.Shared.Load(host.Workers(0), a.shared)
	for i, w := range writers {
		entries := slots[i]
		// Every row was read before, when its length was.
		if err := w.write(f.o.Context, entries, func(k int) []byte {
			table, row := hashmap.SplitKey(entries[k].Key)
			stored, _, _ := f.set.Tables[table].Tier.Stored(row)
			return stored
		}); err != nil {
			return err
		}
	}
	return nil
}

// upload puts a set of rows in the device's memory. An empty one takes none.
func (f *filler) upload(d device.Device, set read.Bitset, what string) (device.Buffer, error) {
	if len(set) == 0 {
		return device.Buffer{}, nil
	}
	return device.AllocCopy(d, f.set.Shared, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(set))), len(set)*8), what)
}
