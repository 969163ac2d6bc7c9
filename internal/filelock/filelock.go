// Package filelock has files that only one process holds. On systems other than Unix nothing keeps a second process away.
package filelock

import (
	"errors"
	"os"
)

// Held reports whether an error of Try says that another has the lock, and not that the file cannot be made.
func Held(err error) bool {
	e, ok := errors.AsType[*os.PathError](err)
	return ok && e.Op == lockOp
}

const lockOp = "lock"

// Try makes a file, unless it exists, and locks it until the returned file is closed or the process ends. It fails at once if another
// has the lock. Who has the lock may remove the file.
func Try(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o666)
		if err != nil {
			return nil, err
		}
		if err := Lock(f); err != nil {
			f.Close()
			return nil, &os.PathError{Op: lockOp, Path: path, Err: err}
		}
		// If the file was removed between opening and locking, the lock keeps nobody away.
		now, err := os.Stat(path)
		if locked, failed := f.Stat(); err == nil && failed == nil && os.SameFile(now, locked) {
			return f, nil
		}
		f.Close()
	}
}
