// Package bitio reads and writes the bit streams of the row codecs. Bit i of a stream is bit i mod 8 of byte i / 8.
package bitio

import (
	"encoding/binary"
	"unsafe"
)

// Slack is the number of bytes after the stream that a Writer may overwrite.
const Slack = 16

// Writer appends bits, low to high. It buffers fewer than 64 of them.
type Writer struct {
	dst     []byte
	next    int    // offset in dst of the next store
	pending uint64 // bits not yet stored
	fill    uint   // number of them
}

// NewWriter returns a Writer that starts at bit start of dst. It clears the bits below start in the same byte. dst must hold
// the stream and Slack more bytes.
func NewWriter(dst []byte, start int) Writer {
	return Writer{dst: dst, next: start >> 3, fill: uint(start & 7)}
}

// Put appends the low n bits of x, n ≤ 64. The other bits of x must be zero.
func (w *Writer) Put(x uint64, n uint) {
	w.pending |= x << (w.fill & 63)
	if w.fill += n; w.fill >= 64 {
		binary.LittleEndian.PutUint64(w.dst[w.next:], w.pending)
		w.next += 8
		w.fill -= 64
		w.pending = x >> (n - w.fill) // the bits of x that did not fit; a shift by 64 gives 0
	}
}

// Finish stores the buffered bits, padded with zeros to a byte, and returns the offset of the stream's end in dst.
func (w *Writer) Finish() int {
	binary.LittleEndian.PutUint64(w.dst[w.next:], w.pending)
	return w.next + int(w.fill+7)/8
}

// Load reads 8 bytes at p + i without a bounds check.
func Load(p *byte, i int) uint64 {
	return binary.LittleEndian.Uint64((*[8]byte)(unsafe.Add(unsafe.Pointer(p), i))[:])
}

// Store writes 8 bytes at p + i without a bounds check.
func Store(p *byte, i int, x uint64) {
	binary.LittleEndian.PutUint64((*[8]byte)(unsafe.Add(unsafe.Pointer(p), i))[:], x)
}

// Window returns 64 bits of src from bit pos on. Bits beyond its end are zeros.
func Window(src []byte, pos int) uint64 {
	i, shift := pos>>3, uint(pos&7)
	if i+9 <= len(src) {
		b := src[i : i+9]
		return binary.LittleEndian.Uint64(b)>>shift | uint64(b[8])<<1<<(63-shift)
	}
	return windowAtEnd(src, i, shift)
}

func windowAtEnd(src []byte, i int, shift uint) uint64 {
	var b [9]byte
	if i < len(src) {
		copy(b[:], src[i:])
	}
	return binary.LittleEndian.Uint64(b[:])>>shift | uint64(b[8])<<1<<(63-shift)
}

// PutTail stores the low len(dst) bytes of x.
func PutTail(dst []byte, x uint64) {
	for i := range dst {
		dst[i] = byte(x >> (8 * i))
	}
}

// Group returns the eight bytes of b from byte 8·g on. Bytes beyond its end are zeros.
func Group(b []byte, g int) uint64 {
	b = b[8*g:]
	if len(b) >= 8 {
		return binary.LittleEndian.Uint64(b)
	}
	var last [8]byte
	copy(last[:], b)
	return binary.LittleEndian.Uint64(last[:])
}
