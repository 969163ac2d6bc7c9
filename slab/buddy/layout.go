package buddy

import (
	"fmt"

	"github.com/tensorcache/tensorcache/slab"
)

// MinTarget is the least target, in bytes. Targets are multiples of it.
const MinTarget = slab.Align

// Layout says where the rows of a resident table lie. Row r is on device r mod Devices, with local number r ÷ Devices. A device has three
// arrays with an element for each of its rows, by local number: slots of Target bytes, overflow places of Over() bytes in buddy memory, and
// 8-byte words.
type Layout struct {
	Target   int   // bytes of a slot: a multiple of 16, at most RowBytes rounded up to 16
	RowBytes int   // of a raw row, which is the longest stored form: 1 to slab.MaxRowBytes
	Rows     int64 // that the table can have
	Devices  int   // 1 to slab.MaxSlabs
}

// NewLayout returns a layout after checking its fields.
func NewLayout(target, rowBytes int, rows int64, devices int) (Layout, error) {
	l := Layout{target, rowBytes, rows, devices}
	switch {
	case rowBytes < 1 || rowBytes > slab.MaxRowBytes:
		return l, fmt.Errorf("buddy: row (%d bytes) must be 1 to %d", rowBytes, slab.MaxRowBytes)
	case target < MinTarget || target%MinTarget != 0 || target > MaxTarget(rowBytes):
		return l, fmt.Errorf("buddy: target (%d bytes) must be a multiple of %d from %d to %d, for rows of %d bytes", target, MinTarget, MinTarget, MaxTarget(rowBytes), rowBytes)
	case devices < 1 || devices > slab.MaxSlabs:
		return l, fmt.Errorf("buddy: devices (%d) must be 1 to %d", devices, slab.MaxSlabs)
	case rows < 0 || rows > slab.MaxBytes/int64(MaxTarget(rowBytes)):
		return l, fmt.Errorf("buddy: rows (%d) must be 0 to %d", rows, slab.MaxBytes/int64(MaxTarget(rowBytes)))
	}
	return l, nil
}

// Part is local numbers From to To-1 of a table whose rows there have one target.
type Part struct {
	From, To int64
	Target   int
}

// MaxTarget returns the target that holds every row of rowBytes bytes: rowBytes rounded up to 16.
func MaxTarget(rowBytes int) int { return slab.SlotBytes(rowBytes) }

// Over returns the bytes of an overflow place: 0 if slots of target bytes hold every row, else a multiple of 16.
func Over(target, rowBytes int) int { return slab.SlotBytes(max(0, rowBytes-target)) }

// Over returns the bytes of an overflow place: 0 if the slots hold every row, else a multiple of 16.
func (l Layout) Over() int { return Over(l.Target, l.RowBytes) }

// Device returns the device of a row.
func (l Layout) Device(row int64) int { return int(row % int64(l.Devices)) }

// Local returns the number of a row among those of its device.
func (l Layout) Local(row int64) int64 { return row / int64(l.Devices) }

// Row returns the row with a local number on a device.
func (l Layout) Row(device int, local int64) int64 { return local*int64(l.Devices) + int64(device) }

// LocalRows returns how many rows a device has.
func (l Layout) LocalRows(device int) int64 {
	return (l.Rows - int64(device) + int64(l.Devices) - 1) / int64(l.Devices)
}

// Slot returns the byte offset of a row's slot in the slots of its device.
func (l Layout) Slot(row int64) int64 { return l.Local(row) * int64(l.Target) }

// Overflow returns the byte offset of a row's overflow place in the buddy memory of its device.
func (l Layout) Overflow(row int64) int64 { return l.Local(row) * int64(l.Over()) }

// SlotsBytes returns the bytes of a device's slots, with the slack behind them that vector reads may touch.
func (l Layout) SlotsBytes(device int) int64 {
	return l.LocalRows(device)*int64(l.Target) + slab.TailSlack
}

// WordsBytes returns the bytes of a device's words.
func (l Layout) WordsBytes(device int) int64 { return l.LocalRows(device) * WordBytes }

// BuddyBytes returns the bytes of the buddy memory of a device's rows, with slack: 0 if the slots hold every row.
func (l Layout) BuddyBytes(device int) int64 {
	if l.Over() == 0 {
		return 0
	}
	return l.LocalRows(device)*int64(l.Over()) + slab.TailSlack
}

// DeviceBytes returns what a device's budget pays for: slots and words.
func (l Layout) DeviceBytes(device int) int64 { return l.SlotsBytes(device) + l.WordsBytes(device) }

// Split returns the parts of a row's stored form that go to its slot and to its overflow place.
func (l Layout) Split(stored []byte) (slot, overflow []byte) {
	n := min(len(stored), l.Target)
	return stored[:n], stored[n:]
}
