//go:build !linux

package numa

import "fmt"

// KeepThread pins the calling thread to processors.
func KeepThread([]int, int) (int, error) { return 0, fmt.Errorf("%w: Linux only", ErrRefused) }
