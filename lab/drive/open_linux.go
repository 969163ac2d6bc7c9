package drive

import (
	"errors"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// open opens a file for reads past the page cache, or through it where the file system cannot.
func open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0)
	if errors.Is(err, unix.EINVAL) {
		return os.Open(path)
	}
	return f, err
}

// processorTime is what the process has taken so far, in user mode and in the kernel.
func processorTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// aligned returns n bytes that direct reads can fill.
func aligned(n int) []byte {
	const block = 4096
	b := make([]byte, n+block)
	return b[-uintptr(unsafe.Pointer(unsafe.SliceData(b)))&(block-1):][:n]
}
