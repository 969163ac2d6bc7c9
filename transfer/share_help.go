//go:build !cuda || !linux

package transfer

// helpInC returns false: this build has no workers in C.
func helpInC(*shareWork, *uint32) bool { return false }
