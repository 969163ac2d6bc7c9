//go:build !linux

package numa

import "fmt"

// Alloc returns memory on the given nodes.
func Alloc(bytes int64, nodes []int) (*Memory, error) {
	return nil, fmt.Errorf("%w: memory (%d bytes) on nodes %s: Linux only", ErrRefused, bytes, List(nodes))
}

// Free unmaps the memory.
func (m *Memory) Free() error { return nil }

// Discard gives back pages.
func (m *Memory) Discard(from, to int64) {}

// Where returns on which nodes memory lies.
func Where([]byte) ([]Held, error) { return nil, fmt.Errorf("%w: Linux only", ErrRefused) }

// OwnPolicy returns the memory policy that this process was started with.
func OwnPolicy() string { return "" }
