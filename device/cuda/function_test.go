//go:build cuda && linux

package cuda_test

import (
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/device/cuda/internal/driver"
	"github.com/tensorcache/tensorcache/internal/gputest"
)

// spin waits until the word at p is not 0.
const spin = `.version 8.0
.target sm_80
.address_size 64
.visible .entry spin(.param .align 8 .b8 args[8]) {
	.reg .u64 p;
	.reg .u32 x;
	.reg .pred zero;
	ld.param.u64 p, [args];
again:
	ld.volatile.global.u32 x, [p];
	setp.eq.u32 zero, x, 0;
	@zero bra again;
	ret;
}
`

// TestFunction_LaunchBegun: the event passes while the kernel runs, or at once where the driver cannot tell.
func TestFunction_LaunchBegun(t *testing.T) {
	d := gputest.Open(t)
	flag, err := d.AllocHost(4, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(flag)
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	begun, err := d.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	defer begun.Close()
	ended, err := d.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	defer ended.Close()
	kernel := cuda.NewFunction[struct{ P uint64 }](&cuda.Module{Name: "spin", PTX: func() ([]byte, error) { return []byte(spin), nil }}, "spin")
	if err := kernel.LaunchBegun(s.(*cuda.Stream), 3, 32, 0, &struct{ P uint64 }{flag.Addr()}, begun); err != nil {
		t.Fatal(err)
	}
	if err := s.Record(ended); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		passed, err := begun.Passed()
		if err != nil {
			t.Fatal(err)
		}
		if passed {
			break
		}
		if time.Now().After(deadline) {
			t.Error("the kernel runs, and the event does not pass")
			break
		}
	}
	if passed, err := ended.Passed(); passed || err != nil {
		t.Errorf("the kernel has ended by itself: %v", err)
	}
	flag.Bytes()[0] = 1
	if err := s.Synchronize(); err != nil {
		t.Fatal(err)
	}
	t.Logf("the driver signals beginnings: %v", driver.SignalsBegin())
}

// TestDevice_WrapStreamAgain: wrapping a stream again is the same stream.
func TestDevice_WrapStreamAgain(t *testing.T) {
	d := gputest.Open(t)
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	handle := s.(*cuda.Stream).Handle()
	first, err := d.WrapStream(handle)
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() {
		if again, err := d.WrapStream(handle); err != nil || again != first {
			t.Errorf("%v, %v", again, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestFunction_MachineCodeRefused: a device whose driver refuses machine code takes the PTX.
func TestFunction_MachineCodeRefused(t *testing.T) {
	d := gputest.Open(t).(*cuda.Device)
	asked := false
	module := &cuda.Module{
		Name:    "spin",
		Machine: func(major, minor int) []byte { asked = true; return []byte("\x7fELF of another machine") },
		PTX:     func() ([]byte, error) { return []byte(spin), nil },
	}
	before := d.Compiled()
	if err := cuda.NewFunction[struct{ P uint64 }](module, "spin").Load(d); err != nil || !asked {
		t.Fatal(err, asked)
	}
	if n := d.Compiled() - before; n != 1 {
		t.Errorf("modules loaded as PTX: got %d, want 1", n)
	}
}
