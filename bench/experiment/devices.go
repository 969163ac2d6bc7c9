package experiment

import (
	"errors"
	"slices"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/faults"
	"github.com/tensorcache/tensorcache/internal/setting"
	"github.com/tensorcache/tensorcache/slab"
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
	if o.Devices.GPUs, err = setting.GPUs(c.GPUs, c.Device); len(o.Devices.GPUs) > 0 {
		o.Devices.Count = len(o.Devices.GPUs)
	}
	o.Devices.Rates, failed = setting.Rates(c.Rates)
	o.Host.Nodes, unknown = setting.HostNodes(c.HostNodes)
	return o, errors.Join(err, failed, unknown)
}
