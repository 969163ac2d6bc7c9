//go:build !unix

package numa

import "fmt"

func mapMemory(bytes int64) (*Memory, error) {
	return nil, fmt.Errorf("%w: memory (%d bytes) outside the Go heap: Unix only", ErrRefused, bytes)
}

func unmap([]byte) error { return nil }

// Discard gives back pages.
func (m *Memory) Discard(from, to int64) {}
