package numa

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Node is an online node.
type Node struct {
	ID int
	// CPUs are its online processors, ascending.
	CPUs []int
	// MemoryBytes is its total memory. Usable says that it has memory and that this process may allocate it.
	MemoryBytes int64
	Usable      bool

	distances []int // to each of Topology.Nodes
}

// Topology is the nodes of a machine, in ascending order of IDs. The zero value is an unknown topology.
type Topology struct{ Nodes []Node }

// most bounds the numbers of nodes and processors that are accepted. Linux allows 1,024 nodes and 8,192 processors.
const most = 1 << 16

// Read reads the topology from sys/devices/system/node under root, and the nodes that this process may use from
// proc/self/status. root is "/" except in tests. If files are missing or unreadable it returns the zero Topology. Malformed
// files are an error.
func Read(root string) (Topology, error) {
	t, err := read(root)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		err = nil
	}
	if err != nil {
		return Topology{}, fmt.Errorf("numa: %w", err)
	}
	return t, nil
}

func read(root string) (t Topology, err error) {
	dir := filepath.Join(root, "sys/devices/system/node")
	online, err := readNumbers(filepath.Join(dir, "online"))
	if err != nil {
		return Topology{}, err
	}
	allowed, restricted, err := memsAllowed(filepath.Join(root, "proc/self/status"))
	if err != nil {
		return Topology{}, err
	}
	for _, id := range online {
		own := filepath.Join(dir, "node"+strconv.Itoa(id))
		n := Node{ID: id}
		if n.CPUs, err = readNumbers(filepath.Join(own, "cpulist")); err != nil {
			return Topology{}, err
		}
		if n.MemoryBytes, err = memTotal(filepath.Join(own, "meminfo"), id); err != nil {
			return Topology{}, err
		}
		if n.distances, err = distances(filepath.Join(own, "distance"), len(online)); err != nil {
			return Topology{}, err
		}
		n.Usable = n.MemoryBytes > 0 && (!restricted || slices.Contains(allowed, id))
		t.Nodes = append(t.Nodes, n)
	}
	return t, nil
}

// Node returns the node with the given ID. ok is false if it is not online.
func (t Topology) Node(id int) (n Node, ok bool) {
	for _, n := range t.Nodes {
		if n.ID == id {
			return n, true
		}
	}
	return Node{}, false
}

// Usable returns the IDs of the nodes whose memory this process can allocate, ascending.
func (t Topology) Usable() (ids []int) {
	for _, n := range t.Nodes {
		if n.Usable {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

// Nearest returns the usable node nearest to the given one: the node itself if it is usable, and of equally near ones the
// first. It returns Unknown if no node is usable or the given one is not online.
func (t Topology) Nearest(id int) int {
	from, ok := t.Node(id)
	if !ok {
		return Unknown
	}
	if from.Usable {
		return id
	}
	best := -1
	for i, n := range t.Nodes {
		if n.Usable && (best < 0 || from.distances[i] < from.distances[best]) {
			best = i
		}
	}
	if best < 0 {
		return Unknown
	}
	return t.Nodes[best].ID
}

// PCINode returns the node of the PCI device at an address such as "0000:1b:00.0", in upper or lower case. It returns Unknown
// if the system does not report the node, as on machines with one node and in most containers and virtual machines.
func PCINode(root, address string) (int, error) {
	if address == "" {
		return Unknown, nil
	}
	if strings.ContainsAny(address, `/\`) || strings.Contains(address, "..") {
		return Unknown, fmt.Errorf("numa: PCI address (%q) must be domain, bus, device and function", address)
	}
	path := filepath.Join(root, "sys/bus/pci/devices", strings.ToLower(address), "numa_node")
	text, err := os.ReadFile(path)
	if err != nil {
		return Unknown, nil
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || n < Unknown || n >= most {
		return Unknown, fmt.Errorf("numa: %s (%.40q) must be -1 or the number of a node", path, text)
	}
	return n, nil
}

// readNumbers reads a file with a list of numbers and ranges, such as "0-3,8".
func readNumbers(path string) ([]int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	numbers, err := parseNumbers(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("%s %w", path, err)
	}
	return numbers, nil
}

// parseNumbers returns the numbers of a list in Linux's form, ascending.
func parseNumbers(list string) (numbers []int, err error) {
	bad := fmt.Errorf("(%.40q) must be ascending numbers and ranges below %d, such as 0-3,8", list, most)
	if list == "" {
		return nil, nil
	}
	last := -1
	for _, part := range strings.Split(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err := strconv.ParseUint(from, 10, 32)
		if err != nil {
			return nil, bad
		}
		end, err := strconv.ParseUint(to, 10, 32)
		if err != nil || end < first || end >= most || int(first) <= last {
			return nil, bad
		}
		for n := first; n <= end; n++ {
			numbers = append(numbers, int(n))
		}
		last = int(end)
	}
	return numbers, nil
}

// memTotal reads the memory of a node, in bytes, from its meminfo.
func memTotal(path string, id int) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var node int
		var kib int64
		if n, _ := fmt.Sscanf(lines.Text(), "Node %d MemTotal: %d kB", &node, &kib); n == 2 {
			if node != id || kib < 0 || kib > 1<<43 {
				return 0, fmt.Errorf("%s (%.60q) must name node %d and have 0 to 2^43 kB", path, lines.Text(), id)
			}
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("%s (%.40q) must have MemTotal", path, text)
}

// distances reads a node's distances to all online nodes.
func distances(path string, nodes int) ([]int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(string(text))
	all := make([]int, len(fields))
	for i, f := range fields {
		if all[i], err = strconv.Atoi(f); err != nil || all[i] < 0 {
			return nil, fmt.Errorf("%s (%.40q) must be numbers", path, text)
		}
	}
	if len(all) != nodes {
		return nil, fmt.Errorf("%s (%.40q) must be a number for each of %d nodes", path, text, nodes)
	}
	return all, nil
}

// memsAllowed reads the nodes whose memory a process may allocate. restricted is false if the file does not list them.
func memsAllowed(path string) (nodes []int, restricted bool, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, false, nil
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if list, ok := strings.CutPrefix(lines.Text(), "Mems_allowed_list:"); ok {
			if nodes, err = parseNumbers(strings.TrimSpace(list)); err != nil {
				return nil, false, fmt.Errorf("%s: Mems_allowed_list %w", path, err)
			}
			return nodes, true, nil
		}
	}
	return nil, false, nil
}
