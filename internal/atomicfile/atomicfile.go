// Package atomicfile replaces files as a whole. Whoever opens such a file finds the old contents or the new ones, also after a crash or
// on a full disk.
package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

// Write is Replace by contents that are in memory.
func Write(path string, contents []byte) error {
	return Replace(path, func(f *os.File) error {
		_, err := write(f, contents)
		return err
	})
}

// Replace replaces the contents of a file by what fill writes, or makes the file, with mode 0644. The new contents are on disk when it
// returns nil; an error leaves the old ones. A symbolic link stays, and its target is replaced. What is no regular file, such as
// /dev/stdout, is written to directly.
func Replace(path string, fill func(f *os.File) error) (err error) {
	mode := os.FileMode(0o644)
	if info, err := os.Stat(path); err == nil {
		if !info.Mode().IsRegular() {
			f, err := os.OpenFile(path, os.O_WRONLY, mode)
			if err != nil {
				return err
			}
			return errors.Join(fill(f), f.Close())
		}
		mode = info.Mode().Perm()
	}
	target := path
	if at, err := filepath.EvalSymlinks(path); err == nil {
		target = at
	}
	f, err := Temporary(target)
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			return
		}
		os.Remove(f.Name())
		if p, ok := errors.AsType[*os.PathError](err); ok && p.Path == f.Name() {
			err = naming(path, err)
		}
	}()
	if err := errors.Join(fill(f), f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), target); err != nil {
		return naming(path, err)
	}
	return SyncFolder(filepath.Dir(target))
}

// SyncFile makes the contents of a file durable. Tests of other packages count its calls, and have them take long or fail.
var SyncFile = (*os.File).Sync

// SyncFolder makes the names in a folder durable. Not every file system lets folders be synced: of those it returns no error.
func SyncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = f.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	return errors.Join(err, f.Close())
}

var write = (*os.File).Write // tests have one that fails

// Temporary returns a new hidden file beside path. Errors name path.
func Temporary(path string) (*os.File, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	return f, naming(path, err)
}

// naming has an error name the file that is meant, not the temporary one.
func naming(path string, err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return &os.PathError{Op: p.Op, Path: path, Err: p.Err}
	}
	return err
}
