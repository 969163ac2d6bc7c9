//go:build !linux

package statefolder

import "errors"

func check(string) error {
	return errors.New("statefolder: memory can outlive a process on Linux only")
}

func room(string) (free, total uint64) { return 0, 0 }

// Bytes returns the memory that the files of a folder take, 0 if there is none.
func Bytes(string) int64 { return 0 }

// Room returns how many bytes the tmpfs has free on which a folder is, or is to be.
func Room(string) int64 { return 0 }
