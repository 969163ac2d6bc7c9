package kernels

import (
	"sync/atomic"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/slab"
)

// HostRows is a table's host tier as kernels see it.
type HostRows struct {
	// Mem is the rows' memory. Behind a compressed row's stored bytes, slab.TailSlack bytes can be read, here or up to the end of the page.
	Mem device.Buffer
	// Stride is the distance of rows in place, in bytes; 0 when they are packed.
	Stride int64
	// Compressed has a bit per row in place, LSB first in 64-bit words, set where the row is compressed; empty when no
	// row is.
	Compressed device.Buffer
	// Index has a slab.Location per packed row, with slab ID 0. Words that are no locations are of rows that the tier does not hold: see Absent.
	Index device.Buffer
	// RowBytes is the length of a row.
	RowBytes int
	// Ahead is the number of bytes of a compressed row in place to read before its length is known: about the mean stored length.
	Ahead int
	// Common is the number of bytes of a row that the host's processors gather when they help with misses: few rows are longer, and the
	// device reads the rest of those itself. 0 is whole rows.
	Common int
	// ReadAhead, if not nil, is where rows lie that were read ahead. It needs a tier that holds a part of its rows.
	ReadAhead *Ahead
}

// at returns the location of a packed row; it is not valid if the tier does not hold the row.
func (h *HostRows) at(row int64) slab.Location {
	return slab.Location(atomic.LoadUint64(&view[uint64](h.Index)[row]))
}

// offset returns where a row's stored bytes begin in Mem, 0 if the tier does not hold the row.
func (h *HostRows) offset(row int64) int64 {
	if h.Stride != 0 {
		return row * h.Stride
	}
	if l := h.at(row); l.Valid() {
		return l.Offset()
	}
	return 0
}

// Stored returns a row's stored bytes and whether they are compressed. A compressed row in place may be followed by
// stale bytes: its codec knows its length. Bits and index are loaded atomically: those of other rows may change. Of a row that the tier does not
// hold, the stored bytes are nil.
func (h *HostRows) Stored(row int64) (stored []byte, compressed bool) {
	mem := h.Mem.Bytes()
	if h.Stride != 0 {
		if bits := view[uint64](h.Compressed); len(bits) != 0 {
			compressed = atomic.LoadUint64(&bits[row>>6])>>(row&63)&1 != 0
		}
		return mem[row*h.Stride:][:h.RowBytes], compressed
	}
	l := h.at(row)
	if !l.Valid() {
		return nil, false
	}
	return mem[l.Offset():][:l.Stored(h.RowBytes)], l.Compressed()
}

// read writes a row. It returns the row's stored length, and whether it decodes; isAbsent and false if the tier does not hold the row.
func (h *HostRows) read(c codec.Codec, row int64, to []byte) (n int, ok bool) {
	if h.Stride != 0 {
		stored, compressed := h.Stored(row)
		return restore(c, to, stored, compressed)
	}
	l := h.at(row)
	if !l.Valid() {
		return isAbsent, false
	}
	if h.ReadAhead != nil {
		h.ReadAhead.use(row, l.Offset())
	}
	stored := h.Mem.Bytes()[l.Offset():][:l.Stored(h.RowBytes)]
	n, ok = restore(c, to, stored, l.Compressed())
	return n, ok && n == len(stored)
}

// readSlot writes the row of the slot at l, and reports whether it decodes.
func readSlot(c codec.Codec, slabs []device.Buffer, l slab.Location, row []byte) bool {
	n := l.Stored(len(row))
	got, ok := restore(c, row, slabs[l.Slab()].Bytes()[l.Offset():][:n], l.Compressed())
	// No encoder keeps a row compressed that does not shrink.
	return ok && got == n && (!l.Compressed() || n < len(row))
}

// restore writes a row from its stored bytes and returns how many of them it took.
func restore(c codec.Codec, row, stored []byte, compressed bool) (n int, ok bool) {
	if !compressed {
		return copy(row, stored), true
	}
	if c == nil {
		return 0, false
	}
	n, err := c.Decode(row, stored)
	return n, err == nil
}

func (h *HostRows) args() abi.HostTier {
	return abi.HostTier{Mem: h.Mem.Addr(), Bytes: h.Mem.Size(), Stride: h.Stride, Compressed: h.Compressed.Addr(), Index: h.Index.Addr()}
}
