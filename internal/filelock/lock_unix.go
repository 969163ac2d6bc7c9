//go:build unix

package filelock

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/tensorcache/tensorcache/internal/eintr"
)

// Lock locks an open file until it is closed or the process ends. It fails at once, with an error that wraps EWOULDBLOCK, if another has the lock.
func Lock(f *os.File) error {
	return eintr.Retry(func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
}
