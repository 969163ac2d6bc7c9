//go:build unix && !linux

package numa

import "golang.org/x/sys/unix"

// removeShared is not used: Linux alone shares memory.
const removeShared = unix.MADV_DONTNEED
