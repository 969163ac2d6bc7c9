package transfer

import (
	"fmt"

	"github.com/tensorcache/tensorcache/codec"
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
	rows     int64
	rowBytes int
	codec    codec.Codec // nil: all rows raw
	home     device.Device
	host     kernels.HostRows // its buffers lie in host memory
	total    Totals
}

// Totals describe all rows of a tier.
type Totals struct {
	Rows, RawRows int64
	// RawBytes is rows × row bytes; StoredBytes what the rows take as stored; SlotBytes what they would take in slabs.
	RawBytes, StoredBytes, SlotBytes int64
}

// Rows returns the number of rows.
func (t *Tier) Rows() int64 { return t.rows }

// RowBytes returns the length of a row.
func (t *Tier) RowBytes() int { return t.rowBytes }

// Mode returns how the rows are laid out.
func (t *Tier) Mode() Mode { return t.mode }

// Codec returns the table's codec, or nil when all rows are raw.
func (t *Tier) Codec() codec.Codec { return t.codec }

// Totals returns the sums over all rows.
func (t *Tier) Totals() Totals { return t.total }

// HostBytes returns the host memory of the rows, and IndexBytes what a packed tier's index takes on each device.
func (t *Tier) HostBytes() int64  { return t.host.Mem.Size() }
func (t *Tier) IndexBytes() int64 { return t.host.Index.Size() }

// BitmaskBytes returns what the bits that say compressed or raw take on each device.
func (t *Tier) BitmaskBytes() int64 { return t.host.Compressed.Size() }

// Stored returns the stored bytes of a row, exactly, and whether they are compressed.
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

// SlotBytes returns what the row takes in a slab.
func (t *Tier) SlotBytes(row int64) (int, error) {
	stored, _, err := t.Stored(row)
	return slab.SlotBytes(len(stored)), err
}

// Attach returns the tier as the kernels of device d see it, its bits or index in the device's memory.
func (t *Tier) Attach(d device.Device) (kernels.HostRows, error) {
	rows := t.host
	for _, b := range []struct {
		mem  *device.Buffer
		what string
	}{{&rows.Compressed, "row bits"}, {&rows.Index, "host tier index"}} {
		if b.mem.Size() == 0 {
			continue
		}
		onDevice, err := d.Alloc(b.mem.Size(), b.what)
		if err != nil {
			return kernels.HostRows{}, err
		}
		copy(onDevice.Bytes(), b.mem.Bytes())
		*b.mem = onDevice
	}
	return rows, nil
}

// Close frees the tier's memory. Nothing may read it any more.
func (t *Tier) Close() {
	t.home.Free(t.host.Mem)
	t.home.Free(t.host.Compressed)
	t.home.Free(t.host.Index)
	t.host = kernels.HostRows{}
}
