package statefolder

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// check returns an error unless a folder is on a tmpfs and of this user alone.
func check(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("statefolder: folder: %w", err)
	}
	of, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(of.Uid) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("statefolder: %s (%v) must be a folder of this user (%d) alone: chmod 700", path, info.Mode(), os.Geteuid())
	}
	var on unix.Statfs_t
	if err := unix.Statfs(path, &on); err != nil {
		return fmt.Errorf("statefolder: folder (%s): %w", path, err)
	}
	if on.Type != unix.TMPFS_MAGIC {
		return fmt.Errorf("statefolder: folder (%s) must be on a tmpfs, such as /dev/shm, as its files are memory: its file system (type %#x) is another", path, on.Type)
	}
	return nil
}

// room returns how many bytes the file system of a folder has free, and in all.
func room(path string) (free, total uint64) {
	var on unix.Statfs_t
	if unix.Statfs(path, &on) == nil {
		free, total = on.Bavail*uint64(on.Bsize), on.Blocks*uint64(on.Bsize)
	}
	return free, total
}

// Room returns how many bytes the tmpfs has free on which a folder is, or is to be.
func Room(path string) (free int64) {
	for {
		if _, err := os.Stat(path); err == nil || filepath.Dir(path) == path {
			free, _ := room(path)
			return int64(free)
		}
		path = filepath.Dir(path)
	}
}

// Bytes returns the memory that the files of a folder take, 0 if there is none.
func Bytes(path string) (sum int64) {
	if path == "" {
		return 0
	}
	filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil {
				sum += info.Sys().(*syscall.Stat_t).Blocks * 512
			}
		}
		return nil
	})
	return sum
}
