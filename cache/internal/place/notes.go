package place

import (
	"encoding/binary"
	"hash/crc32"
	"sync/atomic"
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/statefolder"
	"github.com/tensorcache/tensorcache/slab"
)

// Roles of the overlay's memory in a folder.
const (
	overlayRole = "overlay"
	notesRole   = "notes"
)

// note says which row begins at a multiple of overlayAlign in the overlay. Its number is stored last, and erased first: whenever the owner is killed, a note with a number is whole, and
// so is the row. Of several notes of a row the one with the greatest number is its newest version.
//
//	word 0  number, from 1 on; 0: no row
//	word 1  key
//	word 2  [31:1] stored length  [0] compressed
//	word 3  [63:32] CRC-32C of the row  [31:0] CRC-32C of the number and of words 1 and 2, little-endian
type note struct {
	number         atomic.Uint64
	key, form, sum uint64
}

// noteBytes is the length of a note.
const noteBytes = int64(unsafe.Sizeof(note{}))

// notes are the notes of an overlay; the zero value is none. One goroutine at a time may write.
type notes struct {
	mem  device.Buffer
	all  []note
	last uint64
}

func newNotes(f *statefolder.Folder, home device.Device, overlay int64) (n notes, err error) {
	if n.mem, err = f.Alloc(home, notesRole, overlay/overlayAlign*noteBytes, "rows of the overlay"); err == nil {
		n.all = notesIn(n.mem)
	}
	return n, err
}

func notesIn(mem device.Buffer) []note {
	return unsafe.Slice((*note)(unsafe.Pointer(unsafe.SliceData(mem.Bytes()))), mem.Size()/noteBytes)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sumOf(number, key, form uint64, stored []byte) uint64 {
	var words [24]byte
	for i, w := range []uint64{number, key, form} {
		binary.LittleEndian.PutUint64(words[8*i:], w)
	}
	return uint64(crc32.Checksum(stored, castagnoli))<<32 | uint64(crc32.Checksum(words[:], castagnoli))
}

func (n *notes) write(s OverlaySlot, key uint64, stored []byte, compressed bool) {
	if n.all == nil {
		return
	}
	n.last++
	one := &n.all[s.Offset/overlayAlign]
	one.key, one.form = key, uint64(len(stored))<<1
	if compressed {
		one.form |= 1
	}
	one.sum = sumOf(n.last, one.key, one.form, stored)
	one.number.Store(n.last)
}

func (n *notes) erase(s OverlaySlot) {
	if n.all != nil {
		n.all[s.Offset/overlayAlign].number.Store(0)
	}
}

// NotedRow is the newest version of a row that an earlier owner had in its overlay.
type NotedRow struct {
	Key        uint64
	Stored     []byte
	Compressed bool
}

// Noted are the rows of an earlier owner's overlay, in memory that Free gives back.
type Noted struct {
	Rows    []NotedRow
	Damaged int // notes that do not match their rows
	// OverlayBytes is the size of that overlay.
	OverlayBytes int64

	mem, notes device.Buffer
}

// TakeNoted returns the rows of the overlay of the owner before.
func TakeNoted(f *statefolder.Folder, home device.Device) (n *Noted, err error) {
	n = &Noted{}
	if n.mem, err = f.TakeAny(home, overlayRole, "overlay"); err != nil {
		return nil, err
	}
	if n.notes, err = f.TakeAny(home, notesRole, "rows of the overlay"); err != nil {
		n.Free(home)
		return nil, err
	}
	n.OverlayBytes = n.mem.Size() - slab.TailSlack
	newest := map[uint64]int{} // row's index in n.Rows
	numbers := []uint64{}
	all := notesIn(n.notes)
	for i := range all {
		one := &all[i]
		number := one.number.Load()
		if number == 0 {
			continue
		}
		at, length := int64(i)*overlayAlign, int64(one.form>>1)
		if length > n.OverlayBytes-at || one.sum != sumOf(number, one.key, one.form, n.mem.Bytes()[at:at+length]) {
			n.Damaged++
			continue
		}
		row := NotedRow{one.key, n.mem.Bytes()[at : at+length], one.form&1 != 0}
		if before, ok := newest[one.key]; !ok {
			newest[one.key] = len(n.Rows)
			n.Rows, numbers = append(n.Rows, row), append(numbers, number)
		} else if number > numbers[before] {
			n.Rows[before], numbers[before] = row, number
		}
	}
	return n, nil
}

// Free unmaps the overlay.
func (n *Noted) Free(home device.Device) {
	if n != nil {
		home.Free(n.mem)
		home.Free(n.notes)
		*n = Noted{}
	}
}
