//go:build !linux

package scratch

import "unsafe"

const mapped = false

// InMemory says that all memory is ordinary memory.
func InMemory(string) bool { return true }

// mapping is memory of its own.
type mapping struct{ bytes []byte }

func newMapping(_ string, n int64) (mapping, error) {
	words := make([]uint64, (n+7)/8) // aligned for every type
	return mapping{unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), n)}, nil
}

func (m mapping) free() error { return nil }
