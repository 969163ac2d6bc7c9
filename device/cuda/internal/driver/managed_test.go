//go:build cuda

package driver

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func init() {
	children["managed"] = func() {
		d := must(OpenDevice(1))
		c := must(d.Retain())
		s := must(c.NewStream())
		m, err := c.AllocManaged(4096)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(d.ManagesMemory(), len(m.Bytes()))
		m.Bytes()[0], m.Bytes()[1024] = 1, 2 // the fake driver records the first byte that it is told of
		fmt.Println(m.Settle(0, 1024, true, s))
		fmt.Println(m.Settle(1024, 4096, false, s))
		check(m.Free())
		check(m.Free())
	}
}

// The bytes of the device's share are advised to it, and the others to the host and to be mapped for the device; both are moved there.
func TestManaged_Calls(t *testing.T) {
	got, calls := runChild(t, "managed", fakeDriver(t, false))
	if want := "true 4096\n<nil>\n<nil>\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	calls = slices.DeleteFunc(calls, func(s string) bool { return !strings.HasPrefix(s, "cuMem") })
	if want := []string{
		"cuMemAllocManaged 4096 1",
		"cuMemAdvise 1 1024 3 1",
		"cuMemPrefetchAsync 1 1024 1 0x57e0",
		"cuMemAdvise 2 3072 3 -1",
		"cuMemAdvise 2 3072 5 1",
		"cuMemPrefetchAsync 2 3072 -1 0x57e0",
		"cuMemFree_v2",
	}; !slices.Equal(calls, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(calls, "\n"), strings.Join(want, "\n"))
	}
}

func TestManaged_Failures(t *testing.T) {
	for failing, want := range map[string]string{
		"cuMemAllocManaged=2":    "cuda: cuMemAllocManaged of 4096 bytes on device 1: CUDA_ERROR_OUT_OF_MEMORY (out of memory)\n",
		"cuMemAdvise=801":        "cuda: cuMemAdvise of 1024 bytes on device 1: CUDA_ERROR_NOT_SUPPORTED",
		"cuMemPrefetchAsync=101": "cuda: cuMemPrefetchAsync of 3072 bytes on device 1: CUresult 101",
	} {
		if got, _ := runChild(t, "managed", fakeDriver(t, false), "FAKE_CUDA_FAIL="+failing); !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", failing, got, want)
		}
	}
}
