package transfer

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
)

// Mode is the layout of a host tier.
type Mode uint8

const (
	InPlace Mode = iota // rows at a fixed stride, no index
	Packed              // rows back to back, with an index
)

// String returns the mode's name, as flags take it.
func (m Mode) String() string {
	switch m {
	case InPlace:
		return "inplace"
	case Packed:
		return "packed"
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// ParseMode returns the mode with the given name.
func ParseMode(name string) (Mode, error) {
	for _, m := range []Mode{InPlace, Packed} {
		if m.String() == name {
			return m, nil
		}
	}
	return 0, fmt.Errorf("transfer: unknown host tier (%q) must be inplace or packed", name)
}

// align is the alignment of rows, in bytes, for word loads. A larger one would cost host memory for small rows and, if packed,
// transferred bytes.
const align = 4

func roundUp(n int64) int64 { return (n + align - 1) &^ (align - 1) }

// Tier is the host tier of one table.
type Tier struct {
	mode        Mode
	rows        int64        // number when loaded
	added       atomic.Int64 // rows added since
	capacity    int64        // most rows that the tier can grow to
	rowBytes    int
	codec       codec.Codec      // nil if all rows are raw
	home        device.Device    // allocates the memory
	host        kernels.HostRows // its buffers are host memory
	writes      sync.RWMutex     // locked by Write, Grow and Repack; locked for reading by methods that may run beside them
	total       Totals
	trained     Totals           // totals when loaded
	choice      *registry.Choice // nil if the codec was named
	tail        *slab.Allocator  // packed: space behind the rows as loaded, from offset tailFrom
	tailFrom    int64
	several     bitset                       // packed: rows at shared places, which are never written to; nil if there are none
	sharers     sharers                      // packed: how many of these rows lie at each shared place
	sharedBytes int64                        // slot bytes of these places, or of groups
	sharing     Sharing                      // shared places or groups when the tier was loaded
	packs       uint32                       // packed: how often Repack has run
	shares      atomic.Bool                  // some rows may share a place or a group
	groups      *groups                      // in place: equal rows; nil if there are none
	owned       int64                        // packed: rows from this number on share the row of zeros until they are written
	nodes       []int                        // memory nodes that the rows should be on; empty for any
	lies        NodeMemory                   // where the rows are
	adopted     []byte                       // the caller's memory with the rows; nil if the tier has its own memory
	length      atomic.Pointer[atomic.Int64] // in a tier of another process: its number of rows
	part        *part                        // nil if the tier holds all rows
	vacated     bool                         // rows are elsewhere: see Vacate
	keep        *Keep                        // nil if the memory ends with the process
	groupsMem   device.Buffer                // of groups that are kept
	shared      bool                         // rows, and what Attach copies to devices, are in memory that other processes can map
}

// Totals are sums over all rows of a tier.
type Totals struct {
	Rows, RawRows int64
	// RawBytes is Rows × row bytes. StoredBytes is the length of all rows as stored. SlotBytes is the length of their
	// slots if all were in slabs; rows of one place or group share a slot.
	RawBytes, StoredBytes, SlotBytes int64
	// EqualRows is the number of rows that share a place of a packed tier, or a group of an in-place tier. A row that
	// is written leaves its place or group. The last row there still counts.
	EqualRows int64
}

// Rows returns the number of rows.
func (t *Tier) Rows() int64 {
	if n := t.length.Load(); n != nil {
		return n.Load()
	}
	return t.rows + t.added.Load()
}

// Elsewhere returns a tier that stands for the tier of another process, which shares its memory. It has the schema
// only: batches read the rows by a kernels.HostRows. SetLength says where its number of rows is.
func Elsewhere(mode Mode, rowBytes int, capacity int64, c codec.Codec) *Tier {
	return &Tier{mode: mode, rowBytes: rowBytes, capacity: capacity, codec: c}
}

// SetLength sets where the number of rows of a tier of another process is.
func (t *Tier) SetLength(n *atomic.Int64) { t.length.Store(n) }

// Capacity returns the number of rows that the tier can grow to.
func (t *Tier) Capacity() int64 { return t.capacity }

// RowBytes returns the length of an uncompressed row.
func (t *Tier) RowBytes() int { return t.rowBytes }

// Mode returns the layout.
func (t *Tier) Mode() Mode { return t.mode }

// Codec returns the table's codec, or nil if all rows are raw.
func (t *Tier) Codec() codec.Codec { return t.codec }

// Totals returns the sums over all rows.
func (t *Tier) Totals() Totals {
	t.writes.RLock()
	defer t.writes.RUnlock()
	total := t.total
	total.Rows = t.Rows()
	return total
}

// TrainedRatio returns raw ÷ stored bytes of the rows as loaded. It does not include rows written later.
func (t *Tier) TrainedRatio() float64 {
	return float64(t.trained.RawBytes) / float64(max(1, t.trained.StoredBytes))
}

// Choice returns the reasons of auto-selection, or nil if the codec was named.
func (t *Tier) Choice() *registry.Choice { return t.choice }

// HostBytes returns the host memory of the rows, in bytes.
func (t *Tier) HostBytes() int64 {
	t.writes.RLock()
	defer t.writes.RUnlock()
	return t.host.Mem.Size()
}

// EqualBytes returns the memory that records which rows are equal, in bytes.
func (t *Tier) EqualBytes() int64 {
	t.writes.RLock()
	defer t.writes.RUnlock()
	return t.groups.memory() + int64(8*len(t.several)) + t.sharers.memory()
}

// IndexBytes returns the memory of a packed tier's index on each device, in bytes.
func (t *Tier) IndexBytes() int64 {
	t.writes.RLock()
	defer t.writes.RUnlock()
	return t.host.Index.Size()
}

// BitmaskBytes returns the memory of the row bits on each device, in bytes.
func (t *Tier) BitmaskBytes() int64 { return t.host.Compressed.Size() }

// Stored returns the stored bytes of a row and whether they are compressed, or ErrAbsent. The bytes are valid until
// the next Write.
func (t *Tier) Stored(row int64) (stored []byte, compressed bool, err error) {
	stored, compressed = t.host.Stored(row)
	if stored == nil && t.part != nil {
		return nil, false, ErrAbsent
	}
	if compressed && t.mode == InPlace {
		n, err := t.codec.Stored(stored)
		if err != nil {
			return nil, false, fmt.Errorf("transfer: row %d: %w", row, err)
		}
		stored = stored[:n]
	}
	return stored, compressed, nil
}

// StoredBytes returns the length of a row as stored. For an absent row it is the mean of the table. It may run beside
// Write.
func (t *Tier) StoredBytes(row int64) (int, error) {
	if t.codec == nil { // reads no memory and takes no lock
		return t.rowBytes, nil
	}
	t.writes.RLock()
	defer t.writes.RUnlock()
	if t.part != nil {
		return t.partBytes(row), nil
	}
	stored, _, err := t.Stored(row)
	return len(stored), err
}

// StoredLengths sets lengths to the stored lengths of the first rows, or -1 for rows that cannot be read. It works on
// all processors. Once the context has ended, it sets no further lengths. REQUIRES: no Write or Repack runs.
func (t *Tier) StoredLengths(ctx context.Context, lengths []int32) {
	interruptible{host.Workers(0), ctx}.For(len(lengths), 1<<14, func(from, to int) {
		for row := from; row < to; row++ {
			if lengths[row] = -1; t.part != nil {
				lengths[row] = int32(t.partBytes(int64(row)))
				continue
			}
			if stored, _, err := t.Stored(int64(row)); err == nil {
				lengths[row] = int32(len(stored))
			}
		}
	})
}

// TryStoredBytes sets lengths to the stored lengths of the rows. It does not wait: if a Write or Repack runs, all
// lengths are -1. So are those of corrupt rows.
func (t *Tier) TryStoredBytes(rows []int64, lengths []int) {
	known := t.length.Load() == nil && t.writes.TryRLock()
	if known {
		defer t.writes.RUnlock()
	}
	for i, row := range rows {
		lengths[i] = -1
		if known && !t.vacated {
			if stored, _, err := t.Stored(row); err == nil {
				lengths[i] = len(stored)
			}
		}
	}
}

// SlotBytes returns the length of the row's slot in a slab. It may run beside Write.
func (t *Tier) SlotBytes(row int64) (int, error) {
	n, err := t.StoredBytes(row)
	return slab.SlotBytes(n), err
}

// Attach copies row bits, index and codec metadata to device d, and returns the tier and its codec for d's kernels. Detach
// frees the copies.
func (t *Tier) Attach(d device.Device) (rows kernels.HostRows, c kernels.Codec, err error) {
	if rows, err = t.AttachRows(d); err != nil {
		return rows, c, err
	}
	if c, err = kernels.AttachCodec(d, t.codec); err != nil {
		Detach(d, rows, c)
	}
	return rows, c, err
}

// AttachRows is Attach without the codec.
func (t *Tier) AttachRows(d device.Device) (rows kernels.HostRows, err error) {
	rows = t.host
	rows.Compressed, rows.Index = device.Buffer{}, device.Buffer{}
	if bits := t.host.Compressed; bits.Size() != 0 {
		rows.Compressed, err = device.AllocCopy(d, t.shared, bits.Bytes(), "row bits")
	}
	if index := t.host.Index; index.Size() != 0 && err == nil {
		rows.Index, err = device.AllocCopy(d, t.shared, index.Bytes(), "host tier index")
	}
	if err != nil {
		Detach(d, rows, kernels.Codec{})
	}
	return rows, err
}

// Detach frees the device memory of Attach.
func Detach(d device.Device, rows kernels.HostRows, c kernels.Codec) {
	d.Free(rows.Compressed)
	d.Free(rows.Index)
	d.Free(c.Meta)
}

// Vacate frees the rows, which are elsewhere from now on. The tier keeps its schema, totals and codec. Methods that
// read or write rows must not be called any more. REQUIRES: the memory is not adopted.
func (t *Tier) Vacate() {
	t.writes.Lock()
	defer t.writes.Unlock()
	t.home.Free(t.host.Mem)
	t.home.Free(t.host.Compressed)
	t.home.Free(t.host.Index)
	t.host = kernels.HostRows{RowBytes: t.rowBytes}
	t.lies, t.several, t.sharers, t.groups, t.tail, t.vacated = NodeMemory{}, nil, sharers{}, nil, nil, true
}

// Replaced adds changes of the rows of a vacated tier to its totals. It does not add Rows and RawBytes.
func (t *Tier) Replaced(by Totals) {
	t.writes.Lock()
	defer t.writes.Unlock()
	t.total.RawRows += by.RawRows
	t.total.StoredBytes += by.StoredBytes
	t.total.SlotBytes += by.SlotBytes
}

// Close frees the tier's memory, which must no longer be in use. It leaves adopted memory as it is.
func (t *Tier) Close() {
	if t.adopted != nil {
		defer unclaim(t.adopted) // after the memory is unlocked
		t.adopted = nil
	}
	if t.home == nil {
		return // the memory is another process's
	}
	t.home.Free(t.host.Mem)
	t.home.Free(t.host.Compressed)
	t.home.Free(t.host.Index)
	t.home.Free(t.groupsMem)
	t.host = kernels.HostRows{}
	if t.part != nil {
		t.part.times.Free()
		t.part.since = nil
	}
}
