package slab

import (
	"fmt"
	"iter"
	"math/bits"
)

// Allocator allocates the slots of one slab. Freed slots are merged with free neighbours. The bookkeeping is host memory and
// does not count against the cache's budget.
//
// Free extents are kept in bins by length in units of Align: one bin a length below exactBins units, one bin a power of two
// above. Alloc takes the smallest bin that fits, which is best fit for small slots, and first fit within a factor of two
// for large ones. Not safe for concurrent use.
type Allocator struct {
	first  int64            // where slots may begin, in units of Align
	end    int64            // where they end
	used   int64            // in units
	bins   [numBins][]int64 // start units of the free extents of each bin
	filled [numBins/64 + 1]uint64
	starts map[int64]extent // free extents by their start unit
	ends   map[int64]int64  // free extent end → start
	check  slotCheck
	// only is the free extent if there is one and no other, for example while a slab is filled. It is in no bin and in no map, so that
	// allocation only adds. Its units are 0 if there are several extents or none.
	only, onlyUnits int64
}

type extent struct {
	units int64
	place int // index in its bin
}

const (
	exactBins = 1024 // slots up to 16 KiB have a bin of their own size
	numBins   = exactBins + 40
)

// NewAllocator returns an allocator for slots that lie in a slab from offset first on, a multiple of Align, and take up to payload bytes.
// Behind them is the slab's tail slack.
func NewAllocator(first, payload int64) *Allocator {
	a := &Allocator{first: first / Align, starts: map[int64]extent{}, ends: map[int64]int64{}}
	a.only, a.onlyUnits = a.first, payload/Align
	a.end = a.first + a.onlyUnits
	return a
}

// Capacity returns the bytes that slots can occupy.
func (a *Allocator) Capacity() int64 { return (a.end - a.first) * Align }

// End returns the offset behind the last slot that there can be.
func (a *Allocator) End() int64 { return a.end * Align }

// Used returns the bytes of all allocated slots.
func (a *Allocator) Used() int64 { return a.used * Align }

// Alloc returns the byte offset of a free slot of slotBytes, a positive multiple of Align; ok is false when no free
// extent is large enough.
func (a *Allocator) Alloc(slotBytes int) (offset int64, ok bool) {
	if slotBytes <= 0 || slotBytes%Align != 0 {
		panic(fmt.Sprintf("slab: slot bytes (%d) must be a positive multiple of %d", slotBytes, Align))
	}
	n := int64(slotBytes / Align)
	start, ok := a.alloc(n)
	if !ok {
		return 0, false
	}
	a.check.alloc(start, n)
	return start * Align, true
}

// AllocRun allocates slots that follow each other, and returns the byte offset of the first; ok is false when no free
// extent holds all of them. bytes is their sum, and slots yields the bytes of each in turn. Only the invariants tag's
// checks call slots. Each slot is freed on its own.
func (a *Allocator) AllocRun(bytes int64, slots iter.Seq[int]) (offset int64, ok bool) {
	if bytes <= 0 || bytes%Align != 0 {
		panic(fmt.Sprintf("slab: bytes of a run (%d) must be a positive multiple of %d", bytes, Align))
	}
	start, ok := a.alloc(bytes / Align)
	if !ok {
		return 0, false
	}
	a.check.allocRun(start, bytes/Align, slots)
	return start * Align, true
}

// alloc takes n units of one free extent.
func (a *Allocator) alloc(n int64) (start int64, ok bool) {
	if a.onlyUnits != 0 {
		if n > a.onlyUnits {
			return 0, false
		}
		start = a.only
		a.only, a.onlyUnits = a.only+n, a.onlyUnits-n
		a.used += n
		return start, true
	}
	start, length, ok := a.take(n)
	if !ok {
		return 0, false
	}
	if length > n {
		a.insert(start+n, length-n)
	}
	a.used += n
	return start, true
}

// Free frees the slot at offset. The slot must have been allocated with the same slotBytes. The caller must have removed its
// location from every hashmap, and the epoch of the removal must have passed.
func (a *Allocator) Free(offset int64, slotBytes int) {
	start, n := offset/Align, int64(slotBytes/Align)
	a.check.free(start, n)
	a.used -= n
	a.insertFree(start, n)
}

// insertFree inserts a free extent, merged with free neighbours.
func (a *Allocator) insertFree(start, n int64) {
	a.list()
	if after, ok := a.starts[start+n]; ok {
		a.remove(start + n)
		n += after.units
	}
	if before, ok := a.ends[start]; ok {
		a.remove(before)
		n += start - before
		start = before
	}
	a.insert(start, n)
}

// Grow makes the slab larger: payload is how many bytes slots can occupy from now on.
func (a *Allocator) Grow(payload int64) {
	start, n := a.end, payload/Align-(a.end-a.first)
	if n <= 0 {
		return
	}
	a.end += n
	a.insertFree(start, n)
}

// list puts the only extent in its bin and the maps.
func (a *Allocator) list() {
	if n := a.onlyUnits; n != 0 {
		a.onlyUnits = 0
		a.insert(a.only, n)
	}
}

// NumExtents returns how many free extents there are.
func (a *Allocator) NumExtents() int {
	if a.onlyUnits != 0 {
		return 1
	}
	return len(a.starts)
}

// Extents yields the byte offset and length of every free extent, in any order. The allocator must not change meanwhile.
func (a *Allocator) Extents() iter.Seq2[int64, int64] {
	return func(yield func(int64, int64) bool) {
		if a.onlyUnits != 0 {
			yield(a.only*Align, a.onlyUnits*Align)
			return
		}
		for start, e := range a.starts {
			if !yield(start*Align, e.units*Align) {
				return
			}
		}
	}
}

// HoleBytes returns the bytes of the free extents that are shorter than slotBytes.
func (a *Allocator) HoleBytes(slotBytes int) (sum int64) {
	units := (int64(slotBytes) + Align - 1) / Align
	if n := a.onlyUnits; n < units {
		sum = n
	}
	for b := range int(min(units, exactBins)) {
		sum += int64(b) * int64(len(a.bins[b]))
	}
	for b := exactBins; b <= binOf(units); b++ {
		for _, start := range a.bins[b] {
			if n := a.starts[start].units; n < units {
				sum += n
			}
		}
	}
	return sum * Align
}

// Claim allocates all free bytes of the chosen windows, where window w is [w × width, (w+1) × width). It returns them as slots,
// pairs of offset and bytes, at least one for each free extent that overlaps a chosen window. width must be a multiple of
// Align. Claim makes one pass over the free extents, however many windows there are.
func (a *Allocator) Claim(width int64, chosen func(window int64) bool) (slots [][2]int64) {
	a.list()
	reached := func(start, bytes int64) bool {
		for w := start / width; w*width < start+bytes; w++ {
			if chosen(w) {
				return true
			}
		}
		return false
	}
	var extents []int64
	for start, bytes := range a.Extents() {
		if reached(start, bytes) {
			extents = append(extents, start/Align)
		}
	}
	for _, at := range extents {
		end := at + a.starts[at].units
		a.remove(at)
		for at < end {
			claim, to := chosen(at*Align/width), at
			for to < end && chosen(to*Align/width) == claim {
				to = min(end, (to*Align/width+1)*width/Align)
			}
			if claim {
				a.used += to - at
				a.check.alloc(at, to-at)
				slots = append(slots, [2]int64{at * Align, (to - at) * Align})
			} else {
				a.insert(at, to-at)
			}
			at = to
		}
	}
	return slots
}

func binOf(n int64) int {
	if n < exactBins {
		return int(n)
	}
	return exactBins + bits.Len64(uint64(n)) - bits.Len64(exactBins)
}

func (a *Allocator) insert(start, n int64) {
	b := binOf(n)
	a.starts[start] = extent{units: n, place: len(a.bins[b])}
	a.ends[start+n] = start
	a.bins[b] = append(a.bins[b], start)
	a.filled[b/64] |= 1 << (b % 64)
}

func (a *Allocator) remove(start int64) {
	e := a.starts[start]
	delete(a.starts, start)
	delete(a.ends, start+e.units)
	b := binOf(e.units)
	bin := a.bins[b]
	last := bin[len(bin)-1]
	a.bins[b] = bin[:len(bin)-1]
	if last != start {
		bin[e.place] = last
		moved := a.starts[last]
		moved.place = e.place
		a.starts[last] = moved
	}
	if len(a.bins[b]) == 0 {
		a.filled[b/64] &^= 1 << (b % 64)
	}
}

// take removes and returns a free extent of at least n units.
func (a *Allocator) take(n int64) (start, units int64, ok bool) {
	for b := a.nextBin(binOf(n)); b < numBins; b = a.nextBin(b + 1) {
		for _, start := range a.bins[b] {
			if e := a.starts[start]; e.units >= n {
				a.remove(start)
				return start, e.units, true
			}
		}
	}
	return 0, 0, false
}

// nextBin returns the first bin at or after from that holds an extent, or numBins.
func (a *Allocator) nextBin(from int) int {
	for w := from / 64; w < len(a.filled); w++ {
		word := a.filled[w]
		if w == from/64 {
			word &= ^uint64(0) << (from % 64)
		}
		if word != 0 {
			return w*64 + bits.TrailingZeros64(word)
		}
	}
	return numBins
}
