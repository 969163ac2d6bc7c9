package numa

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugePage is from how many bytes on memory is of huge pages, where the system gives them: large tables are allocated several times as
// fast, and processors find rows at random in them with fewer misses of address translation.
const hugePage = 2 << 20

// Alloc returns memory of at least the given bytes on the given nodes, page by page in turns; with one node, all on that; with none,
// wherever the system puts it. Nodes that are full have others step in, so that nothing fails for want of a node. Pages are taken
// when they are first written or page-locked.
// It is an error that wraps ErrRefused if a node cannot be had.
func Alloc(bytes int64, nodes []int) (*Memory, error) {
	if bytes < 1 {
		return nil, fmt.Errorf("numa: memory (%d bytes) must be at least a byte", bytes)
	}
	mask, err := maskOf(nodes)
	if err != nil {
		return nil, err
	}
	page := int64(os.Getpagesize())
	mapped, err := unix.Mmap(-1, 0, int((bytes+page-1)/page*page), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("numa: memory (%d bytes) cannot be mapped: %w", bytes, err)
	}
	m := &Memory{mapped}
	if len(nodes) > 0 {
		mode := uintptr(unix.MPOL_PREFERRED) // not MPOL_BIND, which kills a process for want of a node's memory
		if len(nodes) > 1 {
			mode = unix.MPOL_INTERLEAVE
		}
		_, _, failed := unix.Syscall6(unix.SYS_MBIND, address(mapped), uintptr(len(mapped)), mode, uintptr(unsafe.Pointer(&mask[0])), maskBits(mask), 0)
		if failed != 0 {
			return nil, refuse(m, bytes, nodes, "mbind", failed)
		}
	}
	// Of page-locked memory a fork would leave the parent the copy, and devices the original.
	if err := unix.Madvise(mapped, unix.MADV_DONTFORK); err != nil {
		return nil, refuse(m, bytes, nodes, "madvise", err)
	}
	if len(mapped) >= hugePage {
		unix.Madvise(mapped, unix.MADV_HUGEPAGE) // small pages do as well
	}
	return m, nil
}

func refuse(m *Memory, bytes int64, nodes []int, call string, err error) error {
	m.Free()
	return fmt.Errorf("%w: memory (%d bytes) on nodes %s: %s: %w", ErrRefused, bytes, List(nodes), call, err)
}

// Free gives the memory back. Nothing may use it any more. A second Free does nothing.
func (m *Memory) Free() error {
	mapped := m.mapped
	if mapped == nil {
		return nil
	}
	m.mapped = nil
	if err := unix.Munmap(mapped); err != nil {
		return fmt.Errorf("numa: memory (%d bytes) cannot be unmapped: %w", len(mapped), err)
	}
	return nil
}

// looked is how many pages Where looks at.
const looked = 1024

// Where returns on which nodes memory lies that is not Go heap, ascending: exactly up to 1,024 pages, of more by that many taken at
// random (the standard error is at most 1.6 % of the bytes). Pages that were never written lie nowhere.
func Where(b []byte) ([]Held, error) {
	page := os.Getpagesize()
	pages := (len(b) + page - 1) / page
	if pages == 0 {
		return nil, nil
	}
	random := rand.New(rand.NewPCG(uint64(pages), 1)) // at even distances all could be of one node
	n := min(pages, looked)
	at, status := make([]uintptr, n), make([]int32, n)
	for i := range at {
		p := i
		if pages > looked {
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

// OwnPolicy returns the memory policy that this process was started with, such as by numactl: "" where it has none, or the system
// does not say.
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

// maskOf returns a node mask as the kernel reads it: unsigned longs.
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

// maskBits is the length of a mask as the kernel wants it: it takes one off.
func maskBits(mask []uint) uintptr { return uintptr(len(mask)*bits.UintSize + 1) }
