package attach

import (
	"fmt"

	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/wire"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// Kernels read an owner's memory without looking at its length. So a layout is taken only if its memory is as long as the tables say. What the memory holds is not
// checked: the owner is a process of the same user and release.

// maxCapacity is the most rows of a table.
const maxCapacity = 1<<50 - 2

// checkTable returns an error for a table that cannot be one.
func checkTable(t *wire.Table) error {
	of, err := dtype.Parse(t.DType)
	switch {
	case err != nil:
		return fmt.Errorf("cache: table %s: %w", t.Name, err)
	case t.RowBytes < 1 || t.RowBytes > slab.MaxRowBytes || t.RowBytes%of.Size() != 0:
		return fmt.Errorf("cache: table %s: row (%d bytes) must be 1 to %d, and whole elements of %d", t.Name, t.RowBytes, slab.MaxRowBytes, of.Size())
	case t.Capacity < 0 || t.Capacity > maxCapacity:
		return fmt.Errorf("cache: table %s: capacity (%d) must be 0 to 2^50 - 2", t.Name, t.Capacity)
	}
	return nil
}

// checkRows returns an error unless a table's memory on a device that this process sees is as long as its rows need.
func checkRows(of *wire.Table, t *read.TableView) error {
	bits := (of.Capacity + 63) / 64 * 8
	type need struct {
		what  string
		b     device.Buffer
		bytes int64
		empty bool // it may be
	}
	needs := []need{{"rejected rows", t.Rejected, bits, true}, {"oversize rows", t.Oversize, bits, true}}
	rows := &t.Rows
	switch {
	case of.Resident:
	case rows.Stride != 0:
		if rows.Stride < int64(rows.RowBytes) || rows.Stride > 2*slab.MaxRowBytes {
			return fmt.Errorf("cache: table %s: rows (%d bytes) must not overlap, with a stride of %d", of.Name, rows.RowBytes, rows.Stride)
		}
		needs = append(needs, need{"host tier", rows.Mem, (of.Capacity-1)*rows.Stride + int64(rows.RowBytes), of.Capacity == 0}, need{"row bits", rows.Compressed, bits, true})
	default:
		needs = append(needs, need{"host tier index", rows.Index, of.Capacity * 8, of.Capacity == 0})
	}
	if rows.Ahead < 0 || rows.Ahead > rows.RowBytes || rows.Common < 0 || rows.Common > rows.RowBytes {
		return fmt.Errorf("cache: table %s: bytes read ahead (%d) and gathered (%d) must be 0 to %d", of.Name, rows.Ahead, rows.Common, rows.RowBytes)
	}
	for _, n := range needs {
		if n.b.Size() < n.bytes && !(n.empty && n.b.Size() == 0) {
			return fmt.Errorf("cache: table %s: %s (%d bytes) must have at least %d", of.Name, n.what, n.b.Size(), n.bytes)
		}
	}
	return nil
}

// checkResident returns an error unless the memory of a resident table is as long as its rows need, on devices that are not lost. Of several ranges it is not
// known which rows they have.
func checkResident(of *wire.Table, t *kernels.Resident, l *wire.Layout) error {
	only, _ := t.Ranges.Now()
	for d := range t.Devices {
		if l.Devices[d].Lost != "" {
			continue
		}
		local := t.LocalRows(d)
		if t.Words[d].Size() < local*buddy.WordBytes {
			return fmt.Errorf("cache: table %s: words (%d bytes) of device %d must be of %d rows", of.Name, t.Words[d].Size(), d, local)
		}
		if only < 0 {
			continue
		}
		r := t.Ranges.Of(only)
		slots, overs := r.SlotOf(local), r.OverflowOf(local, of.RowBytes)
		if r.SlotOf(0) < 0 || r.OverflowOf(0, of.RowBytes) < 0 || t.Slots[d].Size() < slots || buddy.Over(r.Target, of.RowBytes) > 0 && r.Buddy[d].Size() < overs {
			return fmt.Errorf("cache: table %s: slots (%d bytes) and overflow places (%d bytes) of device %d must be of %d rows", of.Name, t.Slots[d].Size(), r.Buddy[d].Size(), d, local)
		}
	}
	return nil
}
