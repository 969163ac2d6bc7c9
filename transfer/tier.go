package transfer

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
)

// Mode is how a host tier lays out its rows.
type Mode uint8

const (
	InPlace Mode = iota // fixed stride, no index
	Packed              // back to back, with an index
)

// String returns the mode's name as the command line takes it.
func (m Mode) String() string {
	switch m {
	case InPlace:
		return "inplace"
	case Packed:
		return "packed"
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// ParseMode returns the mode of that name.
func ParseMode(name string) (Mode, error) {
	for _, m := range []Mode{InPlace, Packed} {
		if m.String() == name {
			return m, nil
		}
	}
	return 0, fmt.Errorf("transfer: unknown host tier (%q) must be inplace or packed", name)
}

// align is the alignment of rows in the host tier: word loads. More would cost small rows host memory and, packed,
// bytes moved.
const align = 4

func roundUp(n int64) int64 { return (n + align - 1) &^ (align - 1) }

// Tier is the host tier of one table.
type Tier struct {
	mode     Mode
	rows     int64 // as loaded
	added    atomic.Int64
	capacity int64
	rowBytes int
	codec    codec.Codec // nil: all rows raw
	home     device.Device
	host     kernels.HostRows // its buffers lie in host memory
	writes   sync.RWMutex     // held by Write and Repack, and by readers beside them
	total    Totals
	trained  Totals           // as loaded
	choice   *registry.Choice // nil: the codec was named
	tail     *slab.Allocator  // packed: the places behind the rows as loaded
	tailFrom int64
	owned    int64 // packed: rows from here on have no place of their own before tailFrom
	nodes    []int // of the host, on which the rows are to lie; none: anywhere
	lies     NodeMemory
}

// Totals describe all rows of a tier.
type Totals struct {
	Rows, RawRows int64
	// RawBytes is rows × row bytes; StoredBytes what the rows take as stored; SlotBytes what they would take in slabs.
	RawBytes, StoredBytes, SlotBytes int64
}

// Rows returns the number of rows, and Capacity what it can grow to.
func (t *Tier) Rows() int64     { return t.rows + t.added.Load() }
func (t *Tier) Capacity() int64 { return t.capacity }

// RowBytes returns the length of a row.
func (t *Tier) RowBytes() int { return t.rowBytes }

// Mode returns how the rows are laid out.
func (t *Tier) Mode() Mode { return t.mode }

// Codec returns the table's codec, or nil when all rows are raw.
func (t *Tier) Codec() codec.Codec { return t.codec }

// Totals returns the sums over all rows.
func (t *Tier) Totals() Totals {
	t.writes.RLock()
	defer t.writes.RUnlock()
	total := t.total
	total.Rows = t.Rows()
	return total
}

// TrainedRatio returns raw ÷ stored bytes of the rows that the table was loaded with: later ones may compress otherwise.
func (t *Tier) TrainedRatio() float64 {
	return float64(t.trained.RawBytes) / float64(max(1, t.trained.StoredBytes))
}

// Choice returns how auto-selection came to the codec; nil where the codec was named.
func (t *Tier) Choice() *registry.Choice { return t.choice }

// HostBytes returns the host memory of the rows, and IndexBytes what a packed tier's index takes on each device.
func (t *Tier) HostBytes() int64 {
	t.writes.RLock()
	defer t.writes.RUnlock()
	return t.host.Mem.Size()
}
func (t *Tier) IndexBytes() int64 {
	t.writes.RLock()
	defer t.writes.RUnlock()
	return t.host.Index.Size()
}

// BitmaskBytes returns what the bits that say compressed or raw take on each device.
func (t *Tier) BitmaskBytes() int64 { return t.host.Compressed.Size() }

// Stored returns the stored bytes of a row, exactly, and whether they are compressed. No Write may run before they are
// used.
func (t *Tier) Stored(row int64) (stored []byte, compressed bool, err error) {
	stored, compressed = t.host.Stored(row)
	if compressed && t.mode == InPlace {
		n, err := t.codec.Stored(stored)
		if err != nil {
			return nil, false, fmt.Errorf("transfer: row %d: %w", row, err)
		}
		stored = stored[:n]
	}
	return stored, compressed, nil
}

// StoredBytes returns the length of a row as stored. It may be called beside Write.
func (t *Tier) StoredBytes(row int64) (int, error) {
	t.writes.RLock()
	defer t.writes.RUnlock()
	stored, _, err := t.Stored(row)
	return len(stored), err
}

// TryStoredBytes fills in the lengths of rows as stored, without waiting for a Write or a Repack under way: where there is one, and of
// corrupt rows, they are negative.
func (t *Tier) TryStoredBytes(rows []int64, lengths []int) {
	known := t.writes.TryRLock()
	if known {
		defer t.writes.RUnlock()
	}
	for i, row := range rows {
		lengths[i] = -1
		if known {
			if stored, _, err := t.Stored(row); err == nil {
				lengths[i] = len(stored)
			}
		}
	}
}

// SlotBytes returns what the row takes in a slab. It may be called beside Write.
func (t *Tier) SlotBytes(row int64) (int, error) {
	n, err := t.StoredBytes(row)
	return slab.SlotBytes(n), err
}

// Attach returns the tier and its codec as the kernels of device d see them, with bits, index and codec metadata in the
// device's memory; Detach frees that.
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
	bits, index := rows.Compressed, rows.Index
	rows.Compressed, rows.Index = device.Buffer{}, device.Buffer{}
	defer func() {
		if err != nil {
			Detach(d, rows, kernels.Codec{})
		}
	}()
	for _, b := range []struct {
		dst  *device.Buffer
		src  device.Buffer
		what string
	}{{&rows.Compressed, bits, "row bits"}, {&rows.Index, index, "host tier index"}} {
		if b.src.Size() == 0 {
			continue
		}
		if *b.dst, err = d.Alloc(b.src.Size(), b.what); err != nil {
			return rows, err
		}
		if err = device.Upload(d, *b.dst, b.src.Bytes()); err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// Detach frees what Attach put in the device's memory.
func Detach(d device.Device, rows kernels.HostRows, c kernels.Codec) {
	d.Free(rows.Compressed)
	d.Free(rows.Index)
	d.Free(c.Meta)
}

// Close frees the tier's memory. Nothing may read it any more.
func (t *Tier) Close() {
	t.home.Free(t.host.Mem)
	t.home.Free(t.host.Compressed)
	t.home.Free(t.host.Index)
	t.host = kernels.HostRows{}
}
