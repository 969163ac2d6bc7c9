package cache

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/numa"
)

// AnyNode, alone in Options.HostNodes, leaves host memory and threads where the system puts them.
const AnyNode = -1

// UnknownNode stands for the node of a device where the system does not say.
const UnknownNode = numa.Unknown

// NodeBytes is how much of some memory lies on a memory node of the host.
type NodeBytes = numa.Held

// HostMemory says on which memory nodes (NUMA) of the host the host tiers lie, and why.
type HostMemory struct {
	// Nodes are those that the host tiers' pages were to be laid on in turns; empty: wherever the system puts them.
	Nodes []int `json:"nodes,omitempty"`
	// Held is what was found there when the tables had been loaded, or packed anew: exactly, or of large ones by looking at 1,024
	// pages each. Empty where Nodes is, or where the system does not say.
	Held []NodeBytes `json:"held,omitempty"`
	// Why says how the nodes were chosen, or why none were; "" on machines that are not known to have several.
	Why string `json:"why"`
}

// hostNodes is where a cache has its host memory, and its threads.
type hostNodes struct {
	tier    []int // of the host tier and the overlay; none: anywhere
	why     string
	devices []int   // the node of each device, or UnknownNode
	near    []int   // the node for what only that device reads, or UnknownNode
	cpus    [][]int // the processors of that node; none: those of any
	refused bool    // memory could not be laid there, and lies anywhere
}

// sysRoot is where the machine is read; tests have others.
var sysRoot = "/"

// validateNodes is Validate of HostNodes; whether the machine has them is known later.
func (o *Options) validateNodes(fault func(string, ...any)) {
	if slices.Equal(o.HostNodes, []int{AnyNode}) {
		return
	}
	for i, n := range o.HostNodes {
		if n < 0 {
			fault("cache: HostNodes (%d) must not be negative, but for AnyNode alone", n)
		}
		if slices.Contains(o.HostNodes[:i], n) {
			fault("cache: HostNodes (%d) must not be named twice", n)
		}
	}
}

// placeHost chooses the nodes of the host memory. What the system does not say, or says wrong, is as if there was one node.
func (c *Cache) placeHost() error {
	h := &c.nodes
	for range c.devices {
		h.devices, h.near, h.cpus = append(h.devices, UnknownNode), append(h.near, UnknownNode), append(h.cpus, nil)
	}
	log := c.telemetry.opts.Logger
	machine, err := numa.Read(sysRoot)
	if err != nil {
		log.Warn("memory nodes not known", c.logName(), slog.Any("error", err))
	}
	for i, d := range c.devices {
		if h.devices[i], err = numa.PCINode(sysRoot, d.device.Info().Address); err != nil {
			log.Warn("memory node of a device not known", c.logName(), slog.Int("device", i), slog.Any("error", err))
		}
	}
	usable := machine.Usable()
	asked := c.opts.HostNodes
	if slices.Equal(asked, []int{AnyNode}) {
		h.why = "as Options.HostNodes says"
		return nil
	}
	for _, n := range asked {
		if !slices.Contains(usable, n) {
			return &optionsError{[]string{fmt.Sprintf("cache: HostNodes (%d) must be a node whose memory this process can have: %s", n, orNone(usable))}}
		}
	}
	if len(asked) == 0 && len(usable) < 2 {
		return nil
	}
	if policy := numa.OwnPolicy(); policy != "" && len(asked) == 0 {
		h.why = "this process has a memory policy of its own: " + policy
		return nil
	}
	near := make([]int, len(h.devices))
	for i, n := range h.devices {
		near[i] = machine.Nearest(n)
	}
	switch unknown := slices.Index(near, UnknownNode); {
	case len(asked) > 0:
		h.tier, h.why = slices.Sorted(slices.Values(asked)), "as Options.HostNodes says"
	case unknown >= 0:
		h.why = fmt.Sprintf("the system does not say which node device %d is near", unknown)
		return nil
	default:
		h.tier, h.why = slices.Compact(slices.Sorted(slices.Values(near))), "nearest to every device"
		if len(h.tier) > 1 {
			h.why = "devices are near several: pages in turns"
		}
	}
	h.near = near
	for i, n := range h.devices {
		if node, ok := machine.Node(n); ok && len(machine.Nodes) > 1 {
			h.cpus[i] = node.CPUs
		}
	}
	return nil
}

func orNone(nodes []int) string {
	if len(nodes) == 0 {
		return "the system names none"
	}
	return numa.List(nodes)
}

// logNodes says in the log where the host tiers lie, once.
func (c *Cache) logNodes() {
	h := c.hostMemory()
	if h.Why == "" || c.nodes.refused { // that has been logged
		return
	}
	c.telemetry.opts.Logger.Info("host memory nodes chosen", c.logName(), slog.Any("nodes", h.Nodes), slog.Any("held", h.Held), slog.String("reason", h.Why))
}

// checkNodes leaves the host memory that is yet to be allocated where the system puts it, if a table's could not be laid elsewhere.
func (c *Cache) checkNodes(t *table) {
	lies := t.tier.Nodes()
	if lies.Refused == nil {
		return
	}
	c.telemetry.opts.Logger.Warn("host memory not laid on nodes", c.logName(), slog.Any("nodes", c.nodes.tier), slog.Any("error", lies.Refused))
	c.nodes.tier, c.nodes.why = nil, fmt.Sprint(lies.Refused)
	for i := range c.nodes.near {
		c.nodes.near[i], c.nodes.cpus[i] = UnknownNode, nil
	}
	c.nodes.refused = true
}

// hostMemory returns where the host tiers lie.
func (c *Cache) hostMemory() HostMemory {
	h := HostMemory{Nodes: slices.Clone(c.nodes.tier), Why: c.nodes.why}
	for _, t := range c.tables {
		h.Held = numa.Add(h.Held, t.tier.Nodes().Held)
	}
	return h
}

// allocNear returns page-locked memory that only this device reads and writes, on the node near it where that is known.
func (d *deviceState) allocNear(bytes int64, what string) (device.Buffer, error) {
	b, _, err := device.AllocHostOn(d.device, d.near(), bytes, what)
	return b, err
}

func (d *deviceState) near() []int {
	if n := d.cache.nodes.near[d.index]; n != UnknownNode {
		return []int{n}
	}
	return nil
}
