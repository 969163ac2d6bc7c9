//go:build !cuda || !linux

package transfer

// helpInC does what a worker does while it is to look for work, if there is C.
func helpInC(*shareWork, *uint32) bool { return false }
