//go:build !linux

package numa

import "fmt"

// Alloc returns zeroed memory outside the Go heap. On nodes, Linux alone allocates.
func Alloc(bytes int64, nodes []int) (*Memory, error) {
	if len(nodes) > 0 {
		return nil, fmt.Errorf("%w: memory (%d bytes) on nodes %s: Linux only", ErrRefused, bytes, List(nodes))
	}
	return mapMemory(bytes)
}

// Where returns on which nodes memory lies.
func Where([]byte) ([]Held, error) { return nil, fmt.Errorf("%w: Linux only", ErrRefused) }

// OwnPolicy returns the memory policy that this process was started with.
func OwnPolicy() string { return "" }

// Resident returns the process's resident memory. Linux alone can say.
func Resident() (now, most int64, err error) { return 0, 0, fmt.Errorf("%w: Linux only", ErrRefused) }

// Adoptable returns nil for memory that can be changed and page-locked unseen. Linux alone can say.
func Adoptable([]byte) error { return fmt.Errorf("%w: memory of the caller's: Linux only", ErrRefused) }
