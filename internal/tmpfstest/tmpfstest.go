//go:build linux

// Package tmpfstest has tests keep files in memory.
package tmpfstest

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Folder returns a folder on a tmpfs, which is removed when the test ends. Where there is none the test is skipped.
func Folder(t testing.TB) string {
	t.Helper()
	folder, err := os.MkdirTemp("/dev/shm", "tensorcache-test-")
	var on unix.Statfs_t
	if err != nil || unix.Statfs(folder, &on) != nil || on.Type != unix.TMPFS_MAGIC {
		os.Remove(folder)
		t.Skipf("/dev/shm must be a tmpfs that can be written to: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	return folder
}
