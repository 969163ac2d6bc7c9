// Package directio opens files that are read and written past the system's page cache, and has memory for that.
package directio

import "unsafe"

// Block is what lengths and offsets of direct reads and writes are multiples of, and addresses of their memory.
const Block = 4096

// Blocks returns how many blocks n bytes take.
func Blocks(n int) int { return (n + Block - 1) / Block }

// Aligned returns n bytes that begin at a multiple of Block.
func Aligned(n int) []byte {
	b := make([]byte, n+Block)
	from := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (Block - 1))
	return b[from:][:n:n]
}

// IsAligned reports whether b begins at a multiple of Block.
func IsAligned(b []byte) bool { return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%Block == 0 }
