package cluster

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// openDirect opens a file that is read and written past the system's page cache, or through it on file systems that cannot do so.
func openDirect(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_DIRECT, 0o600)
	if errors.Is(err, unix.EINVAL) {
		return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	}
	return f, err
}
