//go:build cuda && linux

package cuda

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda/internal/driver"
	"github.com/tensorcache/tensorcache/internal/numa"
)

// pageLocked is page-locked memory, to be freed.
type pageLocked interface{ Free() error }

// onNodes is memory that lies on nodes of the host and was page-locked after.
type onNodes struct {
	locked *driver.HostMem
	memory *numa.Memory
}

// Free unlocks and frees the memory. What cannot be unlocked, because the context is lost, stays: other devices may read it.
func (m *onNodes) Free() error {
	if err := m.locked.Free(); err != nil {
		return err
	}
	return m.memory.Free()
}

// AllocHostOn implements device.NodeAllocator. The memory is mapped and page-locked: the driver's own lies where the driver puts it.
func (d *Device) AllocHostOn(nodes []int, bytes int64, what string) (device.Buffer, error) {
	if err := device.CheckSize(bytes, what); err != nil {
		return device.Buffer{}, err
	}
	return d.allocMapped(nodes, bytes, what)
}

// allocMapped maps memory on nodes, of huge pages where the system gives them, and page-locks it.
func (d *Device) allocMapped(nodes []int, bytes int64, what string) (device.Buffer, error) {
	memory, err := numa.Alloc(max(bytes, 1), nodes)
	if err != nil {
		return device.Buffer{}, fmt.Errorf("cuda: allocation for %s: %w", what, err)
	}
	memory.Populate()
	at := unsafe.Pointer(unsafe.SliceData(memory.Bytes()))
	locked, err := d.ctx.RegisterHost(at, int64(len(memory.Bytes())))
	if err != nil {
		return device.Buffer{}, d.allocError(errors.Join(err, memory.Free()), bytes, "page-locked "+what)
	}
	m := &onNodes{locked, memory}
	address := uint64(locked.DevicePtr())
	if address != uint64(uintptr(at)) { // it could be another for each device
		return device.Buffer{}, errors.Join(fmt.Errorf("cuda: page-locked memory for %s on device %d has another address there", what, d.ordinal), m.Free())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.buffers[address] = m
	return device.MappedBuffer(memory.Bytes()[:bytes:bytes], address), nil
}

// mappedHost is from how many bytes on host memory is mapped and page-locked, instead of the driver's own, whose pages processors
// see as small ones. 16 GiB are there seconds sooner, and processors gather rows at random from 2 MiB pages by about 5 % faster beside an
// H200 (1.3 to 1.5 times on a 2-core virtual machine). Little memory is not worth a mapping.
const mappedHost = 64 << 20

// mapsHost says whether so much host memory is to be mapped. Where the system could hardly give it, the driver is asked: it fails, and
// a process that page-locks more than there is may be killed.
func mapsHost(bytes int64) bool {
	if bytes < mappedHost {
		return false
	}
	free, err := numa.Available()
	return err == nil && bytes <= free-free/8
}
