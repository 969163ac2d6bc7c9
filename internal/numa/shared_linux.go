package numa

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tensorcache/tensorcache/internal/eintr"
)

// seals fix the length of shared memory for good. A process that reads mapped memory behind the end of a file that another process has made
// shorter is killed.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// nameMax is the longest name, in bytes, that the system takes for memory.
const nameMax = 249

// removeShared is the advice that gives back pages of shared memory.
const removeShared = unix.MADV_REMOVE

// AllocShared is Alloc for memory that other processes can map: see File. It is a file in memory, of fixed length and in no folder. The
// system lists it by name in the mappings of processes. It has huge pages from 2 MiB on, unless it is interleaved over several nodes, if Populate
// allocates them (Linux 6.1), or if the system has them for shared memory (/sys/kernel/mm/transparent_hugepage/shmem_enabled). If there are too few addresses, the error wraps ErrNoMemory.
func AllocShared(name string, bytes int64, nodes []int) (*Memory, error) {
	if bytes < 1 {
		return nil, fmt.Errorf("numa: shared memory (%d bytes) must be at least a byte", bytes)
	}
	mask, err := maskOf(nodes)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate(name[:min(len(name), nameMax)], unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("%w: shared memory (%d bytes): memfd_create: %w", ErrRefused, bytes, err)
	}
	file := os.NewFile(uintptr(fd), name)
	err = file.Truncate(wholePages(bytes)) // which repeats interrupted calls
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
		err = os.NewSyscallError("fcntl", err)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: shared memory (%d bytes): %w", ErrRefused, bytes, err), file.Close())
	}
	m, err := mapFile(fd, wholePages(bytes), true)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrNoMemory, err), file.Close())
	}
	m.file, m.bytes = file, m.bytes[:bytes:bytes]
	if err := m.settle(bytes, nodes, mask); err != nil {
		return nil, err
	}
	m.collapses = len(m.mapped) >= hugePageMin && len(nodes) < 2
	return m, nil
}

// File returns a new descriptor of memory of AllocShared, which the caller closes.
func (m *Memory) File() (*os.File, error) {
	if m.file == nil {
		return nil, fmt.Errorf("numa: memory (%d bytes) exported must be of AllocShared", len(m.bytes))
	}
	f, err := duplicate(m.file)
	if err != nil {
		return nil, fmt.Errorf("numa: memory (%d bytes) exported: %w", len(m.bytes), err)
	}
	return f, nil
}

func duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// named are the files of Named that MapShared has not mapped yet: *os.File → whether the file is fresh.
var named sync.Map

// Named returns a file in a folder in memory (tmpfs) for MapShared, which outlives the process: the memory of Export is that of a file without a folder. A file that is
// there already keeps what it holds, and becomes longer if bytes do not fit. fresh says that it was not there: it has zeros. The length is fixed by nothing but the agreement of all who
// map it, as files with a name cannot be sealed.
func Named(path string, bytes int64) (f *os.File, fresh bool, err error) {
	f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if fresh = err == nil; errors.Is(err, os.ErrExist) {
		f, err = os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	}
	if err != nil {
		return nil, false, err
	}
	info, err := f.Stat()
	if err == nil && info.Size() < wholePages(bytes) {
		err = f.Truncate(wholePages(bytes))
	}
	if err == nil {
		err = sealed(int(f.Fd()), bytes)
	}
	if err != nil {
		return nil, false, errors.Join(err, f.Close())
	}
	named.Store(f, fresh)
	return f, fresh, nil
}

// Reserve allocates the pages of a file of Named. Without that, a process that writes to a page for which the folder has no room left is killed.
func Reserve(f *os.File, bytes int64) error {
	return eintr.Retry(func() error { return unix.Fallocate(int(f.Fd()), 0, 0, wholePages(bytes)) })
}

// Fresh says whether the memory is a file that Named has made: Populate gives it pages.
func (m *Memory) Fresh() bool { return m.fresh }

// MapShared maps memory that AllocShared has allocated, in this or another process, with the same number of bytes, or a file of Named. A process that writes to
// memory that is not writable is killed.
func MapShared(f *os.File, bytes int64, writable bool) (*Memory, error) {
	if bytes < 1 {
		return nil, fmt.Errorf("numa: shared memory (%d bytes) must be at least a byte", bytes)
	}
	if f == nil {
		return nil, errors.New("numa: descriptor of shared memory must not be nil")
	}
	var m *Memory
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("numa: descriptor of shared memory: %w", err)
	}
	failed := raw.Control(func(fd uintptr) {
		if err = sealed(int(fd), bytes); err == nil {
			m, err = mapFile(int(fd), wholePages(bytes), writable)
		}
	})
	if failed != nil {
		return nil, fmt.Errorf("numa: descriptor of shared memory: %w", failed)
	}
	if err != nil {
		return nil, err
	}
	m.bytes = m.bytes[:bytes:bytes]
	if err := m.settle(bytes, nil, nil); err != nil {
		return nil, err
	}
	if fresh, ours := named.LoadAndDelete(f); ours {
		if m.file, err = duplicate(f); err != nil {
			return nil, errors.Join(fmt.Errorf("numa: shared memory (%d bytes): %w", bytes, err), m.Free())
		}
		m.fresh = fresh.(bool)
		m.collapses = m.fresh && len(m.mapped) >= hugePageMin
	}
	return m, nil
}

// sealed returns an error unless fd is memory of fixed length for the bytes.
func sealed(fd int, bytes int64) error {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return fmt.Errorf("numa: descriptor (%d) of shared memory: fstat: %w", fd, err)
	}
	kind := map[uint32]string{unix.S_IFREG: "a file", unix.S_IFIFO: "a pipe", unix.S_IFSOCK: "a socket", unix.S_IFDIR: "a folder"}[stat.Mode&unix.S_IFMT]
	if kind == "" {
		kind = "a device"
	}
	has, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	switch {
	case err != nil:
		return fmt.Errorf("numa: descriptor (%d, %s) must be of shared memory", fd, kind)
	case has&unix.F_SEAL_SHRINK == 0 && inFolder(fd):
		if stat.Size < wholePages(bytes) {
			return fmt.Errorf("numa: shared memory (%d bytes) must be at least %d bytes, the pages for %d", stat.Size, wholePages(bytes), bytes)
		}
	case has&unix.F_SEAL_SHRINK == 0:
		return fmt.Errorf("numa: descriptor (%d, %s) must be of memory that is sealed against shrinking", fd, kind)
	case stat.Size != wholePages(bytes):
		return fmt.Errorf("numa: shared memory (%d bytes) must be %d bytes, the pages for %d", stat.Size, wholePages(bytes), bytes)
	}
	return nil
}

// inFolder says whether fd is a file of a folder in memory, not one of memfd_create.
func inFolder(fd int) bool {
	var on unix.Statfs_t
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	return err == nil && !strings.HasPrefix(name, "/memfd:") && unix.Fstatfs(fd, &on) == nil && on.Type == unix.TMPFS_MAGIC
}

// mapFile maps a file in memory, from 2 MiB on at an address that huge pages can have.
func mapFile(fd int, bytes int64, writable bool) (*Memory, error) {
	access := unix.PROT_READ
	if writable {
		access |= unix.PROT_WRITE
	}
	var at unsafe.Pointer
	var err error
	if bytes < hugePageMin {
		at, err = unix.MmapPtr(fd, 0, nil, uintptr(bytes), access, unix.MAP_SHARED)
	} else {
		at, err = mapAligned(fd, uintptr(bytes), access)
	}
	if err != nil {
		return nil, fmt.Errorf("numa: shared memory (%d bytes) cannot be mapped: %w", bytes, err)
	}
	b := unsafe.Slice((*byte)(at), bytes)
	return &Memory{bytes: b, mapped: b, shared: true, readOnly: !writable}, nil
}

// mapAligned maps a file at a multiple of hugePage: within reserved addresses, of which it then gives up the others.
func mapAligned(fd int, bytes uintptr, access int) (unsafe.Pointer, error) {
	reserved, err := unix.MmapPtr(-1, 0, nil, bytes+hugePage, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, err
	}
	before := -uintptr(reserved) % hugePage
	at := unsafe.Add(reserved, before)
	if _, err := unix.MmapPtr(fd, 0, at, bytes, access, unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
		return nil, errors.Join(err, unix.MunmapPtr(reserved, bytes+hugePage))
	}
	if before > 0 {
		err = unix.MunmapPtr(reserved, before)
	}
	return at, errors.Join(err, unix.MunmapPtr(unsafe.Add(at, bytes), hugePage-before))
}

// unmapShared unmaps what mapFile has mapped.
func unmapShared(b []byte) error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)))
}

// collapse gives huge pages to a part of shared memory that begins at a multiple of hugePage. The system's setting for shared memory, which is
// "never" unless someone has changed it, does not forbid that: it is about pages that nobody asks for. A huge page is made where at least one page is.
// Where the system cannot do it (before Linux 6.1), or has no huge pages left, nothing changes.
func collapse(part []byte) {
	whole := len(part) / hugePage * hugePage
	for at := 0; at < whole; at += hugePage {
		if unix.Madvise(part[at:at+os.Getpagesize()], unix.MADV_POPULATE_WRITE) != nil {
			return
		}
	}
	if whole > 0 {
		unix.Madvise(part[:whole], unix.MADV_COLLAPSE)
	}
}
