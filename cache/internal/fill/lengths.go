package fill

import (
	"sync"
	"unsafe"

	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/numa"
	"github.com/tensorcache/tensorcache/slab"
)

const lengthLocks = 64

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

// fetchSlots loads what is known of the slots of the rows' groups, whose numbers have been fetched.
func (a *admitted) fetchSlots(f *filler, keys []uint64) {
	if len(f.groupRows) == 1 { // no groups
		return
	}
	sum := uint32(0)
	for _, key := range keys {
		sum += *a.slot(f, f.group(key), 0)
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
	f.groupRows = []uint32{0}
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
		f.firstGroup = append(f.firstGroup, uint32(len(f.groupRows)))
		if most > 0 && t.Tier.Shares() {
			groups, memory = numa.Make[uint32](most)
			f.groupRows = t.Tier.Groups(f.o.Context, groups[:rows], f.groupRows)
			all = append(all, memory)
		}
		f.groups = append(f.groups, groups)
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
