package experiment

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/faults"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/slab/placement"
)

// Placed is how the rows of a cache of several devices are placed.
type Placed struct {
	cache.Placement
	// Slabs are what each device's slab holds, and the share of the hits that it is expected to serve.
	Slabs []PlacedSlab `json:"slabs"`
}

// PlacedSlab is one slab's part.
type PlacedSlab struct {
	BudgetBytes  int64   `json:"budget_bytes"`
	PayloadBytes int64   `json:"payload_bytes"`
	Load         float64 `json:"load"`
}

func newPlaced(s *cache.Stats) *Placed {
	if len(s.Devices) < 2 {
		return nil
	}
	out := &Placed{Placement: s.Placement}
	for _, d := range s.Devices {
		out.Slabs = append(out.Slabs, PlacedSlab{d.BudgetBytes, d.PayloadBytes, d.Load})
	}
	return out
}

// gpus returns the GPUs that the config names, none if it does not.
func (c *Config) gpus() (list []int, err error) {
	switch {
	case c.GPUs == "":
		return nil, nil
	case c.GPUs != "all":
	case c.Device == "host":
		return nil, errors.New("--gpus all means nothing with --device host: name numbers, as many as devices to emulate")
	default:
		if err := cuda.Usable(); err != nil {
			return nil, fmt.Errorf("--gpus all: %w", err)
		}
		for i := range min(cuda.Count(), slab.MaxSlabs) {
			list = append(list, i)
		}
		return list, nil
	}
	list, ok := numbers(c.GPUs)
	if !ok {
		return nil, fmt.Errorf("--gpus (%q) must be all, or numbers of GPUs with commas between them, each once", c.GPUs)
	}
	if len(list) > slab.MaxSlabs {
		return nil, fmt.Errorf("--gpus (%d of them) must be 1 to %d", len(list), slab.MaxSlabs)
	}
	return list, nil
}

// numbers reads a list such as 0,2, of which none is negative or occurs twice.
func numbers(text string) (list []int, ok bool) {
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || n < 0 || slices.Contains(list, n) {
			return nil, false
		}
		list = append(list, n)
	}
	return list, true
}

// hostNodes returns the memory nodes that the config names, none if it does not.
func (c *Config) hostNodes() (nodes []int, err error) {
	switch c.HostNodes {
	case "":
		return nil, nil
	case "any":
		return []int{cache.AnyNode}, nil
	}
	nodes, ok := numbers(c.HostNodes)
	if !ok {
		return nil, fmt.Errorf("--host-nodes (%q) must be any, or numbers of memory nodes with commas between them, each once", c.HostNodes)
	}
	return nodes, nil
}

// rates returns the rates that the config names: in itself, or in a file.
func (c *Config) rates() (r placement.Rates, err error) {
	if c.Rates == "" {
		return r, nil
	}
	if strings.Contains(c.Rates, "=") {
		if r, err = placement.ParseRates(c.Rates); err != nil {
			err = fmt.Errorf("--rates (%q): %w", c.Rates, err)
		}
		return r, err
	}
	f, err := os.Open(c.Rates)
	if err != nil {
		return r, fmt.Errorf("--rates: %w", err)
	}
	defer f.Close()
	m, err := placement.DecodeRates(f)
	if err != nil {
		return r, fmt.Errorf("--rates (%s): %w", c.Rates, err)
	}
	return m.Rates, nil
}

func (c *Config) validateDevices(f *faults.List) {
	f.If(c.Devices < 1 || c.Devices > slab.MaxSlabs, "--devices (%d) must be 1 to %d", c.Devices, slab.MaxSlabs)
	o, err := c.spread(cache.Options{})
	f.Add(err)
	gpus := o.Devices.GPUs
	f.If(len(gpus) > 0 && c.Devices != 1 && c.Devices != len(gpus), "--devices (%d) and --gpus (%s) contradict each other", c.Devices, c.GPUs)
	f.If(!slices.Contains([]cache.PlacementMode{cache.PlacementAuto, cache.PlacementPartition, cache.PlacementReplicate}, o.Devices.Placement),
		"--placement (%q) must be %s, %s or %s", c.Placement, cache.PlacementAuto, cache.PlacementPartition, cache.PlacementReplicate)
}

// spread sets what the config says of devices.
func (c *Config) spread(o cache.Options) (cache.Options, error) {
	var err, failed, unknown error
	o.Devices.Backend, o.Devices.Count, o.Devices.Placement = cache.Backend(c.Device), c.Devices, cache.PlacementMode(c.Placement)
	if o.Devices.GPUs, err = c.gpus(); len(o.Devices.GPUs) > 0 {
		o.Devices.Count = len(o.Devices.GPUs)
	}
	o.Devices.Rates, failed = c.rates()
	o.Host.Nodes, unknown = c.hostNodes()
	return o, errors.Join(err, failed, unknown)
}
