// Package filelock has files that only one process holds. On systems other than Unix nothing keeps a second process away.
package filelock

import "os"

// Try makes a file, unless it exists, and locks it until the returned file is closed or the process ends. It fails at once if another
// has the lock.
func Try(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, err
	}
	if err := lock(f); err != nil {
		f.Close()
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	return f, nil
}
