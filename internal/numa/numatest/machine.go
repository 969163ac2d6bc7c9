// Package numatest writes, for tests, folders with the /sys and /proc files of a machine with several memory nodes.
package numatest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Node is a memory node.
type Node struct {
	CPUs      string // in Linux's form, such as "0-1"
	KiB       int64
	Distances string // to all nodes, such as "10 21"
}

// Machine is the content of the files.
type Machine struct {
	Online  string            // the online nodes in Linux's form
	Nodes   map[int]Node      // by number
	Allowed string            // the nodes whose memory the process may allocate; "" for a file that does not list them
	PCI     map[string]string // nodes of PCI devices by address
}

// Two returns a machine of two nodes, each with two processors.
func Two() Machine {
	return Machine{Online: "0-1", Nodes: map[int]Node{0: {"0-1", 1 << 20, "10 21"}, 1: {"2-3", 1 << 20, "21 10"}}}
}

// Write writes the files to a temporary folder, the root, and returns it.
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

// Put writes a file below root.
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
