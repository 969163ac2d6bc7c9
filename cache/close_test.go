package cache_test

import (
	"sync/atomic"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
)

// underWay is a device that reports an error if memory is freed before the batch of the last device has been waited for.
type underWay struct {
	device.Device
	batch  *atomic.Bool
	events bool // whether this device's are the batch's
	t      testing.TB
}

func (d underWay) NewEvent() (device.Event, error) {
	e, err := d.Device.NewEvent()
	if d.events {
		e = underWayEvent{e, d.batch}
	}
	return e, err
}

func (d underWay) Free(b device.Buffer) {
	if d.batch.Load() && b.Size() > 0 {
		d.t.Errorf("%d bytes freed while another device may read them", b.Size())
	}
	d.Device.Free(b)
}

type underWayEvent struct {
	device.Event
	batch *atomic.Bool
}

func (e underWayEvent) Synchronize() error {
	err := e.Event.Synchronize()
	e.batch.Store(false)
	return err
}

// TestClose_BatchOfAnotherDevice: Close waits for a batch of the second device, which reads the slab of the first, before it frees memory.
func TestClose_BatchOfAnotherDevice(t *testing.T) {
	var batch atomic.Bool
	cache.OpenHostWith(t, func(n, workers int) []device.Device {
		devices := host.Open(n, workers)
		for i, d := range devices {
			devices[i] = underWay{d, &batch, i == n-1, t}
		}
		return devices
	})
	c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "x", noise(400, 64, 1), 64)}, Budget: 8_000, Devices: cache.DeviceOptions{Count: 2, Backend: "host"}})
	rows, out := []int64{1, 2, 3}, make([]byte, 3*64)
	if _, err := c.On(1).Enqueue(ctx, 0, cache.Request{DeviceRows: device.HostBuffer(cache.AsBytes(rows)), DeviceOut: device.HostBuffer(out)}); err != nil {
		t.Fatal(err)
	}
	batch.Store(true)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if batch.Load() {
		t.Error("nobody has waited for the batch")
	}
}
