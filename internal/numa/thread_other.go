//go:build !linux

package numa

import "fmt"

// KeepThread keeps the calling thread to some processors.
func KeepThread([]int, int) (int, error) { return 0, fmt.Errorf("%w: Linux only", ErrRefused) }
