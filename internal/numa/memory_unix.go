//go:build unix

package numa

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mapMemory maps zeroed memory of at least the given bytes, in whole pages.
func mapMemory(bytes int64) (*Memory, error) {
	b, err := unix.Mmap(-1, 0, int(wholePages(bytes)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("numa: memory (%d bytes) cannot be mapped: %w", bytes, err)
	}
	return &Memory{bytes: b, mapped: b}, nil
}

// wholePages returns the size of the pages that hold so many bytes.
func wholePages(bytes int64) int64 {
	page := int64(os.Getpagesize())
	return (bytes + page - 1) / page * page
}

func unmap(b []byte) error { return unix.Munmap(b) }

// Discard gives back the whole pages that lie within bytes [from, to), whose content is lost. Memory of the Go heap stays, and so does memory that
// this process may only read. Other processes that map the memory lose the pages, too.
func (m *Memory) Discard(from, to int64) {
	page := int64(os.Getpagesize())
	if from, to = (from+page-1)/page*page, to/page*page; from < to && m.mapped != nil && !m.readOnly {
		advice := unix.MADV_DONTNEED
		if m.shared {
			advice = removeShared
		}
		unix.Madvise(m.mapped[from:to], advice)
	}
}
