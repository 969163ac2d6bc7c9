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

// TestGPU_CapturingStream: a capturing stream is refused, and the capture goes on as if nobody had asked.
func TestGPU_CapturingStream(t *testing.T) {
	gpu := gputest.Open(t)
	data := gputest.Rows("mixed", 3000, 512, 1)
	c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "x", data, 512)}, Budget: 1 << 20, Device: "cuda"})
	batch := putBatch(t, gpu, []int64{1, 2, 3}, 512)
	s, err := gpu.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	stream, err := gpu.(*cuda.Device).Context().WrapStream(streamHandle(s))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.BeginCapture(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.On(0).GatherDevice(ctx, streamHandle(s), 0, batch.rows, batch.out); !errors.Is(err, cache.ErrCapturing) {
		t.Errorf("GatherDevice: %v", err)
	}
	if err := stream.EndCapture(); err != nil {
		t.Fatal(err)
	}
	b, err := c.On(0).GatherDevice(ctx, streamHandle(s), 0, batch.rows, batch.out)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Wait(); err != nil {
		t.Fatal(err)
	}
	checkRows(t, data, 512, []int64{1, 2, 3}, batch.read(t))
}

// TestGPU_RejectedPTX: the error carries the compiler's log.
func TestGPU_RejectedPTX(t *testing.T) {
	gpu := gputest.Open(t)
	bad := cuda.NewFunction[struct{ A uint64 }](&cuda.Module{Name: "bad", PTX: ".version 8.0\n.target sm_80\nnonsense"}, "f")
	if _, _, err := bad.Attributes(gpu.(*cuda.Device)); err == nil || !strings.Contains(err.Error(), "module bad") {
		t.Errorf("error: %v", err)
	} else {
		t.Log(err)
	}
}
