package place

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/internal/numa"
)

// AnyNode, alone, leaves the placement of host memory and threads to the system.
const AnyNode = -1

// HostNodes are the memory nodes (NUMA) of a cache's host memory and threads.
type HostNodes struct {
	Tier    []int   // for the host tier and the overlay; empty for any
	Why     string  // reason of the choice
	Devices []int   // node of each device, or numa.Unknown
	CPUs    [][]int // processors near each device; empty for any
	Refused bool    // the system refused to place memory on nodes
	near    []int   // for each device, the node for memory that only it reads, or numa.Unknown
}

// ChooseNodes chooses the nodes of the host memory: those in asked, if there are any. sysRoot is the root of the system's files. If the
// system reports no nodes, the machine counts as one node. problem says what is wrong with asked, or is "".
func ChooseNodes(sysRoot string, devices []*read.Device, asked []int, log *slog.Logger) (h *HostNodes, problem string) {
	h = &HostNodes{}
	for range devices {
		h.Devices, h.near, h.CPUs = append(h.Devices, numa.Unknown), append(h.near, numa.Unknown), append(h.CPUs, nil)
	}
	machine, err := numa.Read(sysRoot)
	if err != nil {
		log.Warn("memory nodes not known", slog.Any("error", err))
	}
	for i, d := range devices {
		if h.Devices[i], err = numa.PCINode(sysRoot, d.Device.Info().Address); err != nil {
			log.Warn("memory node of a device not known", slog.Int("device", i), slog.Any("error", err))
		}
	}
	usable := machine.Usable()
	if slices.Equal(asked, []int{AnyNode}) {
		h.Why = "as Options.Host.Nodes says"
		return h, ""
	}
	for _, n := range asked {
		if !slices.Contains(usable, n) {
			return h, fmt.Sprintf("cache: Host.Nodes (%d) must be a node whose memory this process can have: %s", n, orNone(usable))
		}
	}
	if len(asked) == 0 && len(usable) < 2 {
		return h, ""
	}
	if policy := numa.OwnPolicy(); policy != "" && len(asked) == 0 {
		h.Why = "this process has a memory policy of its own: " + policy
		return h, ""
	}
	near := make([]int, len(h.Devices))
	for i, n := range h.Devices {
		near[i] = machine.Nearest(n)
	}
	switch unknown := slices.Index(near, numa.Unknown); {
	case len(asked) > 0:
		h.Tier, h.Why = slices.Sorted(slices.Values(asked)), "as Options.Host.Nodes says"
	case unknown >= 0:
		h.Why = fmt.Sprintf("the system does not say which node device %d is near", unknown)
		return h, ""
	default:
		h.Tier, h.Why = slices.Compact(slices.Sorted(slices.Values(near))), "nearest to every device"
		if len(h.Tier) > 1 {
			h.Why = "devices are near several: pages in turns"
		}
	}
	h.near = near
	for i, n := range h.Devices {
		if node, ok := machine.Node(n); ok && len(machine.Nodes) > 1 {
			h.CPUs[i] = node.CPUs
		}
	}
	return h, ""
}

func orNone(nodes []int) string {
	if len(nodes) == 0 {
		return "the system names none"
	}
	return numa.List(nodes)
}

// Check gives up placing memory on nodes if the system refused to do so for the memory of table t.
func (h *HostNodes) Check(t *read.Table, log *slog.Logger) {
	lies := t.Tier.Nodes()
	if lies.Refused == nil {
		return
	}
	log.Warn("host memory not laid on nodes", slog.Any("nodes", h.Tier), slog.Any("error", lies.Refused))
	h.Tier, h.Why = nil, fmt.Sprint(lies.Refused)
	for i := range h.near {
		h.near[i], h.CPUs[i] = numa.Unknown, nil
	}
	h.Refused = true
}

// Near returns the node for host memory that only device i reads. It is empty for any node.
func (h *HostNodes) Near(i int) []int {
	if n := h.near[i]; n != numa.Unknown {
		return []int{n}
	}
	return nil
}
