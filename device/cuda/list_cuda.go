//go:build cuda && linux

package cuda

import (
	"errors"

	"gorgonia.org/cu"

	"github.com/tensorcache/tensorcache/device/cuda/driver"
)

// List describes all GPUs, and the newest CUDA version that the driver supports, as 1000·major + 10·minor. Where none is
// usable the error says why.
func List() (gpus []GPU, driverVersion int, err error) {
	if err := Usable(); err != nil {
		return nil, 0, err
	}
	devices, err := driver.Devices()
	if err != nil {
		return nil, 0, err
	}
	for i, d := range devices {
		g := GPU{Index: i}
		var errs [6]error
		g.Name, errs[0] = d.Name()
		g.UUID, errs[1] = d.UUID()
		g.Major, g.Minor, errs[2] = d.ComputeCapability()
		g.MemoryBytes, errs[3] = d.TotalMemory()
		g.PCI, errs[4] = d.PCIBusID()
		g.Multiprocessors, errs[5] = d.Attribute(cu.MultiprocessorCount)
		if err := errors.Join(errs[:]...); err != nil {
			return nil, 0, err
		}
		for j, peer := range devices {
			if i == j {
				continue
			}
			can, err := d.CanAccessPeer(peer)
			if err != nil {
				return nil, 0, err
			}
			if can {
				g.Peers = append(g.Peers, j)
			}
		}
		gpus = append(gpus, g)
	}
	return gpus, driver.Version(), nil
}
