package scratch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// mapped says that memory is of files.
const mapped = true

// mapping is memory of a file without a name.
type mapping struct{ bytes []byte }

// newMapping takes the file's space first: a page that the drive has no room for would end the process when it is written.
func newMapping(dir string, n int64) (m mapping, err error) {
	f, err := os.CreateTemp(dir, ".tensorcache-scratch-*")
	if err != nil {
		return m, fmt.Errorf("scratch: %w", err)
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return m, fmt.Errorf("scratch: %w", err)
	}
	if err = unix.Fallocate(int(f.Fd()), 0, 0, n); errors.Is(err, unix.EOPNOTSUPP) {
		err = writeZeros(f, n)
	}
	if err != nil {
		return m, fmt.Errorf("scratch: file of %d bytes in %s: %w", n, filepath.Dir(f.Name()), err)
	}
	if m.bytes, err = unix.Mmap(int(f.Fd()), 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return m, fmt.Errorf("scratch: mapping %d bytes: %w", n, err)
	}
	return m, nil
}

func writeZeros(f *os.File, n int64) error {
	zeros := make([]byte, 1<<20)
	for n > 0 {
		done, err := f.Write(zeros[:min(n, int64(len(zeros)))])
		if err != nil {
			return err
		}
		n -= int64(done)
	}
	return nil
}

func (m mapping) free() error { return unix.Munmap(m.bytes) }
