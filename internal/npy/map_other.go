//go:build !linux

package npy

// Map returns nil: data are not mapped on this system.
func (r *Reader) Map() ([]byte, error) { return nil, nil }
