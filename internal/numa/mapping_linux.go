package numa

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapping is a line of /proc/self/maps.
type mapping struct {
	start, end uint64
	access     string // such as "rw-p"
	inode      uint64
	name       string
}

// anonymous says that no file, not even one in memory, is behind the mapping.
func (m *mapping) anonymous() bool { return m.inode == 0 }

// Adoptable returns nil if memory can be changed and page-locked without that being seen on a disk or by the Go runtime: memory of
// writable mappings that are anonymous, of memfd_create, of System V, of files under /dev/shm, or of the driver of a GPU. Otherwise the
// error says what it is.
func Adoptable(b []byte) error {
	if len(b) == 0 {
		return errors.New("numa: memory (0 bytes) must not be empty")
	}
	probe := make([]mapping, 0, 256) // of the Go heap
	all, err := mappings(probe)
	if err != nil {
		return err
	}
	start := uint64(address(b))
	end := start + uint64(len(b))
	heap := goHeap(all, uint64(uintptr(unsafe.Pointer(unsafe.SliceData(probe)))))
	at := start
	for _, m := range all {
		if m.end <= at || at >= end {
			continue
		}
		if m.start > at {
			break
		}
		if err := m.adoptable(at-start, slices.Contains(heap, m.start)); err != nil {
			return err
		}
		at = m.end
	}
	if at < end {
		return fmt.Errorf("numa: memory (%d bytes) must be mapped: byte %d is not", len(b), at-start)
	}
	return nil
}

// adoptable is Adoptable for a mapping in which the byte at offset of the memory lies.
func (m *mapping) adoptable(offset uint64, heap bool) error {
	what := "anonymous memory"
	if m.name != "" {
		what = m.name
	}
	switch {
	case heap:
		return fmt.Errorf("numa: memory (at byte %d) must not be of the Go heap", offset)
	case !strings.HasPrefix(m.access, "rw"):
		return fmt.Errorf("numa: memory (at byte %d, %s of %s) must be readable and writable", offset, m.access, what)
	case m.anonymous() && (m.name == "" || m.name == "[heap]" || strings.HasPrefix(m.name, "[anon")):
		return nil
	}
	for _, inMemory := range []string{"/memfd:", "/SYSV", "/dev/zero", "/anon_hugepage", "/dev/nvidia"} {
		if strings.HasPrefix(m.name, inMemory) {
			return nil
		}
	}
	if strings.HasPrefix(m.name, "/dev/shm/") {
		var fs unix.Statfs_t
		if unix.Statfs("/dev/shm", &fs) == nil && (fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC || fs.Type == unix.HUGETLBFS_MAGIC) {
			return nil
		}
	}
	return fmt.Errorf("numa: memory (at byte %d, of %s) must not be of a file", offset, what)
}

// goHeap returns the starts of the mappings of the Go heap. The runtime names them if the kernel can (Linux 5.17, CONFIG_ANON_VMA_NAME).
// Otherwise they are the anonymous mappings that follow each other without a gap around an object of the heap, whose address is probe: the
// runtime reserves the heap's addresses in one range far from where the system maps other memory.
func goHeap(all []mapping, probe uint64) (starts []uint64) {
	i := slices.IndexFunc(all, func(m mapping) bool { return m.start <= probe && probe < m.end })
	if i < 0 {
		return nil
	}
	if strings.HasPrefix(all[i].name, "[anon: Go:") {
		for _, m := range all {
			if strings.HasPrefix(m.name, "[anon: Go:") {
				starts = append(starts, m.start)
			}
		}
		return starts
	}
	first, last := i, i
	for first > 0 && all[first-1].end == all[first].start && all[first-1].anonymous() {
		first--
	}
	for last+1 < len(all) && all[last+1].start == all[last].end && all[last+1].anonymous() {
		last++
	}
	for _, m := range all[first : last+1] {
		starts = append(starts, m.start)
	}
	return starts
}

// mappings appends the mappings of the process to all, in the order of their addresses.
func mappings(all []mapping) ([]mapping, error) {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return nil, fmt.Errorf("numa: mappings of the process: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var m mapping
		var offset, device string
		line := lines.Text()
		if _, err := fmt.Sscanf(line, "%x-%x %s %s %s %d", &m.start, &m.end, &m.access, &offset, &device, &m.inode); err != nil {
			return nil, fmt.Errorf("numa: mappings of the process: line %q: %w", line, err)
		}
		if at := strings.IndexAny(line, "/["); at >= 0 {
			m.name = line[at:]
		}
		all = append(all, m)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("numa: mappings of the process: %w", err)
	}
	return all, nil
}
