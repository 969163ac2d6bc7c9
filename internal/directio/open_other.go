//go:build !linux

package directio

import "os"

// Open is os.OpenFile: files go through the page cache, and direct is false, because past it is for Linux only.
func Open(path string, flag int, mode os.FileMode) (f *os.File, direct bool, err error) {
	f, err = os.OpenFile(path, flag, mode)
	return f, false, err
}
