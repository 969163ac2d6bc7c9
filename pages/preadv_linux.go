package pages

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/tensorcache/tensorcache/internal/eintr"
)

// preadv reads into the buffers, one after the other, and returns how many bytes it has read; 0 without an error is the end of the file.
func preadv(f *os.File, offset int64, into [][]byte) (n int, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	controlErr := conn.Control(func(fd uintptr) {
		err = eintr.Retry(func() (err error) {
			n, err = unix.Preadv(int(fd), into, offset)
			return err
		})
	})
	if controlErr != nil {
		return 0, controlErr
	}
	if err != nil {
		return 0, &os.PathError{Op: "read", Path: f.Name(), Err: err}
	}
	return n, nil
}
