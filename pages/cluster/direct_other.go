//go:build !linux

package cluster

import "os"

// openDirect opens a file that is read and written through the system's page cache: the other way is for Linux only.
func openDirect(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
}
