//go:build cuda

package driver

/*
#include <cuda.h>
#include "shim.h"
*/
import "C"

import (
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

// RegisterHost page-locks memory until Free. The caller has mapped it: p is the start of a page, and not on the Go heap.
func (c *Context) RegisterHost(p unsafe.Pointer, bytes int64) (*HostMem, error) {
	m := &HostMem{ctx: c, pointer: p, bytes: bytes, registered: true}
	var device C.uint64_t
	flags := C.uint(C.CU_MEMHOSTREGISTER_PORTABLE | C.CU_MEMHOSTREGISTER_DEVICEMAP)
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
