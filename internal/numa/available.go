package numa

import (
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// Available returns the bytes of memory that can still be allocated: MemAvailable of Linux, or the rest of the control
// group's limit if that is less.
func Available() (int64, error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	free, err := available(string(b))
	if err != nil {
		return 0, err
	}
	limit, err1 := os.ReadFile("/sys/fs/cgroup/memory.max")
	used, err2 := os.ReadFile("/sys/fs/cgroup/memory.current")
	if errors.Join(err1, err2) == nil {
		free = min(free, groupLeft(string(limit), string(used)))
	}
	return free, nil
}

var memAvailable = regexp.MustCompile(`(?m)^MemAvailable: +(\d+) kB$`)

// available parses /proc/meminfo.
func available(meminfo string) (int64, error) {
	m := memAvailable.FindStringSubmatch(meminfo)
	if m == nil {
		return 0, errors.New("/proc/meminfo: no MemAvailable in kB")
	}
	kB, err := strconv.ParseInt(m[1], 10, 53)
	if err != nil {
		return 0, fmt.Errorf("/proc/meminfo: MemAvailable: %w", err)
	}
	return kB << 10, nil
}

// groupLeft returns the bytes left below a control group's limit. A limit of "max" means none.
func groupLeft(limit, used string) int64 {
	l, err1 := strconv.ParseInt(strings.TrimSpace(limit), 10, 64)
	u, err2 := strconv.ParseInt(strings.TrimSpace(used), 10, 64)
	if errors.Join(err1, err2) != nil {
		return math.MaxInt64
	}
	return max(0, l-u)
}
