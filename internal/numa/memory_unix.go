//go:build unix

package numa

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mapMemory maps zeroed memory of at least the given bytes, in whole pages.
func mapMemory(bytes int64) (*Memory, error) {
	page := int64(os.Getpagesize())
	b, err := unix.Mmap(-1, 0, int((bytes+page-1)/page*page), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("numa: memory (%d bytes) cannot be mapped: %w", bytes, err)
	}
	return &Memory{bytes: b, mapped: b}, nil
}

func unmap(b []byte) error { return unix.Munmap(b) }

// Discard gives back the whole pages that lie within bytes [from, to), whose content is lost. Memory of the Go heap stays.
func (m *Memory) Discard(from, to int64) {
	page := int64(os.Getpagesize())
	if from, to = (from+page-1)/page*page, to/page*page; from < to && m.mapped != nil {
		unix.Madvise(m.mapped[from:to], unix.MADV_DONTNEED)
	}
}
