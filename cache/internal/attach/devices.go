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
	ordinals, err := numbersHere(of, have)
	if err != nil {
		return nil, err
	}
	return cuda.OpenGPUs(ordinals)
}

// numbersHere returns the numbers that the owner's GPUs have in this process. It must see all of them: kernels read rows in the memory of any.
func numbersHere(of []wire.Device, have []cuda.GPU) (ordinals []int, err error) {
	for _, d := range of {
		i := slices.IndexFunc(have, func(g cuda.GPU) bool { return d.Address != "" && strings.EqualFold(g.PCIBusID, d.Address) })
		if i < 0 {
			return nil, fmt.Errorf("cache: owner's GPU (%s at %s) must be visible to this process, which sees %d: all %d GPUs of the owner must be, since rows lie on each; "+
				"choose a GPU by its number instead of CUDA_VISIBLE_DEVICES, or have an owner for each GPU", d.Name, d.Address, len(have), len(of))
		}
		ordinals = append(ordinals, have[i].Index)
	}
	return ordinals, nil
}
