//go:build cuda

package driver

/*
#include <cuda.h>
#include "shim.h"
*/
import "C"

import "unsafe"

// ManagedMem is memory that the host and kernels reach at one address. The driver moves its pages between host and devices.
type ManagedMem struct {
	ctx     *Context
	pointer unsafe.Pointer
	bytes   int64
}

// ManagesMemory says whether the host and the device may use managed memory at the same time, which advice about its place needs.
func (d Device) ManagesMemory() bool {
	has, err := d.Attribute(concurrentManaged)
	return err == nil && has != 0
}

// AllocManaged allocates managed memory.
func (c *Context) AllocManaged(bytes int64) (*ManagedMem, error) {
	m := &ManagedMem{ctx: c, bytes: bytes}
	if err := c.checkBytes(C.tensorcache_managed_alloc(c.handle, C.size_t(bytes), &m.pointer), "cuMemAllocManaged", bytes); err != nil {
		return nil, err
	}
	return m, nil
}

// Settle tells the driver to keep the bytes from..to in the memory of the context's device, or in that of the host, and moves them there, in
// the stream's order. The device reads bytes in host memory over the link, and does not move them. Borders are rounded to pages by the driver.
func (m *ManagedMem) Settle(from, to int64, onDevice bool, s *Stream) error {
	location := C.int(C.CU_DEVICE_CPU)
	if onDevice {
		location = C.int(m.ctx.device.cu)
	}
	var call *C.char
	r := C.tensorcache_managed_settle(m.ctx.handle, C.uint64_t(m.DevicePtr())+C.uint64_t(from), C.size_t(to-from), location,
		C.int(m.ctx.device.cu), s.handle, &call)
	if r != 0 {
		return m.ctx.checkBytes(r, C.GoString(call), to-from)
	}
	return nil
}

// Free frees the memory. A second Free does nothing.
func (m *ManagedMem) Free() error {
	p := m.DevicePtr()
	if p == 0 {
		return nil
	}
	m.pointer = nil
	return m.ctx.Free(p)
}

// DevicePtr returns the address that kernels and copies use, which is that of Bytes.
func (m *ManagedMem) DevicePtr() DevicePtr { return DevicePtr(uintptr(m.pointer)) }

// Bytes returns the memory itself. It must not be used after Free.
func (m *ManagedMem) Bytes() []byte { return unsafe.Slice((*byte)(m.pointer), m.bytes) }
