package fill

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache/internal/change"
	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/numa"
	"github.com/tensorcache/tensorcache/slab"
)

// admitted are rows that have slots in slabs. Rows in differing are in the order of entries.
type admitted struct {
	entries   []hashmap.Entry
	differing []change.Entry // those for which the devices' maps have different locations
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

// add gives a row slots in some of the given slabs, and returns their locations: none if no slab has room, because rows are divided over slabs by hash, so one is full
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
		a.differing = append(a.differing, change.Entry{Key: key, Locations: p})
	}
	a.entries = append(a.entries, hashmap.Entry{Key: key, Location: p.First})
	return p, unwritten
}

// admit places rows in slabs, as far as they have room, builds the hashmaps, and lets the devices know which rows were
// declined. It returns the rows for which the devices' maps have different locations.
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
	slots := make([][]hashmap.Entry, len(writers)) // by device, each once, where there are several devices or words
	apart := len(slots) > 1 || slices.ContainsFunc(f.set.Tables, func(t *read.Table) bool { return t.Tier.Shares() })
	if apart {
		for i := range slots {
			all, memory := numa.Make[hashmap.Entry](int64(len(keys))) // pages that are not used take no memory
			defer memory.Free()
			slots[i] = all[:0]
		}
	}
	if !f.addAll(keys, a, slots, apart) {
		if err := f.addEach(keys, a, slots, apart); err != nil {
			return err
		}
	}
	if err := f.o.Context.Err(); err != nil {
		return err
	}
	if !apart {
		slots[0] = a.entries
	}
	f.store.SharedSlots.Load(host.Workers(0), a.shared)
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

// addEach adds keys one by one. If apart is set, it appends each slot to those of its device.
func (f *filler) addEach(keys []uint64, a *admitted, slots [][]hashmap.Entry, apart bool) error {
	bytes, hot := int64(0), f.store.Hot.Bytes.Load()
	for k, key := range keys {
		if k%ahead == 0 {
			if err := f.o.Context.Err(); err != nil {
				return err
			}
			part := keys[k:min(k+ahead, len(keys))]
			f.fetch(part)
			a.fetchSlots(f, part)
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
	return nil
}

// admitGrain is how many keys a goroutine of addAll takes at a time.
const admitGrain = 1 << 12

// addAll does what addEach does, on all processors, for one device whose slab has room for all rows. Otherwise, and if a row does not read back or the context
// has ended, it returns false, and has changed nothing. The slots follow each other in the order of the keys that take them: keys without equal rows, and the
// first one of each group.
func (f *filler) addAll(keys []uint64, a *admitted, slots [][]hashmap.Entry, apart bool) (done bool) {
	if f.o.oneByOne || len(slots) > 1 || len(keys) == 0 || int64(len(keys)) >= math.MaxUint32 {
		return false
	}
	defer func() {
		if !done {
			clear(a.slots)
		}
	}()
	each := func(body func(from, to int)) {
		host.Workers(0).For(len(keys), admitGrain, func(from, to int) {
			if f.o.Context.Err() == nil {
				body(from, to)
			}
		})
	}
	// Until slots have numbers, an element of a.slots is 1 + the index of the first key of its group. words counts the keys of each group.
	grouped := len(f.groupRows) > 1
	words, memory := numa.Make[uint32](int64(len(f.groupRows)))
	defer memory.Free()
	if grouped {
		each(func(from, to int) {
			var count tally
			for k := from; k < to; k++ {
				if group := f.group(keys[k]); group != 0 {
					lower(&a.slots[group], uint32(k+1))
					count.add(words, group)
				}
			}
			count.flush(words)
		})
	}
	// takes says whether key k takes a slot: its row has no equal ones, or it is the first of its group.
	takes := func(k int, group uint32) bool { return group == 0 || atomic.LoadUint32(&a.slots[group]) == uint32(k+1) }
	type sums struct {
		slots, shared int // how many, and how many of groups
		bytes         int64
	}
	before := make([]sums, (len(keys)+admitGrain-1)/admitGrain+1) // of the slots before each range of admitGrain keys
	var unread atomic.Bool
	each(func(from, to int) {
		s := sums{}
		for k, key := range keys[from:to] {
			if group := f.group(key); takes(from+k, group) {
				stored := f.stored(key)
				if stored < 0 {
					unread.Store(true)
				}
				s.slots++
				s.shared += int(min(group, 1))
				s.bytes += int64(slab.SlotBytes(stored))
			}
		}
		before[from/admitGrain+1] = s
	})
	for i := range before[1:] {
		last := before[i]
		s := &before[i+1]
		*s = sums{last.slots + s.slots, last.shared + s.shared, last.bytes + s.bytes}
	}
	all := before[len(before)-1]
	if unread.Load() || f.o.Context.Err() != nil {
		return false
	}
	start, ok := f.store.Slabs[0].Slots.AllocRun(all.bytes, func(yield func(int) bool) {
		for k, key := range keys {
			if takes(k, f.group(key)) && !yield(slab.SlotBytes(f.stored(key))) {
				return
			}
		}
	})
	if !ok {
		return false
	}
	a.entries, a.shared = a.entries[:len(keys)], make([]place.SharedSlot, all.shared)
	if apart {
		slots[0] = slots[0][:all.slots]
	}
	each(func(from, to int) {
		at := before[from/admitGrain]
		for k, key := range keys[from:to] {
			group := f.group(key)
			if !takes(from+k, group) {
				continue
			}
			table, _ := hashmap.SplitKey(key)
			stored := f.stored(key)
			l := place.Location(0, start+at.bytes, stored, stored < f.set.Tables[table].Tier.RowBytes())
			a.entries[from+k] = hashmap.Entry{Key: key, Location: l}
			if apart {
				slots[0][at.slots] = a.entries[from+k]
			}
			if group != 0 {
				p := f.set.Tables[table].Tier.GroupPlace(group - f.firstGroup[table])
				a.shared[at.shared] = place.SharedSlot{Group: place.GroupAt(table, p), Location: l, Words: int64(words[group])}
				at.shared++
				// The number is at most 1 + the index of this key, so takes stays false for the later keys of the group.
				atomic.StoreUint32(&a.slots[group], uint32(at.shared))
			}
			at.slots++
			at.bytes += int64(slab.SlotBytes(stored))
		}
	})
	if grouped {
		each(func(from, to int) {
			for k, key := range keys[from:to] {
				if group := f.group(key); group != 0 {
					a.entries[from+k] = hashmap.Entry{Key: key, Location: a.shared[a.slots[group]-1].Location}
				}
			}
		})
	}
	return true
}

// lower sets n to least if n is 0 or greater. Several goroutines may call it at once.
func lower(n *uint32, least uint32) {
	for {
		now := atomic.LoadUint32(n)
		if now != 0 && now <= least || atomic.CompareAndSwapUint32(n, now, least) {
			return
		}
	}
}

// tally counts a goroutine's keys by group, up to 64 groups at a time, before it adds them to counters that other goroutines add to as well: adding each key
// at once would make all processors wait for the same cache line where most rows belong to one group.
type tally [64]struct{ group, n uint32 }

func (t *tally) add(counters []uint32, group uint32) {
	last := &t[group%uint32(len(t))]
	if last.group != group {
		if last.n > 0 {
			atomic.AddUint32(&counters[last.group], last.n)
		}
		last.group, last.n = group, 0
	}
	last.n++
}

func (t *tally) flush(counters []uint32) {
	for _, last := range t {
		if last.n > 0 {
			atomic.AddUint32(&counters[last.group], last.n)
		}
	}
}

// upload puts a set of rows in the device's memory. An empty one takes none.
func (f *filler) upload(d device.Device, set read.Bitset, what string) (device.Buffer, error) {
	if len(set) == 0 {
		return device.Buffer{}, nil
	}
	return device.AllocCopy(d, f.set.Shared, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(set))), len(set)*8), what)
}
