//go:build !linux

package npy

// Maps returns false, as Map returns nil.
func (r *Reader) Maps() bool { return false }

// Map returns nil: data are not mapped on this system.
func (r *Reader) Map() ([]byte, error) { return nil, nil }

// Unload says that a part of mapped data is not used for now.
func Unload(part []byte) {}
