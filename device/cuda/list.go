package cuda

import "fmt"

// GPU describes a GPU that need not be open. Its JSON form is part of cachebench's output.
type GPU struct {
	Index             int    `json:"index"`
	Name              string `json:"name"`
	ComputeCapability string `json:"compute_capability"`
	PCIBusID          string `json:"pci_bus_id"`
	MemoryBytes       int64  `json:"memory_bytes"`
	FreeBytes         int64  `json:"free_bytes"`
	// HostLink is the PCIe link to the host as the system reports it, such as "32.0 GT/s PCIe x16", or "" if it does not.
	HostLink string `json:"host_link"`
	// Node is the memory node (NUMA) of the host that the GPU is attached to, or -1 if the system does not report it.
	Node int `json:"numa_node"`
	// Peers are the indices of the GPUs whose memory it can read. Atomics are those of them on which it also has native atomics, as over
	// NVLink.
	Peers   []int `json:"peers"`
	Atomics []int `json:"peers_with_native_atomics"`
}

// linkBytes returns the bytes a second that a link such as GPU.HostLink carries each way, packet headers included, or 0 if the link is
// unknown.
func linkBytes(link string) int64 {
	var speed float64 // 10^9 transfers, of one bit each, a second and lane
	var lanes int
	if n, err := fmt.Sscanf(link, "%f GT/s PCIe x%d", &speed, &lanes); err != nil || n != 2 || !(speed > 0 && speed < 1e6) || lanes < 1 || lanes > 64 {
		return 0
	}
	coding := 128. / 130
	if speed < 8 {
		coding = 8. / 10
	}
	return int64(speed * 1e9 / 8 * coding * float64(lanes))
}
