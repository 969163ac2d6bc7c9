package kernels

import (
	"sync/atomic"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// Range is where rows of a resident table lie that have one target. The word of a row names its range by number.
type Range struct {
	Target int
	// Slot and Overflow are the byte offsets, in a device's slots and in its buddy memory, at which local number 0 would lie. They may be negative:
	// a range need not have that row.
	Slot, Overflow int64
	Buddy          [slab.MaxSlabs]device.Buffer // of each device's rows; empty if the slots hold every row
	// Peers has, for each device, the one in whose memory Buddy is; nil: it is page-locked host memory.
	Peers []int
}

// Writer returns the device that writes the overflow places of a device's rows: the one whose memory they are in or, of host memory, the device itself.
func (r *Range) Writer(device int) int {
	if r.Peers == nil {
		return device
	}
	return r.Peers[device]
}

// SlotOf returns the byte offset of a slot in the slots of its device, given the row's local number.
func (r *Range) SlotOf(local int64) int64 { return r.Slot + local*int64(r.Target) }

// OverflowOf returns the byte offset of an overflow place in Buddy.
func (r *Range) OverflowOf(local int64, rowBytes int) int64 {
	return r.Overflow + local*int64(buddy.Over(r.Target, rowBytes))
}

// Ranges are the ranges of a resident table by number. Batches may read them while they change, under these rules: a number is set when no word names
// it, at least two epochs before a word names it again; a word names a second range only an epoch after Use(-1), which says that words must be read.
type Ranges struct {
	all [buddy.MaxRanges]atomic.Pointer[Range]
	use atomic.Pointer[rangeUse]
}

// rangeUse says in which ranges rows are.
type rangeUse struct {
	only    int    // the one that all are in; -1: words say in which
	changes uint64 // of use
}

// RangesBytes is the length of Resident.Directory.
const RangesBytes = abi.BuddyRangesBytes

// NewRanges returns the ranges of a table whose rows are all in one, number 0.
func NewRanges(whole *Range) *Ranges {
	r := &Ranges{}
	r.all[0].Store(whole)
	r.use.Store(&rangeUse{changes: 1})
	return r
}

// RangesAt returns ranges as another process has them: all by number, and what Now returns there.
func RangesAt(all [buddy.MaxRanges]*Range, only int, changes uint64) *Ranges {
	r := &Ranges{}
	for i, of := range all {
		r.all[i].Store(of)
	}
	r.use.Store(&rangeUse{only, changes})
	return r
}

// Of returns the range with a number, nil if there is none.
func (r *Ranges) Of(number int) *Range { return r.all[number].Load() }

// Set sets the range with a number; nil takes it away.
func (r *Ranges) Set(number int, to *Range) { r.all[number].Store(to) }

// Free returns a number that no range has, -1 if there is none.
func (r *Ranges) Free() int {
	for i := range r.all {
		if r.all[i].Load() == nil {
			return i
		}
	}
	return -1
}

// Unset returns how many numbers no range has.
func (r *Ranges) Unset() (n int) {
	for i := range r.all {
		if r.all[i].Load() == nil {
			n++
		}
	}
	return n
}

// Use says that the rows of batches that begin from now on are all in one range, or, if only is -1, in those that their words name. It returns
// what is to be stored in the first word of each device's Directory.
func (r *Ranges) Use(only int) uint64 {
	n := r.use.Load().changes + 1
	r.use.Store(&rangeUse{only, n})
	return n
}

// Only returns the number of the range that all rows are in, -1 if their words say in which.
func (r *Ranges) Only() int { return r.use.Load().only }

// Now returns Only, and what Use returned when that was set.
func (r *Ranges) Now() (only int, changes uint64) {
	use := r.use.Load()
	return use.only, use.changes
}

// OnPeers says whether all overflow places of the table lie on devices, and there are any.
func (t *Resident) OnPeers() bool {
	on := false
	for i := range t.Ranges.all {
		of := t.Ranges.Of(i)
		if of == nil || buddy.Over(of.Target, t.RowBytes) == 0 {
			continue
		}
		if on = of.Peers != nil; !on {
			break
		}
	}
	return on
}

// Image writes the ranges to host memory of RangesBytes, as Directory is to have them.
func (r *Ranges) Image(t *Resident, to []byte) {
	image := &view[abi.BuddyRanges](device.HostBuffer(to))[0]
	*image = abi.BuddyRanges{Only: r.use.Load().changes}
	var last *Range
	for i := range r.all {
		if of := r.Of(i); of != nil {
			last = of
			image.Ranges[i] = t.rangeArgs(of)
		}
	}
	for i := range r.all {
		if r.Of(i) == nil { // the memory that a wrong word leads to is the table's
			image.Ranges[i] = t.rangeArgs(last)
		}
	}
}

// rangeArgs returns a range as GPUs read it.
func (t *Resident) rangeArgs(r *Range) abi.BuddyRange {
	over := buddy.Over(r.Target, t.RowBytes)
	a := abi.BuddyRange{Target: uint32(r.Target), Over: uint32(over)}
	if over == 0 {
		a.Over = a.Target
	}
	for d := range t.Devices {
		a.Slots[d] = t.Slots[d].Addr() + uint64(r.Slot)
		if a.Overs[d] = r.Buddy[d].Addr() + uint64(r.Overflow); over == 0 {
			a.Overs[d] = a.Slots[d] + uint64(r.Target)
		}
	}
	return a
}

// rangesArgs sets what a batch reads of the ranges. A captured batch outlives changes of them.
func (t *Resident) rangesArgs(a *abi.BuddyArgs, captured bool) {
	of := &Range{Target: t.Target, Buddy: t.Buddy}
	if t.Ranges != nil {
		use := t.Ranges.use.Load()
		if a.Only = use.changes; use.only < 0 {
			a.Only = ^uint64(0)
		}
		if use.only < 0 || captured {
			a.Ranges = t.Directory.Addr()
		}
		of = t.Ranges.Of(max(0, use.only))
	}
	if of == nil { // the words say where rows lie
		return
	}
	r := t.rangeArgs(of)
	a.Slots, a.Overs, a.Target, a.Over = r.Slots, r.Overs, r.Target, r.Over
}
