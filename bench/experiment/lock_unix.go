//go:build unix

package experiment

import (
	"os"
	"syscall"
)

// lock keeps other processes from appending to the file until it is closed.
func lock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
