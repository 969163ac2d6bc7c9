package device

import (
	"errors"
	"os"
)

// ErrNotShared is wrapped by errors of a Sharer whose backend, system or driver cannot share memory between processes.
var ErrNotShared = errors.New("device: memory cannot be shared with other processes")

// Sharer is a Device that can share memory with other processes.
//
// One process allocates memory by AllocShared or AllocSharedHost and gets a file descriptor of it by Export. It sends the descriptor over a
// Unix socket (SCM_RIGHTS) together with the buffer's size. The other process maps the memory by Import or ImportHost, and Free unmaps it there.
// The memory itself is counted by reference: it is given back when every process that maps it has freed its buffer or has ended and every
// descriptor has been closed. So it stays whole for those who read it when the process that allocated it is killed.
//
// Both kinds of memory take up whole units: a page of the system for host memory, and the driver's
// granularity for memory of a GPU, 2 MiB at present. The sizes of buffers are the sizes that were asked for. Host memory has a fixed length that
// no process can change, so a read of mapped memory never fails. A table that grows gets new memory.
//
// A buffer may have another address in each process, and in one process if it is imported twice.
type Sharer interface {
	// AllocShared is Alloc for memory that can be exported.
	AllocShared(bytes int64, what string) (Buffer, error)
	// AllocSharedHost is AllocHost for memory that can be exported. It lies on the given memory nodes as for AllocHostOn, or anywhere if there
	// are none.
	AllocSharedHost(nodes []int, bytes int64, what string) (Buffer, error)
	// Export returns a new descriptor of a buffer of AllocShared or AllocSharedHost, whole, not a slice of it. The caller closes the
	// descriptor when it has been sent; the buffer stays as it is.
	Export(b Buffer) (*os.File, error)
	// Import maps memory that a Sharer of the same backend in this or another process has allocated by AllocShared. bytes is the buffer's
	// size there. The device's kernels can read it, and so can those of the devices opened with it that can read the memory of the device it
	// lies on. Unless writable, nothing may write to it; a process that does so is killed or loses its device, where the backend can see to
	// that. f stays the caller's and may be closed afterwards. A descriptor of anything else, or of shorter memory, is an error.
	Import(f *os.File, bytes int64, writable bool, what string) (Buffer, error)
	// ImportHost is Import for memory of AllocSharedHost, which every device of the backend can address.
	ImportHost(f *os.File, bytes int64, writable bool, what string) (Buffer, error)
}
