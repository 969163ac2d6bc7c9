package read

import (
	"sync/atomic"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/numa"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// ResidentOptions say how a table is to be resident.
type ResidentOptions struct {
	Target      int     // bytes of a slot; 0: chosen
	MaxOverflow float64 // share of rows that may have overflow where the target is chosen
}

// Resident is where the rows of a resident table lie. Batches read Rows; the writer changes the rest.
type Resident struct {
	Rows *kernels.Resident
	// Choice is the target and what was expected of it, of the rows as loaded.
	Choice buddy.Choice
	// lengths are the stored lengths of all rows up to the capacity; raw rows have the row bytes.
	lengths []uint32
	memory  *numa.Memory
	owned   []ownedBuffer
	// Of the rows of the table: those with overflow, and its bytes.
	overflowRows, overflowBytes atomic.Int64
}

type ownedBuffer struct {
	device device.Device
	buffer device.Buffer
}

// NewResident returns a resident table without memory, all of whose rows are raw.
func NewResident(layout buddy.Layout, choice buddy.Choice) *Resident {
	r := &Resident{Rows: &kernels.Resident{Layout: layout}, Choice: choice}
	r.lengths, r.memory = numa.Make[uint32](layout.Rows)
	return r
}

// Own has Free free a buffer.
func (r *Resident) Own(d device.Device, b device.Buffer) {
	r.owned = append(r.owned, ownedBuffer{d, b})
}

// Free frees the memory. It ignores nil.
func (r *Resident) Free() {
	if r == nil {
		return
	}
	for _, o := range r.owned {
		o.device.Free(o.buffer)
	}
	r.owned = nil
	r.memory.Free()
	r.lengths = nil
}

// Set notes the stored length of a row of the table, and returns the one before: 0 the first time. Different goroutines may set different rows at once.
func (r *Resident) Set(row int64, stored int) (old int) {
	old = int(atomic.SwapUint32(&r.lengths[row], uint32(stored)))
	before, now := max(0, old-r.Rows.Target), max(0, stored-r.Rows.Target)
	if before == now {
		return old
	}
	r.overflowBytes.Add(int64(now - before))
	if before == 0 {
		r.overflowRows.Add(1)
	} else if now == 0 {
		r.overflowRows.Add(-1)
	}
	return old
}

// Stored returns the stored length of a row.
func (r *Resident) Stored(row int64) int { return int(atomic.LoadUint32(&r.lengths[row])) }

// Overflow returns how many rows have overflow, and its bytes.
func (r *Resident) Overflow() (rows, bytes int64) {
	return r.overflowRows.Load(), r.overflowBytes.Load()
}

// DeviceBytes returns the bytes of slots and words on all devices, and BuddyBytes those of buddy memory.
func (r *Resident) DeviceBytes() (n int64) {
	for d := range r.Rows.Devices {
		n += r.Rows.Layout.DeviceBytes(d)
	}
	return n
}

// BuddyBytes is documented at DeviceBytes.
func (r *Resident) BuddyBytes() (n int64) {
	for d := range r.Rows.Devices {
		n += r.Rows.Layout.BuddyBytes(d)
	}
	return n
}

// GrownResident notes that a resident table has become longer than so many rows: those that nobody has written are raw zeros. Tier.Grow has counted all of
// them as raw.
func (t *Table) GrownResident(from int64) {
	rowBytes := t.Tier.RowBytes()
	for row := from; row < t.Tier.Rows(); row++ {
		if n := t.Resident.Stored(row); n != 0 {
			t.Tier.Replaced(rowBytes, n)
		} else {
			t.Resident.Set(row, rowBytes)
		}
	}
	t.Counts.Cached.Store(t.Tier.Rows())
}

// Cacheable returns how many rows of the table slabs may hold, now and at most: none of a resident table.
func (t *Table) Cacheable() (now, most int64) {
	if t.WantResident != nil {
		return 0, 0
	}
	return t.Tier.Rows(), t.Tier.Capacity()
}

// residentOn returns an error if a device that has rows of a resident table is lost: there is no other copy of them.
func (s *Set) residentOn(t *TableView) error {
	if t.Resident == nil {
		return nil
	}
	for _, d := range s.Devices[:t.Resident.Devices] {
		if d.IsLost() {
			return d.LostError()
		}
	}
	return nil
}
