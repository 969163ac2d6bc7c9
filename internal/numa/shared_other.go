//go:build !linux

package numa

import "os"

// removeShared is not used: Linux alone shares memory.
const removeShared = 0

func unmapShared([]byte) error { return nil }

// Named is for Linux only.
func Named(string, int64) (*os.File, bool, error) { return nil, false, ErrRefused }

// Reserve is for Linux only.
func Reserve(*os.File, int64) error { return ErrRefused }
