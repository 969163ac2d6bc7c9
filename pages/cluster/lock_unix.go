//go:build unix

package cluster

import (
	"os"

	"golang.org/x/sys/unix"
)

// tryLock locks a file until it is closed, or the process ends. It fails at once if another has it.
func tryLock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) }
