package npy

import (
	"archive/zip"
	"hash/crc32"
	"os"
	"syscall"
	"unsafe"
)

// Maps reports whether Map returns the data.
func (r *Reader) Maps() bool {
	_, ok := r.file.(*os.File)
	return ok && r.at != nil && (!r.head.fortran || len(r.head.shape) == 1) && (!r.head.big || r.head.dtype.Size() == 1)
}

// Map returns the array's data as they lie in the file, mapped into memory, or nil where they cannot be used like that: compressed,
// in Fortran order, or big-endian. A stored member's CRC is checked by going through it once.
//
// The pages are the file's. They are read when they are used, must not be written, and stay mapped as long as the process runs. Who
// truncates the file meanwhile makes the process fail.
func (r *Reader) Map() ([]byte, error) {
	if !r.Maps() {
		return nil, nil
	}
	begin := r.begin - r.head.bytes // of the array in the file
	into := begin % int64(os.Getpagesize())
	size := int(into + r.head.bytes + r.dataBytes())
	pages, err := syscall.Mmap(int(r.file.(*os.File).Fd()), begin-into, size, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, inFile(r.name, readError("mapping", err))
	}
	if r.member != nil {
		if crc32.ChecksumIEEE(pages[into:]) != r.member.CRC32 {
			syscall.Munmap(pages)
			return nil, inFile(r.name, readError("mapping", zip.ErrChecksum))
		}
		syscall.Madvise(pages, syscall.MADV_DONTNEED) // what is needed is read again
	}
	return pages[into+r.head.bytes:], nil
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
