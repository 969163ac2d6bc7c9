package numa

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Allocations of at least hugePageMin bytes ask for 2 MiB pages. Large tables are then allocated several times as fast, and
// random reads miss the processor's TLB less often.
const hugePageMin = hugePage

// hugePage is the size of a huge page.
const hugePage = 2 << 20

// Alloc returns zeroed memory outside the Go heap, of whole pages, which child processes do not inherit: at least the given bytes, interleaved page by page over the given nodes. With no nodes, the system
// places it. The nodes are a preference: when one is full, its pages go to other nodes. Physical pages are allocated when
// they are first written or page-locked. If a node does not exist or may not be used, the error wraps ErrRefused.
func Alloc(bytes int64, nodes []int) (*Memory, error) {
	if bytes < 1 {
		return nil, fmt.Errorf("numa: memory (%d bytes) must be at least a byte", bytes)
	}
	mask, err := maskOf(nodes)
	if err != nil {
		return nil, err
	}
	m, err := mapMemory(bytes)
	if err != nil {
		return nil, err
	}
	if err := m.settle(bytes, nodes, mask); err != nil {
		return nil, err
	}
	return m, nil
}

// settle asks for fresh memory to lie on the nodes, not to be inherited by children, and to have huge pages. An error frees the memory.
func (m *Memory) settle(bytes int64, nodes []int, mask []uint) error {
	mapped := m.mapped
	if len(nodes) > 0 {
		mode := uintptr(unix.MPOL_PREFERRED) // with MPOL_BIND, a process is killed when the node is full
		if len(nodes) > 1 {
			mode = unix.MPOL_INTERLEAVE
		}
		_, _, failed := unix.Syscall6(unix.SYS_MBIND, address(mapped), uintptr(len(mapped)), mode, uintptr(unsafe.Pointer(&mask[0])), maskBits(mask), 0)
		if failed != 0 {
			return refuse(m, bytes, nodes, "mbind", failed)
		}
	}
	// After a fork a write could give the parent a copy of page-locked memory, while devices still read the original.
	if err := unix.Madvise(mapped, unix.MADV_DONTFORK); err != nil {
		return refuse(m, bytes, nodes, "madvise", err)
	}
	if len(mapped) >= hugePageMin {
		unix.Madvise(mapped, unix.MADV_HUGEPAGE) // a refusal leaves small pages
	}
	return nil
}

// Populate allocates the memory's physical pages, on all processors at once, so that locking them takes little more. Page-locking 15 GiB
// took 4.65 s on a machine of 16 processors; populating took 0.32 s, and page-locking after it 0.34 s. Where the system cannot do it
// (before Linux 5.14), or has too little memory, pages are left for their first use. Shared memory gets huge pages: see AllocShared.
func (m *Memory) Populate() {
	const part = 64 << 20
	advice := unix.MADV_POPULATE_WRITE
	if m.readOnly {
		advice = unix.MADV_POPULATE_READ
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				from := int(next.Add(part)) - part
				if from >= len(m.mapped) {
					return
				}
				memory := m.mapped[from:min(from+part, len(m.mapped))]
				if m.collapses {
					collapse(memory)
				}
				if unix.Madvise(memory, advice) != nil {
					return
				}
			}
		})
	}
	wg.Wait()
}

func refuse(m *Memory, bytes int64, nodes []int, call string, err error) error {
	m.Free()
	return fmt.Errorf("%w: memory (%d bytes) on nodes %s: %s: %w", ErrRefused, bytes, List(nodes), call, err)
}

// sampledPages is the most pages that Where asks about.
const sampledPages = 1024

// Where returns the nodes, ascending, on which memory outside the Go heap lies. Up to 1,024 pages the result is exact; above,
// it is estimated from 1,024 random pages, with a standard error of at most 1.6 % of the bytes. Pages that were never written
// are on no node.
func Where(b []byte) ([]Held, error) {
	page := os.Getpagesize()
	pages := (len(b) + page - 1) / page
	if pages == 0 {
		return nil, nil
	}
	random := rand.New(rand.NewPCG(uint64(pages), 1)) // pages at even distances could all be on one node
	n := min(pages, sampledPages)
	at, status := make([]uintptr, n), make([]int32, n)
	for i := range at {
		p := i
		if pages > sampledPages {
			p = random.IntN(pages)
		}
		at[i] = address(b) + uintptr(p*page)
	}
	_, _, failed := unix.Syscall6(unix.SYS_MOVE_PAGES, 0, uintptr(n), uintptr(unsafe.Pointer(&at[0])), 0, uintptr(unsafe.Pointer(&status[0])), 0)
	if failed != 0 {
		return nil, fmt.Errorf("%w: nodes of %d pages: move_pages: %w", ErrRefused, n, failed)
	}
	found := map[int]int64{}
	for _, node := range status {
		if node >= 0 {
			found[int(node)]++
		}
	}
	var held []Held
	for node, count := range found {
		held = append(held, Held{node, int64(float64(len(b)) * float64(count) / float64(n))})
	}
	slices.SortFunc(held, func(a, b Held) int { return a.Node - b.Node })
	return held, nil
}

// OwnPolicy returns the memory policy that this process was started with, for example by numactl. It is "" if there is none
// or the system does not report it.
func OwnPolicy() string {
	var mode int32
	if _, _, failed := unix.Syscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&mode)), 0, 0, 0, 0, 0); failed != 0 {
		return ""
	}
	mode &^= unix.MPOL_F_STATIC_NODES | unix.MPOL_F_RELATIVE_NODES | unix.MPOL_F_NUMA_BALANCING
	switch mode {
	case unix.MPOL_DEFAULT, unix.MPOL_LOCAL:
		return ""
	case unix.MPOL_PREFERRED:
		return "preferred"
	case unix.MPOL_BIND:
		return "bind"
	case unix.MPOL_INTERLEAVE:
		return "interleave"
	}
	return fmt.Sprintf("mode %d", mode)
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// maskOf returns a node mask as the kernel reads it, in unsigned longs.
func maskOf(nodes []int) ([]uint, error) {
	if len(nodes) == 0 {
		return nil, nil
	}
	if n := slices.Max(nodes); slices.Min(nodes) < 0 || n >= most {
		return nil, fmt.Errorf("numa: nodes (%s) must be 0 to %d", List(nodes), most-1)
	}
	mask := make([]uint, slices.Max(nodes)/bits.UintSize+1)
	for _, n := range nodes {
		mask[n/bits.UintSize] |= 1 << (n % bits.UintSize)
	}
	return mask, nil
}

// maskBits returns the length of a mask for the kernel, which subtracts one from it.
func maskBits(mask []uint) uintptr { return uintptr(len(mask)*bits.UintSize + 1) }
