//go:build cuda && linux

package cuda_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/gputest"
)

// TestDevice_AllocationTooLarge: errors say what was asked for, and the device goes on.
func TestDevice_AllocationTooLarge(t *testing.T) {
	d := gputest.Open(t)
	for what, alloc := range map[string]func(int64, string) (device.Buffer, error){"slab": d.Alloc, "page-locked host tier": d.AllocHost} {
		const bytes = 1 << 42
		_, err := alloc(bytes, strings.TrimPrefix(what, "page-locked "))
		if !errors.Is(err, device.ErrOutOfMemory) || !strings.Contains(err.Error(), "allocation for "+what+" (4398046511104 bytes) on device 0") {
			t.Errorf("%s: %v", what, err)
		}
		if err := d.Err(); err != nil {
			t.Fatalf("%s: the device counts as lost: %v", what, err)
		}
		b, err := alloc(1<<20, "test")
		if err != nil {
			t.Errorf("%s: a small allocation after it: %v", what, err)
		}
		d.Free(b)
	}
}

// TestFunction_PTXRejected: the error names the module and carries the compiler's log.
func TestFunction_PTXRejected(t *testing.T) {
	d := gputest.Open(t)
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry f(.param .u64 p) { bogus.u32 %r1; }\n"
	module := &cuda.Module{Name: "broken", PTX: func() ([]byte, error) { return []byte(text), nil }}
	err = cuda.NewFunction[struct{ P uint64 }](module, "f").Launch(s.(*cuda.Stream), 1, 32, 0, &struct{ P uint64 }{})
	if err == nil || !strings.Contains(err.Error(), "module broken") || !strings.Contains(err.Error(), "bogus") {
		t.Errorf("got %v", err)
	}
	if err := d.Err(); err != nil {
		t.Errorf("the device counts as lost: %v", err)
	}
}
