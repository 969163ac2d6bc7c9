// Package numa handles the memory nodes (NUMA) of this machine: it lists them, finds the node of a PCI device, allocates
// memory on nodes or elsewhere outside the Go heap, pins threads to the processors of a node, and reports how much memory is
// available. Nodes are for Linux only. On other systems, and in containers and virtual machines that hide the nodes, the topology is unknown and
// allocations on nodes fail. The package reads /sys and /proc and makes four system calls; it does not use libnuma.
//
// A node is a part of the memory and the processors near it. Linux numbers nodes from 0, with gaps. A node may have no
// memory or no processors.
//
// All functions are safe for concurrent use. A Memory must not be used during or after its Free.
package numa

import (
	"fmt"
	"strings"
)

// Unknown is returned for a device whose node the system does not report.
const Unknown = -1

// List formats nodes as "0, 2".
func List(nodes []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(nodes), " ", ", "), "[]")
}
