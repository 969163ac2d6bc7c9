package scratch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/tensorcache/tensorcache/internal/eintr"
)

// mapped says that memory is of files.
const mapped = true

// InMemory says whether files of a folder lie in memory themselves, as those of a tmpfs do. Memory of In(dir) then takes as much of the machine's.
func InMemory(dir string) bool {
	if dir == "" {
		dir = os.TempDir()
	}
	var fs unix.Statfs_t
	err := eintr.Retry(func() error { return unix.Statfs(dir, &fs) })
	return err == nil && (fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC)
}

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
	if err = reserve(f, n); errors.Is(err, unix.EOPNOTSUPP) {
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

// reservePart is how many bytes a call reserves once a signal has interrupted one of all bytes. In memory (tmpfs) an interrupted call gives back what it had
// reserved, so a call that takes longer than the time between two signals would never end.
const reservePart = 16 << 20

// fallocate is replaced by tests.
var fallocate = unix.Fallocate

// reserve takes the space of a file's first n bytes. Space that there is not fails at the first call, which is of all bytes.
func reserve(f *os.File, n int64) error {
	if err := fallocate(int(f.Fd()), 0, 0, n); !errors.Is(err, unix.EINTR) {
		return err
	}
	for at := int64(0); at < n; at += reservePart {
		if err := eintr.Retry(func() error { return fallocate(int(f.Fd()), 0, at, min(reservePart, n-at)) }); err != nil {
			return err
		}
	}
	return nil
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
