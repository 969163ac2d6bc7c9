package read

import (
	"slices"
	"sort"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// Span is rows of a resident table, by local number, that lie in one range.
type Span struct {
	From, To int64
	Number   int
	*kernels.Range
	All bool // the range has room for all rows of the table, the slot of local number 0 at the beginning
}

// Spans returns where the rows of the table lie: in the order of local numbers, without gaps. The result is not changed later.
func (r *Resident) Spans() []Span { return *r.spans.Load() }

// SetSpans says where rows lie from now on. Neighbours in the same range become one span. REQUIRES: no row whose span changes is in the overlay.
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
	if len(kept) == 0 { // a table without rows
		kept = all[:1]
	}
	r.spans.Store(&kept)
}

// Of returns the span that a row is in.
func (r *Resident) Of(row int64) Span { return r.At(r.Rows.Local(row)) }

// At returns the span that has a local number.
func (r *Resident) At(local int64) Span {
	all := r.Spans()
	if len(all) == 1 {
		return all[0]
	}
	return all[sort.Search(len(all)-1, func(i int) bool { return local < all[i].To })]
}

// Uses says whether rows are in a range.
func (r *Resident) Uses(of *kernels.Range) bool {
	return slices.ContainsFunc(r.Spans(), func(s Span) bool { return s.Range == of })
}

// Target returns the mean bytes of a slot.
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

// MostTarget returns the largest target for which every device has memory for slots.
func (r *Resident) MostTarget() int {
	most := int64(buddy.MaxTarget(r.Rows.RowBytes))
	for d := range r.Rows.Devices {
		if rows := r.Rows.LocalRows(0); rows > 0 {
			most = min(most, (r.Rows.Slots[d].Size()-slab.TailSlack)/rows)
		}
	}
	return int(most / buddy.MinTarget * buddy.MinTarget)
}

// Past says whether more of so many rows have overflow than the table wants.
func (r *Resident) Past(rows int64) bool {
	return float64(r.overflowRows.Load()) > r.MaxOverflow*float64(rows)
}

// NewRange returns a range with buddy memory of its own: page-locked memory that home allocates on the given memory nodes. slot is the offset in each
// device's slots at which the slot of local number from lies.
func (r *Resident) NewRange(home device.Device, nodes []int, target int, from, to, slot int64) (*kernels.Range, error) {
	over := int64(buddy.Over(target, r.Rows.RowBytes))
	n := &kernels.Range{Target: target, Slot: slot - from*int64(target), Overflow: -from * over}
	if over == 0 {
		return n, nil
	}
	for d := range r.Rows.Devices {
		b, _, err := device.AllocHost(home, r.Shared, nodes, (to-from)*over+slab.TailSlack, "buddy memory")
		if err != nil {
			r.Drop(n)
			return nil, err
		}
		n.Buddy[d] = b
		r.Own(home, b)
		r.buddyBytes.Add(b.Size())
	}
	return n, nil
}

// Release returns the memory of a range that the table no longer owns. REQUIRES: no row lies there.
func (r *Resident) Release(of *kernels.Range) (all []device.Buffer, home device.Device) {
	for _, b := range of.Buddy {
		if i := slices.IndexFunc(r.owned, func(o ownedBuffer) bool {
			return b.Size() > 0 && o.buffer.Addr() == b.Addr() && o.buffer.Size() == b.Size()
		}); i >= 0 {
			home = r.owned[i].device
			r.owned = slices.Delete(r.owned, i, i+1)
			r.buddyBytes.Add(-b.Size())
			all = append(all, b)
		}
	}
	return all, home
}

// Drop frees the memory of a range that no batch has seen.
func (r *Resident) Drop(of *kernels.Range) {
	all, home := r.Release(of)
	for _, b := range all {
		home.Free(b)
	}
}
