package gpu

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// hostMemory returns the bytes of memory that the host can still give: what Linux counts as available, or what is left to
// the control group where that is less.
func hostMemory() (int64, error) {
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

// driverVersion returns the version of the kernel's NVIDIA driver, or "unknown".
func driverVersion() string {
	if b, err := os.ReadFile("/sys/module/nvidia/version"); err == nil {
		return strings.TrimSpace(string(b))
	}
	if b, err := os.ReadFile("/proc/driver/nvidia/version"); err == nil {
		if v := moduleVersion(string(b)); v != "" {
			return v
		}
	}
	// Containers may see neither file.
	if b, err := exec.Command("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0").Output(); err == nil {
		return strings.TrimSpace(string(b))
	}
	return "unknown"
}

var kernelModule = regexp.MustCompile(`(?m)^NVRM version:.*? (\d+(?:\.\d+)+)\b`)

// moduleVersion reads /proc/driver/nvidia/version.
func moduleVersion(s string) string {
	if m := kernelModule.FindStringSubmatch(s); m != nil {
		return m[1]
	}
	return ""
}
