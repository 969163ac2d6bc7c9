package directio

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Open is os.OpenFile for direct reads and writes. On file systems that cannot do so the file goes through the page cache, and direct is false.
func Open(path string, flag int, mode os.FileMode) (f *os.File, direct bool, err error) {
	f, err = os.OpenFile(path, flag|unix.O_DIRECT, mode)
	if errors.Is(err, unix.EINVAL) {
		f, err = os.OpenFile(path, flag, mode)
		return f, false, err
	}
	return f, err == nil, err
}
