//go:build cuda && linux

package cuda

import (
	"fmt"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda/internal/driver"
)

// AllocManaged returns managed memory (cuMemAllocManaged), which the host and kernels reach at one address. Free frees it. It must not be larger
// than what the device has free, so that it never depends on how the driver makes room.
//
// Benchmarks compare resident tables with it. No cache uses it.
func (d *Device) AllocManaged(bytes int64, what string) (device.Buffer, error) {
	if !d.gpu.ManagesMemory() {
		return device.Buffer{}, fmt.Errorf("%w: device %d lacks concurrent access to managed memory", ErrUnsupported, d.ordinal)
	}
	free, err := d.FreeMemory()
	if err != nil {
		return device.Buffer{}, err
	}
	if bytes < 1 || bytes > free {
		return device.Buffer{}, fmt.Errorf("cuda: managed memory for %s (%d bytes) must be 1 to the %d bytes that device %d has free: %w",
			what, bytes, free, d.ordinal, device.ErrOutOfMemory)
	}
	m, err := d.ctx.AllocManaged(bytes)
	if err != nil {
		return device.Buffer{}, d.allocError(err, bytes, "managed "+what)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.buffers[uint64(m.DevicePtr())] = m
	return device.MappedBuffer(m.Bytes(), uint64(m.DevicePtr())), nil
}

// SettleManaged advises the driver to keep the first bytes of managed memory in the device's memory and the others in the host's, where the device
// reads them over the link; moves them there, and waits.
func (d *Device) SettleManaged(b device.Buffer, onDevice int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	m, ok := d.buffers[b.Addr()].(*driver.ManagedMem)
	if !ok || onDevice < 0 || onDevice > b.Size() {
		return fmt.Errorf("cuda: managed memory (%d bytes at %#x, %d of them on device %d) must be of AllocManaged, and hold those bytes",
			b.Size(), b.Addr(), onDevice, d.ordinal)
	}
	for _, share := range []struct {
		from, to int64
		onDevice bool
	}{{0, onDevice, true}, {onDevice, b.Size(), false}} {
		if share.from == share.to {
			continue
		}
		if err := m.Settle(share.from, share.to, share.onDevice, d.side); err != nil {
			return d.note(err)
		}
	}
	return d.note(d.side.Synchronize())
}
