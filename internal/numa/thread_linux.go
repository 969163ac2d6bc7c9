package numa

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// KeepThread keeps the calling thread to those of the given processors that it may run on, and says how many they are; fewer than
// least of them, and it is left alone, as is the process's first thread, which Go never ends. REQUIRES: the goroutine is locked to its thread and ends without unlocking it, so that Go ends
// the thread too: no other goroutine may run on it.
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
		return 0, fmt.Errorf("%w: a thread cannot be kept to %d processors: sched_setaffinity: %w", ErrRefused, kept, err)
	}
	return kept, nil
}
