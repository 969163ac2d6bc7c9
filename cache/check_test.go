package cache_test

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/internal/gputest"
)

// TestCheck: what was wrong with batches that nobody waited for is returned once.
func TestCheck(t *testing.T) { testCheck(t, cache.BackendHost, host.Open(1, 1)[0]) }

// TestGPU_Check is TestCheck on a GPU.
func TestGPU_Check(t *testing.T) { testCheck(t, cache.BackendCUDA, gputest.Open(t)) }

func testCheck(t *testing.T, backend cache.Backend, d device.Device) {
	const rows, rowBytes = 1000, 64
	c := newCache(t, cache.Options{
		Tables: []cache.Table{fromBytes(t, "x", normalTable(rows, rowBytes/4, 1), rowBytes)}, Budget: 1 << 16, Devices: cache.DeviceOptions{Backend: backend},
	})
	mem, err := d.AllocHost(4*8+4*rowBytes, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(mem)
	ids, out := mem.Slice(0, 32), mem.Slice(32, 32+4*rowBytes)
	gather := func(numbers ...int64) *cache.Batch {
		t.Helper()
		for i, n := range numbers {
			binary.NativeEndian.PutUint64(ids.Bytes()[i*8:], uint64(n))
		}
		b, err := c.On(0).Enqueue(context.Background(), 0, cache.Request{DeviceRows: ids, DeviceOut: out})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	gather(1, 2, 3, 4)
	if err := c.Check(true); err != nil {
		t.Errorf("Check after a good batch: %v", err)
	}
	gather(1, rows, -1, 4)
	if err := c.Check(true); !errors.Is(err, cache.ErrRows) || !strings.Contains(err.Error(), "2 of 4") {
		t.Errorf("Check after a batch with row numbers out of range: %v", err)
	}
	if err := c.Check(true); err != nil {
		t.Errorf("Check again: %v", err)
	}
	for range 3 {
		if err := gather(1, rows, 2, 3).Wait(); !errors.Is(err, cache.ErrRows) {
			t.Error(err)
		}
	}
	if err := c.Check(false); !errors.Is(err, cache.ErrRows) || !strings.Contains(err.Error(), "1 of 4") || !strings.Contains(err.Error(), "2 more") {
		t.Errorf("Check after three batches with row numbers out of range: %v", err)
	}
	c.Close()
	if err := c.Check(true); !errors.Is(err, cache.ErrClosed) {
		t.Errorf("Check after Close: %v", err)
	}
}
