package read

import (
	"math"
	"slices"
	"sort"
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// Span is a sequence of rows of a resident table that lie in one range: local numbers From to To-1. A row's local
// number is its number among the rows of its device.
type Span struct {
	From, To int64
	Number   int
	*kernels.Range
}

// Spans returns the spans of the table, by local number and without gaps. The slice is never changed.
func (r *Resident) Spans() []Span { return *r.spans.Load() }

// SetSpans sets where rows lie from now on. It joins neighbours in the same range. REQUIRES: no row whose span
// changes is in the overlay.
func (r *Resident) SetSpans(all []Span) {
	kept := make([]Span, 0, len(all))
	for _, s := range all {
		switch n := len(kept); {
		case s.From == s.To:
		case n > 0 && kept[n-1].Range == s.Range:
			kept[n-1].To = s.To
		default:
			kept = append(kept, s)
		}
	}
	if len(kept) == 0 { // the table has no rows
		kept = all[:1]
	}
	r.spans.Store(&kept)
}

// Of returns the span of a row.
func (r *Resident) Of(row int64) Span { return r.At(r.Rows.Local(row)) }

// At returns the span of a local number.
func (r *Resident) At(local int64) Span {
	all := r.Spans()
	if len(all) == 1 {
		return all[0]
	}
	return all[sort.Search(len(all)-1, func(i int) bool { return local < all[i].To })]
}

// Uses says whether any span lies in a range.
func (r *Resident) Uses(of *kernels.Range) bool {
	return slices.ContainsFunc(r.Spans(), func(s Span) bool { return s.Range == of })
}

// Target returns the mean target of the rows, in bytes.
func (r *Resident) Target() float64 {
	sum, rows := int64(0), int64(0)
	for _, s := range r.Spans() {
		sum, rows = sum+(s.To-s.From)*int64(s.Target), rows+s.To-s.From
	}
	if rows == 0 {
		return float64(r.Spans()[0].Target)
	}
	return float64(sum) / float64(rows)
}

// SlotsRoom returns the bytes for slots that each device has at least.
func (r *Resident) SlotsRoom() int64 {
	most := int64(math.MaxInt64)
	for d := range r.Rows.Devices {
		most = min(most, r.Rows.Slots[d].Size()-slab.TailSlack)
	}
	return most
}

// MostTarget returns the largest target for all rows at which their slots fit every device.
func (r *Resident) MostTarget() int {
	most := int64(buddy.MaxTarget(r.Rows.RowBytes))
	if rows := r.Rows.LocalRows(0); rows > 0 {
		most = min(most, r.SlotsRoom()/rows)
	}
	return int(most / buddy.MinTarget * buddy.MinTarget)
}

// Past says whether in some range a larger share of the rows than MaxOverflow has overflow. rows is the length of the
// table.
func (r *Resident) Past(rows int64) bool {
	var of [buddy.MaxRanges]int64
	for _, s := range r.Spans() {
		devices := int64(r.Rows.Devices)
		of[s.Number] += max(0, min(s.To*devices, rows)-s.From*devices)
	}
	for i, n := range of {
		if float64(r.overflowRows[i].Load()) > r.MaxOverflow*float64(n)*(1+1e-9) {
			return true
		}
	}
	return false
}

// Covers says whether a range has overflow places for local numbers from to to-1.
func (r *Resident) Covers(of *kernels.Range, from, to int64) bool {
	over := int64(buddy.Over(of.Target, r.Rows.RowBytes))
	if over == 0 {
		return true
	}
	first := -of.Overflow / over
	return from >= first && to <= first+(of.Buddy[0].Size()-slab.TailSlack)/over
}

// BuddyPlaces says where buddy memory is allocated.
type BuddyPlaces struct {
	// Peers names, for each device, the device whose memory holds the overflow places of its rows. If it is nil, they
	// lie in page-locked memory on Nodes.
	Peers []int
	Nodes []int
}

// RangeBytes returns the buddy memory for the given rows of one device, in bytes. It is 0 if slots of target bytes
// hold every row.
func (r *Resident) RangeBytes(target int, rows int64) int64 {
	over := buddy.Over(target, r.Rows.RowBytes)
	if over == 0 {
		return 0
	}
	return rows*int64(over) + slab.TailSlack
}

// NewRange returns a range for local numbers from to to-1, with buddy memory of its own. slot is the offset of the
// slot of local number from in each device's slots.
func (r *Resident) NewRange(s *Set, places BuddyPlaces, target int, from, to, slot int64) (*kernels.Range, error) {
	n := &kernels.Range{Target: target, Slot: slot - from*int64(target), Overflow: -from * int64(buddy.Over(target, r.Rows.RowBytes)), Peers: places.Peers}
	bytes := r.RangeBytes(target, to-from)
	for d := range r.Rows.Devices {
		if bytes == 0 {
			break
		}
		home, count, err := s.Devices[0].Device, &r.hostBytes, error(nil)
		if places.Peers == nil {
			n.Buddy[d], _, err = device.AllocHost(home, r.Shared, places.Nodes, bytes, "buddy memory")
		} else {
			p := places.Peers[d]
			home, count = s.Devices[p].Device, &r.peerBytes[p]
			n.Buddy[d], err = device.Alloc(home, r.Shared, bytes, "buddy memory")
		}
		if err != nil {
			r.Drop(n)
			return nil, err
		}
		r.owned = append(r.owned, ownedBuffer{home, n.Buddy[d], count})
		count.Add(bytes)
	}
	return n, nil
}

// Drop frees the buddy memory of a range. REQUIRES: no batch reads it.
func (r *Resident) Drop(of *kernels.Range) {
	for _, b := range of.Buddy {
		i := slices.IndexFunc(r.owned, func(o ownedBuffer) bool {
			return b.Size() > 0 && o.buffer.Addr() == b.Addr() && unsafe.SliceData(o.buffer.Bytes()) == unsafe.SliceData(b.Bytes())
		})
		if i < 0 {
			continue
		}
		r.owned[i].device.Free(b)
		r.owned[i].counted.Add(-b.Size())
		r.owned = slices.Delete(r.owned, i, i+1)
	}
}
