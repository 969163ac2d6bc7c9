//go:build cuda

package driver

/*
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"syscall"

	"gorgonia.org/cu"
)

// SharedMem is device memory that other processes can map.
type SharedMem struct {
	ctx     *Context
	handle  C.uint64_t // 0 if the memory was imported
	pointer DevicePtr
	bytes   int64 // as asked for
	mapped  int64 // in whole units
}

// Shares returns an error if the device or its driver cannot share memory with other processes.
func (d Device) Shares() error {
	for _, need := range []struct {
		attribute cu.DeviceAttribute
		what      string
	}{{virtualMemory, "virtual memory management"}, {fileDescriptor, "exporting memory as file descriptors"}} {
		if has, err := d.Attribute(need.attribute); err != nil || has == 0 {
			return errors.Join(fmt.Errorf("cuda: device %d must support %s", d.ordinal, need.what), err)
		}
	}
	return nil
}

// ReadOnlyHost says whether host memory that is mapped to be read can be page-locked.
func (d Device) ReadOnlyHost() bool {
	has, err := d.Attribute(readOnlyHost)
	return err == nil && has != 0
}

// AllocShared allocates memory of the context's device that other processes can map, in whole units of the driver's granularity. The device and
// its readers can access it. It is not zeroed.
func (c *Context) AllocShared(bytes int64, readers []Device) (*SharedMem, error) {
	mapped, err := c.wholeUnits(c.device, bytes)
	if err != nil {
		return nil, err
	}
	m := &SharedMem{ctx: c, bytes: bytes, mapped: mapped}
	r := C.tensorcache_shared_create(c.handle, C.int(c.device.cu), C.size_t(mapped), &m.handle)
	if err := c.checkBytes(r, "cuMemCreate", mapped); err != nil {
		return nil, err
	}
	if err := m.mapTo(m.handle, append([]Device{c.device}, readers...), true); err != nil {
		return nil, errors.Join(err, c.release(m.handle))
	}
	return m, nil
}

// ImportShared maps memory that another Context has exported, here or in another process; bytes is the number that were asked for there. The
// readers for which reads says that they can access the memory of the device it lies on are given access. If the process does not see that device
// (CUDA_VISIBLE_DEVICES), it is asked for the context's device, and the driver refuses readers that cannot reach the memory. Without writable
// they may only read, if the driver supports that.
func (c *Context) ImportShared(fd uintptr, bytes int64, writable bool, readers func(on Device) ([]Device, error)) (*SharedMem, error) {
	var handle C.uint64_t
	var device C.int
	var call *C.char
	if r := C.tensorcache_shared_import(c.handle, C.int(fd), &handle, &device, &call); r != 0 {
		return nil, failed(r, C.GoString(call), fmt.Sprintf("of descriptor %d", fd), c.device.ordinal)
	}
	m := &SharedMem{ctx: c, bytes: bytes}
	on := c.device
	if device >= 0 && int(device) < NumDevices() {
		on = Device{ordinal: int(device), cu: cu.Device(device)}
	}
	access, err := readers(on)
	if err == nil {
		m.mapped, err = c.wholeUnits(on, bytes)
	}
	if err == nil {
		err = m.mapTo(handle, access, writable)
	}
	// A mapping holds the memory without the handle.
	if err := errors.Join(err, c.release(handle)); err != nil {
		return nil, err
	}
	return m, nil
}

// wholeUnits returns the size of the units of a device's memory that hold so many bytes.
func (c *Context) wholeUnits(of Device, bytes int64) (int64, error) {
	var unit C.size_t
	r := C.tensorcache_shared_granularity(c.handle, C.int(of.cu), &unit)
	if err := c.check(r, "cuMemGetAllocationGranularity"); err != nil {
		return 0, err
	}
	return (bytes + int64(unit) - 1) / int64(unit) * int64(unit), nil
}

func (m *SharedMem) mapTo(handle C.uint64_t, devices []Device, writable bool) error {
	var ordinals [C.TENSORCACHE_MAX_DEVICES]C.int
	for i, d := range devices[:min(len(devices), len(ordinals))] {
		ordinals[i] = C.int(d.cu)
	}
	var write C.int
	if writable {
		write = 1
	}
	var address C.uint64_t
	var call *C.char
	r := C.tensorcache_shared_map(m.ctx.handle, handle, C.size_t(m.mapped), &ordinals[0], C.uint32_t(len(devices)), write, &address, &call)
	if r != 0 {
		return m.ctx.checkBytes(r, C.GoString(call), m.mapped)
	}
	m.pointer = DevicePtr(address)
	return nil
}

func (c *Context) release(handle C.uint64_t) error {
	return c.check(C.tensorcache_shared_release(c.handle, handle), "cuMemRelease")
}

// DevicePtr returns the address that kernels and copies use.
func (m *SharedMem) DevicePtr() DevicePtr { return m.pointer }

// Bytes returns the size that was asked for.
func (m *SharedMem) Bytes() int64 { return m.bytes }

// Imported says whether the memory was imported. Such memory cannot be exported.
func (m *SharedMem) Imported() bool { return m.handle == 0 }

// Export returns a new file descriptor of the memory, which child processes do not inherit.
func (m *SharedMem) Export() (uintptr, error) {
	var fd C.int
	r := C.tensorcache_shared_export(m.ctx.handle, m.handle, &fd)
	if err := m.ctx.checkBytes(r, "cuMemExportToShareableHandle", m.bytes); err != nil {
		return 0, err
	}
	syscall.CloseOnExec(int(fd))
	return uintptr(fd), nil
}

// Free unmaps the memory. Nothing that is enqueued may use it any more. The memory itself stays while other mappings or descriptors of it exist.
func (m *SharedMem) Free() error {
	if m.pointer == 0 {
		return nil
	}
	var call *C.char
	var err error
	if r := C.tensorcache_shared_unmap(m.ctx.handle, C.uint64_t(m.pointer), C.size_t(m.mapped), &call); r != 0 {
		err = m.ctx.checkBytes(r, C.GoString(call), m.mapped)
	}
	m.pointer = 0
	if m.handle != 0 {
		err = errors.Join(err, m.ctx.release(m.handle))
		m.handle = 0
	}
	return err
}
