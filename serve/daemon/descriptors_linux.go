package daemon

import (
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// openFiles returns how many files the process may have open, and how many it has.
func openFiles() (limit, used int, known bool) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0, 0, false
	}
	open, err := os.ReadDir("/proc/self/fd")
	return int(min(l.Cur, math.MaxInt32)), len(open), err == nil
}
