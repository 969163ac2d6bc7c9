//go:build cuda && linux

package gpu

import (
	"errors"
	"os"
	"os/exec"
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
