package cache_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/race"
)

// resident returns the process's resident memory in bytes.
func resident(t *testing.T) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip(err)
	}
	var total, pages int64
	if _, err := fmt.Sscan(string(b), &total, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// TestClose_GivesMemoryBack opens and closes a cache many times: the process's resident memory does not grow.
func TestClose_GivesMemoryBack(t *testing.T) { testCloseGivesMemoryBack(t, "host", 1) }

func TestClose_GivesMemoryBackOnSeveralDevices(t *testing.T) { testCloseGivesMemoryBack(t, "host", 2) }

func TestGPU_CloseGivesMemoryBack(t *testing.T) {
	gputest.Open(t)
	testCloseGivesMemoryBack(t, "cuda", 1)
}

func testCloseGivesMemoryBack(t *testing.T, backend cache.Backend, devices int) {
	if race.Enabled {
		t.Skip("the race detector watches the Go heap only, so all memory is there")
	}
	const rowBytes, rows = 256, 1 << 18
	rounds := 8
	if backend != "host" && !testing.Short() {
		rounds = 20
	}
	c, fortran := filepath.Join(t.TempDir(), "c.npy"), filepath.Join(t.TempDir(), "fortran.npy")
	for path, order := range map[string]string{c: "False", fortran: "True"} {
		head := fmt.Sprintf("{'descr': '<f4', 'fortran_order': %s, 'shape': (%d, %d), }", order, rows, rowBytes/4)
		file := fmt.Appendf(nil, "\x93NUMPY\x01\x00\x76\x00%-117s\n", head)
		if err := os.WriteFile(path, append(file, noise(rows, rowBytes, 1)...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	round := func(path string) {
		table, err := cache.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		c, err := cache.New(cache.Options{Tables: []cache.Table{table}, Budget: rows * rowBytes / 2, Codec: "none", Devices: cache.DeviceOptions{Backend: backend, Count: devices}})
		if err != nil {
			t.Fatal(err)
		}
		out, ids := make([]byte, 100*rowBytes), make([]int64, 100)
		for i := range ids {
			ids[i] = int64(i * 2000)
		}
		if err := c.Gather(ctx, cache.Request{Rows: ids, Out: out}); err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(out, make([]byte, len(out))) {
			t.Error("rows of zeros")
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	several := func(n int) {
		for i := range n {
			round([]string{c, fortran}[i%2])
		}
	}
	several(rounds / 2) // then what is allocated once is there: modules, threads, and what a GPU's driver has for each thread
	debug.FreeOSMemory()
	before := resident(t)
	several(rounds / 2)
	debug.FreeOSMemory()
	halfway := resident(t)
	several(rounds / 2)
	after := resident(t)
	debug.FreeOSMemory() // kernels, for example, are unpacked in the Go heap
	// 5 % of the table, and memory of goroutines.
	if collected, most := resident(t), int64(rows*rowBytes/20+8<<20); collected-before > most {
		t.Errorf("resident memory grew from %d to %d MiB, by more than %d, with %d MiB halfway; before a collection of the Go heap it was %d MiB", before>>20, collected>>20, most>>20, halfway>>20, after>>20)
	} else {
		t.Logf("resident memory: %d MiB before, %d halfway, %d after, %d after a collection of the Go heap", before>>20, halfway>>20, after>>20, collected>>20)
	}
}
