//go:build cuda

package driver

/*
#include <cuda.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"
)

// HostMem is page-locked host memory that kernels of every context in the process can access. It is not on the Go heap.
type HostMem struct {
	ctx        *Context
	pointer    unsafe.Pointer
	bytes      int64
	device     DevicePtr
	registered bool
}

// AllocHost allocates page-locked memory.
func (c *Context) AllocHost(bytes int64) (*HostMem, error) {
	m := &HostMem{ctx: c, bytes: bytes}
	var device C.uint64_t
	flags := C.uint(C.CU_MEMHOSTALLOC_PORTABLE | C.CU_MEMHOSTALLOC_DEVICEMAP)
	r := C.tensorcache_host_alloc(c.handle, C.size_t(bytes), flags, &m.pointer, &device)
	if err := c.checkBytes(r, "cuMemHostAlloc", bytes); err != nil {
		return nil, err
	}
	m.device = DevicePtr(device)
	return m, nil
}

// RegisterHost page-locks memory until Free. The caller has mapped it: p is the start of a page, and not on the Go heap. Memory that is mapped
// to be read must be readOnly, which not every device supports: see ReadOnlyHost.
func (c *Context) RegisterHost(p unsafe.Pointer, bytes int64, readOnly bool) (*HostMem, error) {
	m := &HostMem{ctx: c, pointer: p, bytes: bytes, registered: true}
	var device C.uint64_t
	flags := C.uint(C.CU_MEMHOSTREGISTER_PORTABLE | C.CU_MEMHOSTREGISTER_DEVICEMAP)
	if readOnly {
		flags |= C.CU_MEMHOSTREGISTER_READ_ONLY
	}
	r := C.tensorcache_host_register(c.handle, p, C.size_t(bytes), flags, &device)
	if err := c.checkBytes(r, "cuMemHostRegister", bytes); err != nil {
		return nil, err
	}
	m.device = DevicePtr(device)
	return m, nil
}

// Free frees what AllocHost allocated, and unlocks what RegisterHost locked. A second Free does nothing.
func (m *HostMem) Free() error {
	p := m.pointer
	if p == nil {
		return nil
	}
	m.pointer, m.device = nil, 0
	if m.registered {
		return m.ctx.checkBytes(C.tensorcache_host_unregister(m.ctx.handle, p), "cuMemHostUnregister", m.bytes)
	}
	return m.ctx.do("cuMemFreeHost", ofBytes(m.bytes), func() error { return cu.MemFreeHost(p) })
}

// DevicePtr returns the address that kernels and copies use.
func (m *HostMem) DevicePtr() DevicePtr { return m.device }

// Bytes returns the memory itself. It must not be used after Free.
func (m *HostMem) Bytes() []byte { return unsafe.Slice((*byte)(m.pointer), m.bytes) }

// PageLocked returns the address that kernels in c use for host memory that is page-locked already, by this or another part of the process,
// or 0 if no page of it is. Memory of which only a part is page-locked is an error, and so is managed memory.
func (c *Context) PageLocked(p unsafe.Pointer, bytes int64) (DevicePtr, error) {
	start := uint64(uintptr(p))
	for at := start; at < start+uint64(bytes); {
		var info C.struct_tensorcache_pointer
		if err := c.checkBytes(C.tensorcache_pointer_info(c.handle, C.uint64_t(at), &info), "cuPointerGetAttributes", bytes); err != nil {
			return 0, err
		}
		end := uint64(info.start + info.bytes)
		switch known := info.memory_type == C.CU_MEMORYTYPE_HOST && end > at; {
		case info.managed != 0:
			return 0, fmt.Errorf("cuda: host memory (%d bytes) must not be managed memory", bytes)
		case !known && at == start:
			return 0, nil
		case !known:
			return 0, fmt.Errorf("cuda: host memory (%d bytes) must be page-locked as a whole or not at all: byte %d is not", bytes, at-start)
		}
		at = end
	}
	var device C.uint64_t
	r := C.tensorcache_host_address(c.handle, p, &device)
	return DevicePtr(device), c.checkBytes(r, "cuMemHostGetDevicePointer", bytes)
}
