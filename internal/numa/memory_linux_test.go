package numa_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tensorcache/tensorcache/internal/numa"
	"github.com/tensorcache/tensorcache/internal/race"
)

// usable returns the nodes of this machine whose memory can be had.
func usable(t *testing.T) []int {
	t.Helper()
	machine, err := numa.Read("/")
	if err != nil {
		t.Fatal(err)
	}
	nodes := machine.Usable()
	if len(nodes) == 0 {
		t.Skip("this machine does not say which memory nodes it has")
	}
	return nodes
}

func alloc(t *testing.T, bytes int64, nodes []int) *numa.Memory {
	t.Helper()
	m, err := numa.Alloc(bytes, nodes)
	if errors.Is(err, numa.ErrRefused) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(m.Free(), m.Free()); err != nil || m.Bytes() != nil {
			t.Error(err)
		}
	})
	return m
}

// policy returns the memory policy of an address.
func policy(t *testing.T, b []byte) int32 {
	t.Helper()
	var mode int32
	if _, _, err := unix.Syscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&mode)), 0, 0, uintptr(unsafe.Pointer(&b[0])), unix.MPOL_F_ADDR, 0); err != 0 {
		t.Skip(err)
	}
	return mode
}

// TestAlloc_OnItsNodes: memory is zeroed, of whole pages, and lies where it was to lie; of pages that nobody wrote, nowhere.
func TestAlloc_OnItsNodes(t *testing.T) {
	nodes := usable(t)
	sets := map[int32][]int{unix.MPOL_PREFERRED: nodes[:1], unix.MPOL_INTERLEAVE: nodes}
	if len(nodes) == 1 {
		sets[unix.MPOL_INTERLEAVE] = []int{nodes[0], nodes[0]} // the other call, by the one node there is
	}
	page := os.Getpagesize()
	for mode, on := range sets {
		for _, bytes := range []int{1, page, 10*page + 1, 9 << 20} {
			m := alloc(t, int64(bytes), on)
			b := m.Bytes()
			if len(b) < bytes || len(b)%page != 0 || len(b) >= bytes+page {
				t.Fatalf("%d bytes for %d", len(b), bytes)
			}
			if got := policy(t, b); got != mode {
				t.Fatalf("memory policy %d, want %d", got, mode)
			}
			if held, err := numa.Where(b); err == nil && len(held) != 0 {
				t.Errorf("%v before it was written", held)
			}
			for i := range b {
				if b[i] != 0 {
					t.Fatalf("byte %d of %d is %d", i, len(b), b[i])
				}
				b[i] = byte(i)
			}
			held, err := numa.Where(b)
			if errors.Is(err, numa.ErrRefused) {
				t.Skip(err)
			}
			sum := int64(0)
			for _, h := range held {
				sum += h.Bytes
				if len(nodes) > 1 && len(on) == 1 && h.Node != on[0] { // a full node has others step in
					t.Logf("%d bytes of memory for node %d on node %d", h.Bytes, on[0], h.Node)
				}
			}
			if err != nil || sum != int64(len(b)) || len(nodes) == 1 && held[0].Node != nodes[0] {
				t.Errorf("%d bytes on %v: %v, %v", len(b), on, held, err)
			}
		}
	}
}

func TestAlloc_Refused(t *testing.T) {
	for _, c := range []struct {
		bytes   int64
		nodes   []int
		refused bool
		want    string
	}{
		{5000, []int{1023}, true, "numa: refused by the system: memory (5000 bytes) on nodes 1023: mbind: "},
		{5000, []int{0, 60000}, true, "numa: refused by the system: memory (5000 bytes) on nodes 0, 60000: mbind: "},
		{5000, []int{-1}, false, "numa: nodes (-1) must be 0 to 65535"},
		{5000, []int{65536}, false, "numa: nodes (65536) must be 0 to 65535"},
		{0, []int{0}, false, "numa: memory (0 bytes) must be at least a byte"},
		{1 << 60, []int{0}, false, "numa: memory (1152921504606846976 bytes) cannot be mapped"},
	} {
		m, err := numa.Alloc(c.bytes, c.nodes)
		if m != nil || err == nil || !strings.HasPrefix(err.Error(), c.want) || errors.Is(err, numa.ErrRefused) != c.refused {
			t.Errorf("%d bytes on %v: %v", c.bytes, c.nodes, err)
		}
	}
}

// TestAlloc_NoNodes: memory is wherever the system puts it, by no policy of its own.
func TestAlloc_NoNodes(t *testing.T) {
	m := alloc(t, 3<<20, nil)
	b := m.Bytes()
	if len(b) != 3<<20 || bytes.Count(b, []byte{0}) != len(b) {
		t.Fatalf("%d bytes, or not zeroed", len(b))
	}
	b[0], b[len(b)-1] = 1, 1
	if mode := policy(t, b); mode == unix.MPOL_INTERLEAVE {
		t.Errorf("policy %d", mode)
	}
}

func TestAdd_ByNode(t *testing.T) {
	a, b := []numa.Held{{0, 1}, {2, 2}}, []numa.Held{{1, 4}, {2, 8}, {5, 16}}
	if got := numa.Add(a, b); !reflect.DeepEqual(got, []numa.Held{{0, 1}, {1, 4}, {2, 10}, {5, 16}}) {
		t.Error(got)
	}
	if got := numa.Add(nil, nil); got != nil {
		t.Error(got)
	}
}

// affinities returns the processors of each thread of this process, as the system lists them.
func affinities(t *testing.T) map[string]int {
	t.Helper()
	counts := map[string]int{}
	tasks, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(tasks) == 0 {
		t.Skip("no /proc/self/task")
	}
	for _, path := range tasks {
		text, _ := os.ReadFile(path) // it may have ended
		for line := range strings.Lines(string(text)) {
			if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
				counts[strings.TrimSpace(list)]++
			}
		}
	}
	return counts
}

// TestKeepThread_EndsWithItsGoroutine: the thread runs on the processors it was kept to, and no thread is kept to them once the
// goroutine has ended, nor are threads that were made meanwhile.
func TestKeepThread_EndsWithItsGoroutine(t *testing.T) {
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil || may.Count() < 2 {
		t.Skipf("%d processors: %v", may.Count(), err)
	}
	first := 0
	for !may.IsSet(first) {
		first++
	}
	list := fmt.Sprint(first)
	if n := affinities(t)[list]; n != 0 {
		t.Skipf("%d threads are kept to processor %d already", n, first)
	}
	result := make(chan error)
	for kept := 0; kept == 0; {
		go func() {
			runtime.LockOSThread()
			var set unix.CPUSet
			n, err := numa.KeepThread([]int{first, 1000}, 1)
			if err == nil && n != 0 {
				err = unix.SchedGetaffinity(0, &set)
				if err == nil && (n != 1 || set.Count() != 1 || !set.IsSet(first)) {
					err = fmt.Errorf("%d processors said, %d set", n, set.Count())
				}
				for range 50 { // threads for these must not be kept, though this one has them made
					go func() { time.Sleep(time.Millisecond); unix.Getpid() }()
				}
				time.Sleep(5 * time.Millisecond)
			}
			if kept = n; n == 0 { // the process's first thread
				runtime.UnlockOSThread()
			}
			result <- err
		}()
		err := <-result
		if errors.Is(err, numa.ErrRefused) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(time.Minute); affinities(t)[list] != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("threads by processors: %v", affinities(t))
		}
	}
}

// TestKeepThread_TooFew: a thread that would not have as many processors is left alone.
func TestKeepThread_TooFew(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Skip(err)
	}
	for _, cpus := range [][]int{nil, {1000}, {0, 1}} {
		if n, err := numa.KeepThread(cpus, 3); n != 0 || err != nil {
			t.Errorf("%v: %d, %v", cpus, n, err)
		}
	}
	if err := unix.SchedGetaffinity(0, &after); err != nil || after != before {
		t.Errorf("%v became %v: %v", before, after, err)
	}
}

// TestNew_AlignedZeroedAndFreed: memory short and long is aligned, zeroed and as long as asked for, and Free may be called again.
func TestNew_AlignedZeroedAndFreed(t *testing.T) {
	for _, n := range []int64{0, 1, 1000, 256<<10 - 1, 256 << 10, 3<<20 + 5} {
		m, err := numa.New(n)
		if err != nil {
			t.Fatal(err)
		}
		b := m.Bytes()
		if int64(len(b)) != n || bytes.Count(b, []byte{0}) != len(b) || uintptr(unsafe.Pointer(unsafe.SliceData(b)))%128 != 0 {
			t.Errorf("%d bytes at %p for %d, or not zeroed", len(b), unsafe.SliceData(b), n)
		}
		for i := range b {
			b[i] = 1
		}
		if err := errors.Join(m.Free(), m.Free()); err != nil || m.Bytes() != nil {
			t.Error(err)
		}
	}
	if !race.Enabled { // memory would be the Go heap's
		if _, err := numa.New(1 << 60); !errors.Is(err, numa.ErrNoMemory) {
			t.Errorf("2^60 bytes: %v", err)
		}
	}
	words, m := numa.Make[uint64](1 << 16)
	defer m.Free()
	if words[1<<16-1] = 1; len(words) != 1<<16 || len(m.Bytes()) != 8<<16 {
		t.Errorf("%d words, %d bytes", len(words), len(m.Bytes()))
	}
}
