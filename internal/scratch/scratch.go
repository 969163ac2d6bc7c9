// Package scratch makes memory for arrays that are as long as a table. On Linux it is mapped from files without a name: the system writes what is not used to the
// drive when memory is short, so it does not bound how long a table can be. Elsewhere it is ordinary memory.
package scratch

import (
	"errors"
	"unsafe"
)

// Folder makes memory of files in a folder. It is not safe for concurrent use.
type Folder struct {
	dir   string
	files []mapping
}

// In returns a Folder that makes its files in dir; "" for the system's folder for temporary files.
func In(dir string) *Folder { return &Folder{dir: dir} }

// Bytes returns n zeros, which stay until Close. The drive has room for them, or it is an error.
func (f *Folder) Bytes(n int64) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	m, err := newMapping(f.dir, n)
	if err != nil {
		return nil, err
	}
	f.files = append(f.files, m)
	return m.bytes, nil
}

// Of returns memory of Bytes as n elements of an integer type.
func Of[T uint32 | uint64](f *Folder, n int64) ([]T, error) {
	b, err := f.Bytes(n * int64(unsafe.Sizeof(T(0))))
	if err != nil || n == 0 {
		return nil, err
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n), nil // it begins at a page of memory
}

// Close frees all memory. Nothing may use it any more.
func (f *Folder) Close() error {
	var faults []error
	for _, m := range f.files {
		faults = append(faults, m.free())
	}
	f.files = nil
	return errors.Join(faults...)
}
