package cuda

// GPU describes one GPU for people to read.
type GPU struct {
	Index       int
	Name        string
	UUID        string
	Major       int // compute capability
	Minor       int
	MemoryBytes int64
	// PCI is the address of its link to the host, such as "0000:1B:00.0".
	PCI             string
	Multiprocessors int
	// Peers are the GPUs whose memory its kernels can be given access to.
	Peers []int
}
