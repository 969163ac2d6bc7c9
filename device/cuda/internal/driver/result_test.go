package driver

import (
	"errors"
	"fmt"
	"testing"
)

func TestError_Text(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{&Error{Result: OutOfMemory, Call: "cuMemAlloc", What: "of 1073741824 bytes", Device: 0},
			"cuda: cuMemAlloc of 1073741824 bytes on device 0: CUDA_ERROR_OUT_OF_MEMORY (out of memory)"},
		{&Error{Result: 100, Call: "cuDeviceGetCount", Device: -1},
			"cuda: cuDeviceGetCount: CUDA_ERROR_NO_DEVICE (no CUDA device)"},
		{&Error{Result: 218, Call: "cuModuleLoadDataEx", What: "of 9 bytes", Device: 3, Log: "line 1: no"},
			"cuda: cuModuleLoadDataEx of 9 bytes on device 3: CUDA_ERROR_INVALID_PTX (PTX rejected): line 1: no"},
		{&Error{Result: 31337, Call: "cuX", Device: -1}, "cuda: cuX: CUresult 31337"},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestError_Is(t *testing.T) {
	err := fmt.Errorf("table 3: %w", &Error{Result: OutOfMemory, Call: "cuMemAlloc"})
	if !errors.Is(err, OutOfMemory) || errors.Is(err, notReady) {
		t.Errorf("%v is not OutOfMemory", err)
	}
}

func TestResult_Sticky(t *testing.T) {
	for _, r := range []Result{46, 214, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719} {
		if !r.Sticky() || !IsSticky(fmt.Errorf("x: %w", &Error{Result: r})) {
			t.Errorf("%v is not sticky", r)
		}
	}
	for _, r := range []Result{0, 1, 2, 100, 218, 600, 701, 800, 900, 31337} {
		if r.Sticky() || IsSticky(&Error{Result: r}) {
			t.Errorf("%v is sticky", r)
		}
	}
	if IsSticky(nil) || IsSticky(errors.New("x")) {
		t.Error("an error of something else is sticky")
	}
}
