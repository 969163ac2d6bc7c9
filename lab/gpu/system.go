package gpu

import (
	"os"
	"os/exec"
	"strings"

	"github.com/tensorcache/tensorcache/device/cuda"
)

// Machine is where something ran.
type Machine struct {
	Device string `json:"device"` // the first GPU's name
	Driver string `json:"driver"`
	GPUs   int    `json:"gpus"`
}

// ThisMachine returns what this machine has.
func ThisMachine() (m Machine, err error) {
	devices, err := cuda.Open(1)
	if err != nil {
		return m, err
	}
	return Machine{devices[0].Info().Name, driverVersion(), cuda.Count()}, devices[0].Close()
}

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
