//go:build !linux

package numa

// removeShared is not used: Linux alone shares memory.
const removeShared = 0

func unmapShared([]byte) error { return nil }
