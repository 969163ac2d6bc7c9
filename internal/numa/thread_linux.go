package numa

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// KeepThread pins the calling thread to those of the given processors that it may run on, and returns their number. If they
// are fewer than least, or the thread is the process's first, which Go never ends, it changes nothing and returns 0.
// REQUIRES: the goroutine is locked to its thread and ends without unlocking it. Go then ends the thread, and no other
// goroutine runs on it.
func KeepThread(cpus []int, least int) (kept int, err error) {
	if unix.Gettid() == unix.Getpid() {
		return 0, nil
	}
	var may, set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return 0, fmt.Errorf("%w: processors of a thread: sched_getaffinity: %w", ErrRefused, err)
	}
	for _, c := range cpus {
		if may.IsSet(c) {
			set.Set(c)
			kept++
		}
	}
	if kept == 0 || kept < least {
		return 0, nil
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return 0, fmt.Errorf("%w: a thread cannot be pinned to %d processors: sched_setaffinity: %w", ErrRefused, kept, err)
	}
	return kept, nil
}
