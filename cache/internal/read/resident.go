package read

import (
	"sync"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/numa"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/slab/buddy"
	"github.com/tensorcache/tensorcache/transfer"
)

// ResidentOptions says how a table is made resident.
type ResidentOptions struct {
	Target      int     // bytes of a slot; 0: chosen from the lengths of the rows
	MaxTarget   int     // the largest target for which slots have room
	MaxOverflow float64 // the largest share of rows with overflow, where the target is chosen
	Retarget    bool    // move to other targets without being asked when more rows have overflow
	Buddy       string  // one of the constants below
}

// Values of ResidentOptions.Buddy. Package cache documents them.
const (
	BuddyHost = "host"
	BuddyPeer = "peer"
	BuddyAuto = "auto"
)

// Resident says where the rows of a resident table lie. Batches read Rows. The writer changes the rest.
type Resident struct {
	Rows *kernels.Resident
	// MaxOverflow is the share of a range's rows that may have overflow. Beyond it, the table should be moved to other
	// targets.
	MaxOverflow float64
	// rows has 32 bits for each row up to the capacity. The lower 20 are the row's stored length, which for raw rows
	// is the row length. The upper 12 number the batch of updates that has the row's newest version in the overlay.
	// They are 0 if the row lies in its own places.
	rows   []uint32
	memory *numa.Memory
	owned  []ownedBuffer
	Shared bool // its memory is allocated so that other processes can map it
	spans  atomic.Pointer[[]Span]
	// Gate is locked for reading while updates are published, and for writing while a window of rows moves to another
	// range.
	Gate sync.RWMutex
	// Mover is locked by a move to other targets. It guards Moving: the target parts of a move that ended early, or
	// nil if all rows have moved.
	Mover  sync.Mutex
	Moving []buddy.Part

	deviceBytes, hostBytes atomic.Int64
	peerBytes              [slab.MaxSlabs]atomic.Int64 // buddy memory on each device
	// Rows of the table with overflow, by the number of their range, and the bytes of all overflow.
	overflowRows  [buddy.MaxRanges]atomic.Int64
	overflowBytes atomic.Int64
}

type ownedBuffer struct {
	device  device.Device
	buffer  device.Buffer
	counted *atomic.Int64 // counter that includes its bytes; nil: none
}

// NewResident returns a resident table without memory. All of its rows are raw. It has one span for each part of the
// choice.
func NewResident(layout buddy.Layout, choice buddy.Choice, maxOverflow float64) *Resident {
	layout.Target = choice.Parts[0].Target // if there is one part, the target of all rows
	r := &Resident{Rows: &kernels.Resident{Layout: layout}, MaxOverflow: maxOverflow}
	spans := make([]Span, len(choice.Parts))
	for i, p := range choice.Parts {
		spans[i] = Span{From: p.From, To: p.To, Number: i, Range: &kernels.Range{Target: p.Target}}
	}
	r.spans.Store(&spans)
	r.rows, r.memory = numa.Make[uint32](layout.Rows)
	return r
}

// OwnDevice is Own for device memory that the budget pays for.
func (r *Resident) OwnDevice(d device.Device, b device.Buffer) {
	r.deviceBytes.Add(b.Size())
	r.owned = append(r.owned, ownedBuffer{d, b, &r.deviceBytes})
}

// Own makes Free free a buffer.
func (r *Resident) Own(d device.Device, b device.Buffer) {
	r.owned = append(r.owned, ownedBuffer{device: d, buffer: b})
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
	r.rows = nil
}

const (
	storedBits = 20
	storedMask = 1<<storedBits - 1
	// Batches of updates have the numbers 1 to Batches-1.
	Batches = 1 << (32 - storedBits)
)

// Set records the stored length of a row that lies in its own places. It returns the length recorded before, 0 the
// first time. Different goroutines may set different rows at once.
func (r *Resident) Set(row int64, stored int) (old int) {
	old = int(atomic.SwapUint32(&r.rows[row], uint32(stored)) & storedMask)
	var by ResidentChange
	by.add(r.Rows.RowBytes, r.Of(row), old, stored)
	r.count(by)
	return old
}

// ResidentChange is a change of a table's totals by updates.
type ResidentChange struct {
	Totals        transfer.Totals
	overflowRows  [buddy.MaxRanges]int64
	overflowBytes int64
	// Overlay counts rows that were put in the overlay and were not there before.
	Overlay int64
}

func (c *ResidentChange) add(rowBytes int, of Span, old, stored int) {
	if old == stored {
		return
	}
	c.overflow(of, old, -1)
	c.overflow(of, stored, 1)
	c.Totals.RawRows += raw(stored, rowBytes) - raw(old, rowBytes)
	c.Totals.StoredBytes += int64(stored - old)
	c.Totals.SlotBytes += int64(slab.SlotBytes(stored) - slab.SlotBytes(old))
}

// overflow adds n rows of a stored length in a span.
func (c *ResidentChange) overflow(of Span, stored, n int) {
	if more := stored - of.Target; more > 0 {
		c.overflowRows[of.Number] += int64(n)
		c.overflowBytes += int64(n * more)
	}
}

// Add adds the change by another part of a batch.
func (c *ResidentChange) Add(by ResidentChange) {
	for i, n := range by.overflowRows {
		c.overflowRows[i] += n
	}
	c.overflowBytes += by.overflowBytes
	c.Totals.RawRows += by.Totals.RawRows
	c.Totals.StoredBytes += by.Totals.StoredBytes
	c.Totals.SlotBytes += by.Totals.SlotBytes
	c.Overlay += by.Overlay
}

func raw(stored, rowBytes int) int64 {
	if stored == rowBytes {
		return 1
	}
	return 0
}

func (r *Resident) count(by ResidentChange) {
	if by.overflowBytes != 0 {
		r.overflowBytes.Add(by.overflowBytes)
	}
	for i, n := range by.overflowRows {
		if n != 0 {
			r.overflowRows[i].Add(n)
		}
	}
}

// Put records that a batch of updates has the newest version of a row in the overlay. It adds the change of the
// totals to by. Rows from length on, the table's length, do not count in its totals yet. Different goroutines may put
// different rows at once.
func (r *Resident) Put(row int64, stored int, batch uint32, length int64, by *ResidentChange) {
	old := atomic.SwapUint32(&r.rows[row], batch<<storedBits|uint32(stored))
	if of := int(old & storedMask); of != stored {
		totals := by.Totals
		by.add(r.Rows.RowBytes, r.Of(row), of, stored)
		if row >= length {
			by.Totals = totals
		}
	}
	if old>>storedBits == 0 {
		by.Overlay++
	}
}

// Apply adds the changes by Put to the totals of the table.
func (t *Table) Apply(by ResidentChange) {
	t.Resident.count(by)
	t.Tier.Replaced(by.Totals)
}

// Enter records that a batch has copied a row from its own places to the overlay, unchanged.
func (r *Resident) Enter(row int64, batch uint32) { atomic.OrUint32(&r.rows[row], batch<<storedBits) }

// Moved counts a row that has moved from one span to another.
func (c *ResidentChange) Moved(stored int, from, to Span) {
	c.overflow(from, stored, -1)
	c.overflow(to, stored, 1)
}

// Batch returns the number of the batch that has the row's newest version in the overlay, or 0 if the row lies in its
// own places.
func (r *Resident) Batch(row int64) uint32 { return atomic.LoadUint32(&r.rows[row]) >> storedBits }

// Leave records that a row of the overlay is now in its own places, too, which are read from now on.
func (r *Resident) Leave(row int64) { atomic.AndUint32(&r.rows[row], storedMask) }

// Stored returns the stored length of a row.
func (r *Resident) Stored(row int64) int { return int(atomic.LoadUint32(&r.rows[row]) & storedMask) }

// Overflow returns the number of rows with overflow, and the bytes of all overflow.
func (r *Resident) Overflow() (rows, bytes int64) {
	for i := range r.overflowRows {
		rows += r.overflowRows[i].Load()
	}
	return rows, r.overflowBytes.Load()
}

// DeviceBytes returns the bytes of slots and words on all devices.
func (r *Resident) DeviceBytes() int64 { return r.deviceBytes.Load() }

// BuddyBytes returns the bytes of buddy memory: page-locked host memory, and memory of devices.
func (r *Resident) BuddyBytes() (host, devices int64) {
	var by [slab.MaxSlabs]int64
	r.AddPeerBytes(by[:])
	for _, n := range by {
		devices += n
	}
	return r.hostBytes.Load(), devices
}

// AddPeerBytes adds the bytes of buddy memory on each device to to. It ignores nil.
func (r *Resident) AddPeerBytes(to []int64) {
	if r == nil {
		return
	}
	for i := range to {
		to[i] += r.peerBytes[i].Load()
	}
}

// GrownResident updates the totals of a resident table whose length has grown from the given number of rows. New rows
// that nobody has written are raw zeros. They may be in the overlay, on their way to another target. Tier.Grow has
// counted all new rows as raw.
func (t *Table) GrownResident(from int64) {
	r, rowBytes := t.Resident, t.Tier.RowBytes()
	var by, unwritten ResidentChange
	for row := from; row < t.Tier.Rows(); row++ {
		of := r.Of(row)
		if n := r.Stored(row); n != 0 {
			by.add(rowBytes, of, rowBytes, n)
		} else {
			atomic.OrUint32(&r.rows[row], uint32(rowBytes)) // keeps the number of the batch
			unwritten.add(rowBytes, of, 0, rowBytes)
		}
	}
	r.count(unwritten)
	t.Tier.Replaced(by.Totals)
	t.Counts.Cached.Store(t.Tier.Rows())
}

// Cacheable returns how many rows of the table slabs may hold, now and at most. For resident tables both are 0.
func (t *Table) Cacheable() (now, most int64) {
	if t.WantResident != nil {
		return 0, 0
	}
	return t.Tier.Rows(), t.Tier.Capacity()
}

// residentOn returns an error if a device with rows of a resident table is lost, as there is no other copy of them.
func (s *Set) residentOn(t *TableView) error {
	if t.Resident == nil {
		return nil
	}
	for _, d := range s.Devices[:t.Resident.Devices] {
		if d.IsGone() {
			return d.LostError()
		}
	}
	return nil
}
