package datafile

import (
	"os"
	"syscall"
	"unsafe"
)

// CanMap reports whether Map can map files on this system.
const CanMap = true

// Map maps n bytes of the file, from byte at on, for reading. The pages are the file's. They are read when they are used, must not be written,
// and stay mapped as long as the process runs. Who truncates the file meanwhile makes the process fail.
func Map(f *os.File, at, n int64) ([]byte, error) {
	into := at % int64(os.Getpagesize())
	pages, err := syscall.Mmap(int(f.Fd()), at-into, int(into+n), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, ReadError("mapping", err)
	}
	return pages[into:], nil
}

// Unload says that a part of mapped data is not used for now: its pages no longer count as memory of the process. They are read again when
// they are used.
func Unload(part []byte) {
	page := uintptr(os.Getpagesize())
	begin := uintptr(unsafe.Pointer(unsafe.SliceData(part)))
	from, to := (begin+page-1)/page*page-begin, (begin+uintptr(len(part)))/page*page-begin
	if from < to && to <= uintptr(len(part)) {
		syscall.Madvise(part[from:to], syscall.MADV_DONTNEED)
	}
}
