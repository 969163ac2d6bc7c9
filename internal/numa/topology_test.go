package numa_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/internal/numa"
	"github.com/tensorcache/tensorcache/internal/numa/numatest"
)

// four is a machine with gaps in its numbers: node 2 has memory only, as that of a memory expander or a GPU, node 5 none at all.
var four = numatest.Machine{
	Online: "0-2,5",
	Nodes: map[int]numatest.Node{
		0: {CPUs: "0-3,8-11", KiB: 100, Distances: "10 21 17 30"}, 1: {CPUs: "4-7", KiB: 200, Distances: "21 10 28 12"},
		2: {CPUs: "", KiB: 300, Distances: "17 28 10 40"}, 5: {CPUs: "12", KiB: 0, Distances: "30 12 40 10"},
	},
}

func TestRead_Nodes(t *testing.T) {
	machine, err := numa.Read(four.Write(t))
	if err != nil {
		t.Fatal(err)
	}
	if got := machine.Usable(); !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("usable: %v", got)
	}
	for id, cpus := range map[int][]int{0: {0, 1, 2, 3, 8, 9, 10, 11}, 1: {4, 5, 6, 7}, 2: nil, 5: {12}} {
		if n, ok := machine.Node(id); !ok || n.ID != id || !slices.Equal(n.CPUs, cpus) || n.MemoryBytes != four.Nodes[id].KiB<<10 {
			t.Errorf("node %d: %+v", id, n)
		}
	}
	for id, want := range map[int]int{0: 0, 1: 1, 2: 2, 5: 1, 3: numa.Unknown, -1: numa.Unknown} { // 3 is offline
		if got := machine.Nearest(id); got != want {
			t.Errorf("nearest to %d is %d, not %d", id, got, want)
		}
	}
}

// TestRead_Allowed: a container may have some nodes' memory only.
func TestRead_Allowed(t *testing.T) {
	m := four
	m.Allowed = "0,2,7"
	machine, err := numa.Read(m.Write(t))
	if err != nil {
		t.Fatal(err)
	}
	if got := machine.Usable(); !slices.Equal(got, []int{0, 2}) {
		t.Errorf("usable: %v", got)
	}
	if a, b := machine.Nearest(1), machine.Nearest(5); a != 0 || b != 0 {
		t.Errorf("nearest to 1 is %d, to 5 %d", a, b)
	}
	m.Allowed = "7"
	if machine, err = numa.Read(m.Write(t)); err != nil || machine.Usable() != nil || machine.Nearest(0) != numa.Unknown {
		t.Errorf("%+v, %v", machine, err)
	}
}

// TestRead_Missing: what a container does not show is not known, and no error.
func TestRead_Missing(t *testing.T) {
	for _, path := range []string{"", "online", "node1", "node1/cpulist", "node1/meminfo", "node1/distance"} {
		root := numatest.Two().Write(t)
		if err := os.RemoveAll(filepath.Join(root, "sys/devices/system/node", path)); err != nil {
			t.Fatal(err)
		}
		if machine, err := numa.Read(root); err != nil || !reflect.DeepEqual(machine, numa.Topology{}) {
			t.Errorf("without %q: %+v, %v", path, machine, err)
		}
	}
	root := numatest.Two().Write(t)
	if err := os.RemoveAll(filepath.Join(root, "proc")); err != nil {
		t.Fatal(err)
	}
	if machine, err := numa.Read(root); err != nil || len(machine.Usable()) != 2 {
		t.Errorf("%+v, %v", machine, err)
	}
}

// TestRead_Garbage: files that say what cannot be are errors that name them.
func TestRead_Garbage(t *testing.T) {
	const node = "sys/devices/system/node/"
	for _, c := range []struct{ path, contents, want string }{
		{node + "online", "zero", `online ("zero") must be ascending numbers and ranges below 65536, such as 0-3,8`},
		{node + "online", "1-0", `online ("1-0") must be`},
		{node + "online", "0,0", `online ("0,0") must be`},
		{node + "online", "0-", `online ("0-") must be`},
		{node + "online", "-1", `online ("-1") must be`},
		{node + "online", "0-99999999999", `online ("0-99999999999") must be`},
		{node + "online", "0-65536", `online ("0-65536") must be`},
		{node + "node1/cpulist", "2..3", `node1/cpulist ("2..3") must be`},
		{node + "node1/meminfo", "", `node1/meminfo ("") must have MemTotal`},
		{node + "node1/meminfo", "Node 0 MemTotal: 5 kB", `node1/meminfo ("Node 0 MemTotal: 5 kB") must name node 1 and have 0 to 2^43 kB`},
		{node + "node1/meminfo", "Node 1 MemTotal: -5 kB", `must name node 1`},
		{node + "node1/distance", "10", `node1/distance ("10") must be a number for each of 2 nodes`},
		{node + "node1/distance", "ten 10", `node1/distance ("ten 10") must be numbers`},
		{"proc/self/status", "Mems_allowed_list:\tall\n", `status: Mems_allowed_list ("all") must be`},
	} {
		root := numatest.Two().Write(t)
		numatest.Put(t, root, c.path, c.contents)
		machine, err := numa.Read(root)
		if err == nil || !strings.HasPrefix(err.Error(), "numa: "+root) || !strings.Contains(err.Error(), c.want) || len(machine.Nodes) != 0 {
			t.Errorf("%s %q: %+v, %v", c.path, c.contents, machine, err)
		}
	}
}

func TestPCINode_Addresses(t *testing.T) {
	m := numatest.Two()
	m.PCI = map[string]string{"0000:1b:00.0": "1", "0000:3a:00.0": "-1", "0001:00:00.0": "one", "0002:00:00.0": "-2", "0003:00:00.0": ""}
	root := m.Write(t)
	for address, want := range map[string]int{"0000:1B:00.0": 1, "0000:1b:00.0": 1, "0000:3a:00.0": -1, "0000:99:00.0": -1, "": -1} {
		if n, err := numa.PCINode(root, address); n != want || err != nil {
			t.Errorf("%s: %d, %v", address, n, err)
		}
	}
	for address, want := range map[string]string{
		"0001:00:00.0": `("one\n") must be -1 or the number of a node`, "0002:00:00.0": `("-2\n") must be`, "0003:00:00.0": `("\n") must be`,
		"../0000": `numa: PCI address ("../0000") must be domain, bus, device and function`,
	} {
		if n, err := numa.PCINode(root, address); n != numa.Unknown || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %d, %v", address, n, err)
		}
	}
}

// TestRead_ThisMachine: what this machine says can be read.
func TestRead_ThisMachine(t *testing.T) {
	machine, err := numa.Read("/")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", machine)
}

// FuzzRead: whatever the files say, there is an error or a list in order.
func FuzzRead(f *testing.F) {
	f.Add("0-1", "0-3,8", "Node 0 MemTotal: 1 kB", "10 20", "0")
	f.Add("0", "", "", "", "")
	f.Fuzz(func(t *testing.T, online, cpus, meminfo, distance, allowed string) {
		m := numatest.Two()
		m.Online, m.Allowed = online, allowed
		root := m.Write(t)
		numatest.Put(t, root, "sys/devices/system/node/node0/cpulist", cpus)
		numatest.Put(t, root, "sys/devices/system/node/node0/meminfo", meminfo)
		numatest.Put(t, root, "sys/devices/system/node/node0/distance", distance)
		machine, err := numa.Read(root)
		if err != nil {
			return
		}
		for i, n := range machine.Nodes {
			if i > 0 && n.ID <= machine.Nodes[i-1].ID || !slices.IsSorted(n.CPUs) || n.MemoryBytes < 0 {
				t.Errorf("%+v", machine)
			}
			if near := machine.Nearest(n.ID); near != numa.Unknown && !slices.Contains(machine.Usable(), near) {
				t.Errorf("nearest to %d is %d", n.ID, near)
			}
		}
	})
}
