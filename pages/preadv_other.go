//go:build !linux

package pages

import (
	"errors"
	"io"
	"os"
)

// preadv reads into the buffers, one after the other, and returns how many bytes it has read; 0 without an error is the end of the file.
func preadv(f *os.File, offset int64, into [][]byte) (n int, err error) {
	for _, b := range into {
		m, err := f.ReadAt(b, offset+int64(n))
		n += m
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}
