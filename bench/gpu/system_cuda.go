//go:build cuda && linux

package gpu

import (
	"os"
	"os/exec"
	"strings"
)

// driverVersion returns the version of the kernel's NVIDIA driver, or "unknown". Containers may not see the file.
func driverVersion() string {
	b, err := os.ReadFile("/sys/module/nvidia/version")
	if err != nil {
		b, err = exec.Command("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0").Output()
	}
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(b))
}
