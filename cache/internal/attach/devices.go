package attach

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/wire"
)

// hidden stands in for a GPU of the owner that this process does not see, or that has failed. No batch runs on it. Rows that lie on one that has not failed are
// read by the GPUs that the process sees.
type hidden struct {
	device.Device // of the host backend
	info          device.Info
}

// Info implements device.Device.
func (h *hidden) Info() device.Info { return h.info }

// errHidden is why no batch runs on a hidden GPU.
var errHidden = errors.New("this process does not see the GPU")

// openDevices opens the devices of this process that are those of the owner: for a GPU, the one with the same PCI address, whatever number it has
// here, or a hidden one. Those that the owner has lost are hidden: they might not open.
func openDevices(of []wire.Device, lost []bool, workers int, openHost func(n, workers int) []device.Device) ([]device.Device, error) {
	kinds := map[string]bool{}
	for _, d := range of {
		kinds[d.Kind] = true
	}
	switch {
	case len(kinds) == 1 && kinds["host"]:
		return openHost(len(of), workers), nil
	case len(kinds) != 1 || !kinds["cuda"]:
		return nil, fmt.Errorf("cache: owner's devices (%v) must be of the host backend, or GPUs", of)
	}
	if err := cuda.Usable(); err != nil {
		return nil, fmt.Errorf("cache: owner's devices are GPUs: %w", err)
	}
	have, err := cuda.Seen()
	if err != nil {
		return nil, err
	}
	numbers, err := numbersHere(of, lost, have)
	if err != nil {
		return nil, err
	}
	seen, err := cuda.OpenGPUs(slices.DeleteFunc(slices.Clone(numbers), func(n int) bool { return n < 0 }))
	if err != nil {
		return nil, err
	}
	devices := make([]device.Device, len(of))
	for i, n := range numbers {
		if n >= 0 {
			devices[i], seen = seen[0], seen[1:]
		} else {
			devices[i] = &hidden{openHost(1, 1)[0], device.Info{Kind: of[i].Kind, Name: of[i].Name, Index: -1, Address: of[i].Address}}
		}
	}
	return devices, nil
}

// numbersHere returns the numbers that the owner's GPUs have in this process, -1 for those that it does not see, and those that are lost.
func numbersHere(of []wire.Device, lost []bool, have []cuda.GPU) (numbers []int, err error) {
	seen := false
	for k, d := range of {
		if lost[k] {
			numbers = append(numbers, -1)
			continue
		}
		i := slices.IndexFunc(have, func(g cuda.GPU) bool { return d.Address != "" && strings.EqualFold(g.PCIBusID, d.Address) })
		if i < 0 {
			numbers = append(numbers, -1)
			continue
		}
		numbers, seen = append(numbers, have[i].Index), true
	}
	if !seen {
		return nil, fmt.Errorf("cache: owner's GPUs (%v) must not all be out of sight of this process, which sees %d others, or lost: see CUDA_VISIBLE_DEVICES, or have an owner for each GPU",
			of, len(have))
	}
	return numbers, nil
}
