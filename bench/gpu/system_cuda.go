//go:build cuda && linux

package gpu

import (
	"os"
	"os/exec"
	"strings"
)

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
