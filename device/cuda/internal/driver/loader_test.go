//go:build cuda

package driver

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"gorgonia.org/cu"
)

func init() {
	children["idle"] = func() { fmt.Println("started") }
	children["report"] = func() {
		fmt.Println("error:", LoadError())
		fmt.Println("no driver:", errors.Is(LoadError(), ErrNoDriver))
		fmt.Println("devices:", NumDevices())
		fmt.Println("version:", Version())
		_, err := Devices()
		fmt.Println("list:", err)
		_, err = cu.GetDevice(0)
		fmt.Println("get:", failedCU(err, "cuDeviceGet", "", 0))
		fmt.Println("result:", Result(4242))
		fmt.Println("has:", has("cuMemAlloc_v2"), has("cuStreamIsCapturing"), has("cuNoSuchThing"))
	}
	children["race"] = func() {
		var wrong atomic.Int64
		var ready, done sync.WaitGroup
		start := make(chan struct{})
		for i := range 64 {
			ready.Add(1)
			done.Go(func() {
				ready.Done()
				<-start
				if i%2 == 0 && NumDevices() != 2 {
					wrong.Add(1)
				}
				d, err := OpenDevice(i % 2)
				check(err)
				name := must(d.Name())
				if name != fmt.Sprint("Fake GPU ", i%2) {
					wrong.Add(1)
				}
				c := must(d.Retain())
				free, _, err := c.MemInfo()
				check(err)
				if free != 3<<40+1 {
					wrong.Add(1)
				}
				e := must(c.NewEvent(false))
				s := must(c.NewStream())
				for range 100 {
					check(e.Record(s))
				}
				check(c.Release())
			})
		}
		ready.Wait()
		close(start)
		done.Wait()
		fmt.Println("wrong:", wrong.Load())
	}
}

func TestLoader_NoLibrary(t *testing.T) {
	got, _ := runChild(t, "report", "TENSORCACHE_LIBCUDA=/nowhere/libcuda.so.1")
	want := `error: cuda: no usable driver: /nowhere/libcuda.so.1: cannot open shared object file: No such file or directory
no driver: true
devices: 0
version: 0
list: cuda: no usable driver: /nowhere/libcuda.so.1: cannot open shared object file: No such file or directory
get: cuda: cuDeviceGet on device 0: CUDA_ERROR_NO_DEVICE (no CUDA device)
result: CUresult 4242
has: false false false
`
	if got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

func TestLoader_NoDriverInLibrary(t *testing.T) {
	got, _ := runChild(t, "report", "TENSORCACHE_LIBCUDA=libm.so.6")
	if !strings.HasPrefix(got, "error: cuda: no usable driver: libm.so.6: no cuInit: not a CUDA driver\n") {
		t.Errorf("got:\n%s", got)
	}
}

func TestLoader_InitFails(t *testing.T) {
	got, calls := runChild(t, "report", fakeDriver(t, false), "FAKE_CUDA_INIT=803")
	for _, want := range []string{
		"new.so: cuInit: error 803: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (mismatch)\n",
		"no driver: true\n", "devices: 0\n", "version: 12080\n",
		"get: cuda: cuDeviceGet on device 0: CUDA_ERROR_NO_DEVICE (no CUDA device)\n",
		"result: CUDA_ERROR_FAKE (newer than the table)\n", "has: false false false\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	if !slices.Equal(calls, []string{"cuInit 0"}) {
		t.Errorf("calls: %q", calls)
	}
}

func TestLoader_UnknownInitError(t *testing.T) {
	got, _ := runChild(t, "report", fakeDriver(t, false), "FAKE_CUDA_INIT=77")
	if !strings.Contains(got, "new.so: cuInit: error 77: unknown (no description)\n") {
		t.Errorf("got:\n%s", got)
	}
}

func TestLoader_TwoDevices(t *testing.T) {
	got, _ := runChild(t, "report", fakeDriver(t, false))
	want := `error: <nil>
no driver: false
devices: 2
version: 12080
list: <nil>
get: <nil>
result: CUDA_ERROR_FAKE (newer than the table)
has: true true false
`
	if got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

func TestLoader_NoDevices(t *testing.T) {
	got, _ := runChild(t, "report", fakeDriver(t, false), "FAKE_CUDA_COUNT=0")
	if !strings.Contains(got, "error: <nil>\n") || !strings.Contains(got, "devices: 0\n") ||
		!strings.Contains(got, "list: <nil>\n") {
		t.Errorf("got:\n%s", got)
	}
}

// A process that makes no call does not load the driver, though gorgonia.org/cu calls cuInit before main.
func TestLoader_Idle(t *testing.T) {
	got, calls := runChild(t, "idle", fakeDriver(t, false))
	if got != "started\n" || calls != nil {
		t.Errorf("printed %q, calls %q", got, calls)
	}
}

func TestLoader_Race(t *testing.T) {
	for range 5 {
		got, calls := runChild(t, "race", fakeDriver(t, false))
		if got != "wrong: 0\n" {
			t.Fatalf("printed %q", got)
		}
		var inits, records int
		for _, c := range calls {
			switch {
			case c == "cuInit 0":
				inits++
			case c == "cuEventRecord 0xe4e47 0x57e0":
				records++
			}
		}
		if inits != 1 || records != 6400 {
			t.Fatalf("%d cuInit, %d right cuEventRecord", inits, records)
		}
	}
}
