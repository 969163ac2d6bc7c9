//go:build !linux

package datafile

import (
	"errors"
	"os"
)

// CanMap reports whether Map can map files on this system.
const CanMap = false

// Map returns an error: data are not mapped on this system.
func Map(*os.File, int64, int64) ([]byte, error) { return nil, errors.ErrUnsupported }

// Unload says that a part of mapped data is not used for now.
func Unload(part []byte) {}
