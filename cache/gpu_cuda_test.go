//go:build cuda && linux

package cache_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/gputest"
)

func freeMemory(t *testing.T, d device.Device) int64 {
	t.Helper()
	free, _, err := d.(*cuda.Device).Context().MemInfo()
	if err != nil {
		t.Fatal(err)
	}
	return free
}

func TestNew_CudaWithoutDriver(t *testing.T) {
	if cuda.Usable() == nil {
		t.Skip("there is a driver")
	}
	_, err := cache.New(cache.Options{Tables: []cache.Table{fromBytes(t, "x", make([]byte, 64), 16)}, Budget: 1 << 20, Device: "cuda"})
	if err == nil || !strings.Contains(err.Error(), "Device (cuda) is not usable: "+cuda.Usable().Error()) {
		t.Errorf("New: %v", err)
	}
}

// TestGPU_LostDevice faults a kernel, in a process of its own since the context is lost: later calls return the error, and
// Close works.
func TestGPU_LostDevice(t *testing.T) {
	gputest.Require(t)
	if os.Getenv("TENSORCACHE_LOSE_DEVICE") != "1" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestGPU_LostDevice$", "-test.v")
		cmd.Env = append(os.Environ(), "TENSORCACHE_LOSE_DEVICE=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	data := gputest.Rows("mixed", 3000, 512, 1)
	c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "x", data, 512)}, Budget: 1 << 20, Device: "cuda"})
	ids := []int64{1, 2, 3}
	b, err := c.On(0).GatherDevice(ctx, 0, 0, device.DeviceBuffer(1<<46, 24), device.DeviceBuffer(1<<45, 3*512))
	if err == nil {
		err = b.Wait()
	}
	if err == nil {
		t.Fatal("a Gather from a wild pointer succeeded")
	}
	t.Log(err)
	for range 2 {
		if err := c.Gather(ctx, 0, ids, make([]byte, 3*512)); !errors.Is(err, cache.ErrDevice) {
			t.Errorf("Gather after it: %v", err)
		}
	}
	if _, err := c.Stats(); !errors.Is(err, cache.ErrDevice) {
		t.Errorf("Stats after it: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := c.Gather(ctx, 0, ids, nil); !errors.Is(err, cache.ErrClosed) {
		t.Errorf("Gather after Close: %v", err)
	}
}
