package numa_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tensorcache/tensorcache/internal/numa"
)

// shared returns shared memory of so many bytes and a descriptor of it, until the test ends.
func shared(t *testing.T, bytes int64) (*numa.Memory, *os.File) {
	t.Helper()
	m, err := numa.AllocShared("tensorcache test", bytes, nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := m.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.Close()
		m.Free()
	})
	return m, f
}

// TestShared_OneMemory: what is written through one mapping is read through the others, also when the first is gone.
func TestShared_OneMemory(t *testing.T) {
	for _, n := range []int64{1, 4096, 4097, 3<<20 + 5} {
		m, f := shared(t, n)
		if got := int64(len(m.Bytes())); got != n || cap(m.Bytes()) != int(n) {
			t.Errorf("%d bytes asked for: %d, capacity %d", n, got, cap(m.Bytes()))
		}
		var maps [2]*numa.Memory
		for i := range maps {
			var err error
			if maps[i], err = numa.MapShared(f, n, i == 1); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(maps[0].Bytes(), make([]byte, n)) {
			t.Errorf("%d bytes are not zeroed", n)
		}
		m.Bytes()[n-1] = 7
		maps[1].Bytes()[0] |= 8
		want := bytes.Clone(m.Bytes())
		if err := m.Free(); err != nil {
			t.Error(err)
		}
		f.Close()
		for i := range maps {
			if maps[i].Populate(); !bytes.Equal(maps[i].Bytes(), want) || want[n-1]&7 != 7 || want[0]&8 != 8 {
				t.Errorf("%d bytes: mapping %d differs", n, i)
			}
			if err := maps[i].Free(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestShared_FixedLength: the file can neither be made shorter or longer nor be unsealed, and what is mapped to be read cannot be written.
func TestShared_FixedLength(t *testing.T) {
	_, f := shared(t, 5000)
	for _, length := range []int64{0, 4096, 16384} {
		if err := f.Truncate(length); err == nil {
			t.Errorf("the length was changed to %d", length)
		}
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err == nil {
		t.Error("a seal was added")
	}
	m, err := numa.MapShared(f, 5000, false)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	at := fmt.Sprintf("%x-", addressOf(m.Bytes()))
	if _, line, ok := strings.Cut(string(maps), at); !ok || strings.Fields(line)[1] != "r--s" {
		t.Errorf("mapped to be read: %.80s", line)
	}
}

// TestAllocShared_OnItsNodes: the pages of a file in memory are on the node that it was allocated for, also where another mapping was the first to
// write them.
func TestAllocShared_OnItsNodes(t *testing.T) {
	nodes := usable(t)
	m, err := numa.AllocShared("on a node", 1<<20, nodes[:1])
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	if mode := policy(t, m.Bytes()); mode != unix.MPOL_PREFERRED {
		t.Errorf("policy %d", mode)
	}
	f, err := m.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	other, err := numa.MapShared(f, 1<<20, true)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Free()
	if mode := policy(t, other.Bytes()); mode != unix.MPOL_PREFERRED {
		t.Errorf("policy of another mapping %d", mode)
	}
	if _, err := numa.AllocShared("nowhere", 5000, []int{1023}); !errors.Is(err, numa.ErrRefused) ||
		!strings.HasPrefix(err.Error(), "numa: refused by the system: memory (5000 bytes) on nodes 1023: mbind: ") {
		t.Error(err)
	}
}

// TestShared_HugePages: memory has huge pages in every mapping, where the system can give it any, but for what is left behind the last whole one.
func TestShared_HugePages(t *testing.T) {
	m, f := shared(t, 129<<20+5)
	want := bytes.Repeat([]byte{3, 1, 4, 1, 5}, len(m.Bytes())/5+1)[:len(m.Bytes())]
	copy(m.Bytes(), want[:64<<20]) // pages that are there keep what they hold
	m.Populate()
	copy(m.Bytes()[64<<20:], want[64<<20:])
	other, err := numa.MapShared(f, 129<<20+5, false)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Free()
	other.Populate()
	if !bytes.Equal(other.Bytes(), want) {
		t.Error("the memory differs")
	}
	for i, b := range [][]byte{m.Bytes(), other.Bytes()} {
		if addressOf(b)%(2<<20) != 0 {
			t.Errorf("mapping %d begins at %#x", i, addressOf(b))
		}
		got := hugeBytes(t, b)
		if got == 0 && unix.Madvise(b[:2<<20], unix.MADV_COLLAPSE) != nil {
			t.Skip("the system gives shared memory no huge pages")
		}
		if got != 128<<20 {
			t.Errorf("mapping %d: %d bytes are of huge pages, want %d", i, got, 128<<20)
		}
	}
}

// hugeBytes returns how much of a mapping of shared memory is of huge pages.
func hugeBytes(t *testing.T, b []byte) int64 {
	t.Helper()
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skip(err)
	}
	_, mapping, _ := strings.Cut(string(smaps), fmt.Sprintf("%x-", addressOf(b)))
	_, line, _ := strings.Cut(mapping, "ShmemPmdMapped:")
	var kB int64
	if _, err := fmt.Sscan(line, &kB); err != nil {
		t.Fatalf("%.200s: %v", line, err)
	}
	return kB << 10
}

// TestMemory_Discard_Shared: pages that are given back are zeros in every mapping.
func TestMemory_Discard_Shared(t *testing.T) {
	m, f := shared(t, 64<<10)
	for i := range m.Bytes() {
		m.Bytes()[i] = 9
	}
	r, err := numa.MapShared(f, 64<<10, false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Free()
	r.Discard(0, 8<<10) // may not
	m.Discard(16<<10, 40<<10)
	for i, b := range r.Bytes() {
		if gone := i >= 16<<10 && i < 40<<10; gone && b != 0 || !gone && b != 9 {
			t.Fatalf("byte %d is %d", i, b)
		}
	}
}

func TestMapShared_BadDescriptors(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "rows"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(8192); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	fd, err := unix.MemfdCreate("unsealed", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	unsealed := os.NewFile(uintptr(fd), "unsealed")
	defer unsealed.Close()
	if err := unsealed.Truncate(8192); err != nil {
		t.Fatal(err)
	}
	_, short := shared(t, 4096)
	_, long := shared(t, 12288)
	_, closed := shared(t, 8192)
	closed.Close()
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for name, c := range map[string]struct {
		f    *os.File
		want string
	}{
		"file":     {file, fmt.Sprintf("numa: descriptor (%d, a file) must be of shared memory", file.Fd())},
		"pipe":     {r, fmt.Sprintf("numa: descriptor (%d, a pipe) must be of shared memory", r.Fd())},
		"device":   {null, fmt.Sprintf("numa: descriptor (%d, a device) must be of shared memory", null.Fd())},
		"unsealed": {unsealed, fmt.Sprintf("numa: descriptor (%d, a file) must be of memory that is sealed against shrinking", fd)},
		"short":    {short, "numa: shared memory (4096 bytes) must be 8192 bytes, the pages for 5000"},
		"long":     {long, "numa: shared memory (12288 bytes) must be 8192 bytes, the pages for 5000"},
		"closed":   {closed, "numa: descriptor of shared memory: use of closed file"},
		"nil":      {nil, "numa: descriptor of shared memory must not be nil"},
	} {
		m, err := numa.MapShared(c.f, 5000, false)
		if m.Free(); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	for _, n := range []int64{0, -1} {
		want := fmt.Sprintf("numa: shared memory (%d bytes) must be at least a byte", n)
		if _, err := numa.MapShared(short, n, false); err == nil || err.Error() != want {
			t.Errorf("mapped: %v, want %s", err, want)
		}
		if _, err := numa.AllocShared("none", n, nil); err == nil || err.Error() != want {
			t.Errorf("allocated: %v, want %s", err, want)
		}
	}
	if m, err := numa.AllocShared(strings.Repeat("long", 100), 4096, nil); err != nil || m.Free() != nil {
		t.Errorf("a long name: %v", err)
	}
	m, err := numa.Alloc(4096, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	if _, err := m.File(); err == nil || err.Error() != "numa: memory (4096 bytes) exported must be of AllocShared" {
		t.Error(err)
	}
}

// TestShared_NothingLeft maps and frees a thousand times: no descriptor, mapping or goroutine stays.
func TestShared_NothingLeft(t *testing.T) {
	_, f := shared(t, 1<<20)
	runtime.GC()
	before := held(t)
	for range 1000 {
		m, err := numa.MapShared(f, 1<<20, false)
		if err != nil {
			t.Fatal(err)
		}
		own, err := numa.AllocShared("own", 1<<20, nil)
		if err != nil {
			t.Fatal(err)
		}
		copied, err := own.File()
		if err != nil {
			t.Fatal(err)
		}
		if m.Free() != nil || own.Free() != nil || copied.Close() != nil {
			t.Fatal("memory was not freed")
		}
		if _, err := numa.MapShared(f, 2<<20, false); err == nil {
			t.Fatal("more was mapped than there is")
		}
	}
	if after := held(t); after != before {
		t.Errorf("descriptors and mappings of shared memory: %v before, %v after", before, after)
	}
}

// held counts the descriptors of the process and its mappings of shared memory.
func held(t *testing.T) (counts [2]int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return [2]int{len(fds), bytes.Count(maps, []byte("/memfd:"))}
}

func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
