// Package eintr repeats system calls that a signal has interrupted. Package os does so for its own calls. Packages unix and syscall do not, and Go's runtime
// sends signals to its threads by itself.
package eintr

import (
	"errors"
	"syscall"
)

// Retry calls a function until its error is not EINTR, and returns that error. The function must be one that can be called again: no part of its work is done
// when it is interrupted, or it goes on behind that part.
func Retry(call func() error) error {
	for {
		if err := call(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
