package kernels

import (
	"sync"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/reduce"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// Resident is a resident table as a device's kernels read it: docs/format/buddy.md. The arrays are by device: rows whose slots and words are in
// another device's memory are read there. Buddy is page-locked host memory, or another device's; it is empty where the slots hold every row.
//
// Of the counters of a batch, Hits counts all rows within the table, Peers those on other devices, HostBytes the bytes read from overflow places,
// and Reasons[slab.Oversize] the rows that have some there; Misses is 0.
type Resident struct {
	buddy.Layout
	Slots, Words, Buddy [slab.MaxSlabs]device.Buffer
	// Ranges, unless nil, have the targets and the buddy memory, in place of Target and Buddy. Directory is RangesBytes of device memory for the
	// ranges as GPUs read them (Ranges.Image).
	Ranges    *Ranges
	Directory device.Buffer
	// Kernel picks a GPU's kernel for measurements.
	Kernel ResidentKernel
}

// ResidentKernel says by which kernel a GPU reads rows of a resident table. Where there is no such kernel for the rows, it is the usual one.
type ResidentKernel uint8

const (
	// UsualKernel is the one that batches take.
	UsualKernel ResidentKernel = iota
	// WideKernel decodes a row of more than 512 bytes by a block with a lane for each 16 bytes, DoubleKernel one of up to 1024 bytes by a warp with two of
	// them a lane.
	WideKernel
	DoubleKernel
)

// residentHost is what the host execution reads of a Resident.
type residentHost struct {
	slots [slab.MaxSlabs][]byte
	words [slab.MaxSlabs][]uint64
	whole Range // of all rows, if the table has no ranges
}

func (h *residentHost) read(r *Resident) {
	for d := range r.Devices {
		h.slots[d], h.words[d] = r.Slots[d].Bytes(), view[uint64](r.Words[d])
	}
	h.whole = Range{Target: r.Target, Buddy: r.Buddy}
}

// rangeOf returns the range of a row that lies in its slot and overflow place, nil if there is no such.
func (k *Serve) rangeOf(w buddy.Word) *Range {
	if all := k.Resident.Ranges; all != nil {
		return all.Of(w.Range())
	}
	return &k.host.resident.whole
}

// word returns the word of a row within the table.
func (k *Serve) word(row int64) buddy.Word {
	r := k.Resident
	return buddy.Word(atomic.LoadUint64(&k.host.resident.words[r.Device(row)][r.Local(row)]))
}

// places returns the slot and the overflow place of a row within the table that its word says lies there, as far as they hold its stored form. The
// result is nil if no row has such a word.
func (k *Serve) places(row int64, w buddy.Word) (slot, overflow []byte) {
	r, of, n := k.Resident, k.rangeOf(w), w.Stored(k.Resident.RowBytes)
	if of == nil || n > r.RowBytes {
		return nil, nil
	}
	d, local := r.Device(row), r.Local(row)
	slot = k.host.resident.slots[d][of.SlotOf(local):][:min(n, of.Target)]
	if n > of.Target {
		overflow = of.Buddy[d].Bytes()[of.OverflowOf(local, r.RowBytes):][:n-of.Target]
	}
	return slot, overflow
}

// lookAheadResident loads the words of rows, some of which may be out of range, and asks for the memory of their slots and overflow places.
func (k *Serve) lookAheadResident(rows func(j int) int64, words []buddy.Word) {
	for j := range words {
		if row := rows(j); uint64(row) < uint64(k.Lookup.Limit) {
			words[j] = k.word(row)
		}
	}
	for j, w := range words {
		if row := rows(j); uint64(row) < uint64(k.Lookup.Limit) && w.IsHome() {
			slot, overflow := k.places(row, w)
			reduce.Prefetch(slot)
			reduce.Prefetch(overflow)
		}
	}
}

// joined is memory for a stored form whose parts lie apart.
var joined = sync.Pool{New: func() any { return new([]byte) }}

// readResident writes a row within the table to out, from where its word says, and counts it. It reports whether the row decodes.
func (k *Serve) readResident(row int64, w buddy.Word, out []byte, done *Counters) bool {
	done.Hits++
	if !w.IsHome() {
		done.Peers += k.Lookup.peer(w.Location())
		return readSlot(k.Codec.Codec, k.Slabs, w.Location(), out)
	}
	n := w.Stored(len(out))
	slot, overflow := k.places(row, w)
	done.Peers += uint32(k.Lookup.Peers) >> k.Resident.Device(row) & 1
	if slot == nil || w.IsCompressed() && n >= len(out) { // no encoder keeps a row compressed that does not shrink
		return false
	}
	if len(overflow) > 0 {
		done.Reasons[slab.Oversize]++
		done.HostBytes += uint64(len(overflow))
	}
	if !w.IsCompressed() {
		copy(out[copy(out, slot):], overflow)
		return true
	}
	stored := slot
	if len(overflow) > 0 {
		buf := joined.Get().(*[]byte)
		defer joined.Put(buf)
		*buf = append(append((*buf)[:0], slot...), overflow...)
		stored = *buf
	}
	got, ok := restore(k.Codec.Codec, out, stored, true)
	return ok && got == n
}

// rangeResident is Range for a resident table.
func (k *Serve) rangeResident(from, to int) {
	var done Counters
	var words [serveAhead]buddy.Word
	rowBytes := k.Lookup.RowBytes
	for ; from < to; from += serveAhead {
		n := min(serveAhead, to-from)
		k.lookAheadResident(func(j int) int64 { return k.host.rows.at(from + j) }, words[:n])
		for j, w := range words[:n] {
			row, out := k.host.rows.at(from+j), k.host.out[(from+j)*rowBytes:][:rowBytes]
			if uint64(row) >= uint64(k.Lookup.Limit) {
				clear(out)
				k.host.count.outOfRange(uint32(from + j))
			} else if !k.readResident(row, w, out, &done) {
				k.host.count.corrupt(uint32(from + j))
			}
		}
	}
	k.host.count.addPart(&done)
}
