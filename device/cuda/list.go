package cuda

import "fmt"

// GPU is what there is to know of a GPU before it is opened.
type GPU struct {
	Index             int    `json:"index"`
	Name              string `json:"name"`
	ComputeCapability string `json:"compute_capability"`
	PCIBusID          string `json:"pci_bus_id"`
	MemoryBytes       int64  `json:"memory_bytes"`
	FreeBytes         int64  `json:"free_bytes"`
	// HostLink is the PCIe link to the host as the system knows it, such as "32.0 GT/s PCIe x16"; "" where it does not.
	HostLink string `json:"host_link"`
	// Node is the memory node (NUMA) of the host that it is attached to; -1 where the system does not say.
	Node int `json:"numa_node"`
	// Peers are the indices of the GPUs whose memory it can read, Atomics those on which it has native atomics too, as
	// over NVLink.
	Peers   []int `json:"peers"`
	Atomics []int `json:"peers_with_native_atomics"`
}

// linkBytes returns how many bytes a second a link such as GPU.HostLink carries each way, without the packets' own; 0 if that is not
// known.
func linkBytes(link string) int64 {
	var speed float64 // transfers a second and lane, in 10^9: bits
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
