package cuda

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
	// Peers are the indices of the GPUs whose memory it can read, Atomics those on which it has native atomics too, as
	// over NVLink.
	Peers   []int `json:"peers"`
	Atomics []int `json:"peers_with_native_atomics"`
}
