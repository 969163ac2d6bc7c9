//go:build cuda

package driver

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"

	"gorgonia.org/cu"
)

// DevicePtr is an address as kernels see it.
type DevicePtr uint64

// Add returns the address n bytes on.
func (p DevicePtr) Add(n int64) DevicePtr { return p + DevicePtr(n) }

// Alloc allocates device memory, aligned to 256 bytes at least.
func (c *Context) Alloc(bytes int64) (DevicePtr, error) {
	var p cu.DevicePtr
	err := c.do("cuMemAlloc", ofBytes(bytes), func() (err error) {
		p, err = cu.MemAlloc(bytes)
		return err
	})
	return DevicePtr(p), err
}

// Free frees what Alloc returned. Work under way that uses it finishes first.
func (c *Context) Free(p DevicePtr) error {
	return c.do("cuMemFree", fmt.Sprintf("of %#x", uint64(p)), func() error { return cu.MemFree(cu.DevicePtr(p)) })
}

// kind says where memory lies.
type kind uint32

// The kinds of memory.
const (
	kindUnknown kind = 0 // the driver does not know the address: ordinary host memory, or none
	kindHost    kind = 1 // page-locked
	kindDevice  kind = 2
	kindUnified kind = 4
)

// pointerInfo is what the driver knows about an address.
type pointerInfo struct {
	Kind    kind
	Managed bool
	Device  int       // ordinal of the device that the memory is on or was registered for; -1: unknown
	Start   DevicePtr // of the allocation
	Bytes   int64     // of the allocation
	Context uintptr   // the CUcontext it was made in; 0: none
}

// Pointer returns what the driver knows about an address, of the host or a device.
func (c *Context) Pointer(p DevicePtr) (pointerInfo, error) {
	var info C.struct_tensorcache_pointer
	if r := C.tensorcache_pointer_info(c.handle, C.uint64_t(p), &info); r != 0 {
		return pointerInfo{}, failed(r, "cuPointerGetAttributes", fmt.Sprintf("of %#x", uint64(p)), c.device.ordinal)
	}
	if info.memory_type == 0 {
		return pointerInfo{Device: -1}, nil
	}
	return pointerInfo{
		Kind:    kind(info.memory_type),
		Managed: info.managed != 0,
		Device:  int(info.device),
		Start:   DevicePtr(info.start),
		Bytes:   int64(info.bytes),
		Context: uintptr(info.context),
	}, nil
}
