package attach

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/internal/wire"
)

// OpenHost opens devices of the host backend. Tests replace it.
var OpenHost = host.Open

// openDevices opens the devices of this process that are those of the owner: for a GPU, the one with the same PCI address, whatever number it has
// here.
func openDevices(of []wire.Device, workers int) ([]device.Device, error) {
	kinds := map[string]bool{}
	for _, d := range of {
		kinds[d.Kind] = true
	}
	switch {
	case len(kinds) == 1 && kinds["host"]:
		return OpenHost(len(of), workers), nil
	case len(kinds) != 1 || !kinds["cuda"]:
		return nil, fmt.Errorf("cache: owner's devices (%v) must be of the host backend, or GPUs", of)
	}
	if err := cuda.Usable(); err != nil {
		return nil, fmt.Errorf("cache: owner's devices are GPUs: %w", err)
	}
	have, err := cuda.List()
	if err != nil {
		return nil, err
	}
	var ordinals []int
	for _, d := range of {
		i := slices.IndexFunc(have, func(g cuda.GPU) bool { return d.Address != "" && strings.EqualFold(g.PCIBusID, d.Address) })
		if i < 0 {
			return nil, fmt.Errorf("cache: owner's GPU (%s at %s) must be visible to this process", d.Name, d.Address)
		}
		ordinals = append(ordinals, have[i].Index)
	}
	return cuda.OpenGPUs(ordinals)
}
