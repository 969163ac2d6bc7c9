package gpu

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

var memAvailable = regexp.MustCompile(`(?m)^MemAvailable: +(\d+) kB$`)

// available reads /proc/meminfo.
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

// groupLeft is what a control group's limit leaves; "max" is none.
func groupLeft(limit, used string) int64 {
	l, err1 := strconv.ParseInt(strings.TrimSpace(limit), 10, 64)
	u, err2 := strconv.ParseInt(strings.TrimSpace(used), 10, 64)
	if errors.Join(err1, err2) != nil {
		return math.MaxInt64
	}
	return max(0, l-u)
}

var kernelModule = regexp.MustCompile(`(?m)^NVRM version:.*? (\d+(?:\.\d+)+)\b`)

// moduleVersion reads /proc/driver/nvidia/version.
func moduleVersion(s string) string {
	if m := kernelModule.FindStringSubmatch(s); m != nil {
		return m[1]
	}
	return ""
}
