// Package numatest makes folders that read like a machine of several memory nodes, for tests.
package numatest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Node is a node of such a machine.
type Node struct {
	CPUs      string // as Linux lists them
	KiB       int64
	Distances string // to the nodes in their order
}

// Machine is a machine: its nodes that are online by number, their list as Linux writes it, the nodes that a process may have memory of
// ("": it does not say), and the nodes of PCI devices by address.
type Machine struct {
	Online  string
	Nodes   map[int]Node
	Allowed string
	PCI     map[string]string
}

// Two returns a machine of two nodes, each with two processors.
func Two() Machine {
	return Machine{Online: "0-1", Nodes: map[int]Node{0: {"0-1", 1 << 20, "10 21"}, 1: {"2-3", 1 << 20, "21 10"}}}
}

// Write returns a folder that reads like the root of such a machine.
func (m Machine) Write(t testing.TB) (root string) {
	t.Helper()
	root = t.TempDir()
	Put(t, root, "sys/devices/system/node/online", m.Online+"\n")
	Put(t, root, "sys/devices/system/node/possible", "0-63\n")
	for id, n := range m.Nodes {
		dir := fmt.Sprintf("sys/devices/system/node/node%d/", id)
		Put(t, root, dir+"cpulist", n.CPUs+"\n")
		Put(t, root, dir+"meminfo", fmt.Sprintf("\nNode %d MemTotal:       %d kB\nNode %d MemFree:        1 kB\n", id, n.KiB, id))
		Put(t, root, dir+"distance", n.Distances+"\n")
	}
	status := "Name:\ttest\n"
	if m.Allowed != "" {
		status += "Mems_allowed:\tffffffff\nMems_allowed_list:\t" + m.Allowed + "\n"
	}
	Put(t, root, "proc/self/status", status)
	for address, node := range m.PCI {
		Put(t, root, "sys/bus/pci/devices/"+strings.ToLower(address)+"/numa_node", node+"\n")
	}
	return root
}

// Put writes a file of such a machine.
func Put(t testing.TB, root, path, contents string) {
	t.Helper()
	path = filepath.Join(root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(contents), 0o644); err != nil {
		t.Fatal(err)
	}
}
