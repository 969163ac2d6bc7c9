// Package bitio reads and writes bit streams, bit i being bit i mod 8 of byte i / 8, as the row codecs store them.
package bitio

import (
	"encoding/binary"
	"unsafe"
)

// Slack is the number of bytes after the last bit that a Writer may store into.
const Slack = 16

// Writer appends bits low to high. Fewer than 64 bits of pending wait for their store at next.
type Writer struct {
	dst     []byte
	next    int
	pending uint64
	fill    uint
}

// NewWriter returns a Writer whose first bit is bit start of dst. Bits of that byte below it are stored as zeros. dst
// must hold all bits and Slack bytes more.
func NewWriter(dst []byte, start int) Writer {
	return Writer{dst: dst, next: start >> 3, fill: uint(start & 7)}
}

// Put appends the low n bits of x, n ≤ 64; the bits of x above them must be zero.
func (w *Writer) Put(x uint64, n uint) {
	w.pending |= x << (w.fill & 63)
	if w.fill += n; w.fill >= 64 {
		binary.LittleEndian.PutUint64(w.dst[w.next:], w.pending)
		w.next += 8
		w.fill -= 64
		w.pending = x >> (n - w.fill) // the bits of x that did not fit; 64 shifts to zero
	}
}

// Finish stores what is pending, zero-padded to a byte, and returns the bytes of dst up to its end.
func (w *Writer) Finish() int {
	binary.LittleEndian.PutUint64(w.dst[w.next:], w.pending)
	return w.next + int(w.fill+7)/8
}

// Load reads 8 bytes at p + i, which the caller knows to be there.
func Load(p *byte, i int) uint64 {
	return binary.LittleEndian.Uint64((*[8]byte)(unsafe.Add(unsafe.Pointer(p), i))[:])
}

// Store writes 8 bytes at p + i, which the caller knows to be there.
func Store(p *byte, i int, x uint64) {
	binary.LittleEndian.PutUint64((*[8]byte)(unsafe.Add(unsafe.Pointer(p), i))[:], x)
}

// Window returns 64 bits of src from bit pos on, zeros beyond its end.
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

// PutTail stores the low bytes of x, as many as dst has.
func PutTail(dst []byte, x uint64) {
	for i := range dst {
		dst[i] = byte(x >> (8 * i))
	}
}

// Group returns the eight bytes of b from byte 8·g on, zero beyond its end.
func Group(b []byte, g int) uint64 {
	b = b[8*g:]
	if len(b) >= 8 {
		return binary.LittleEndian.Uint64(b)
	}
	var last [8]byte
	copy(last[:], b)
	return binary.LittleEndian.Uint64(last[:])
}
