//go:build cuda

package driver

import (
	"fmt"

	"gorgonia.org/cu"
)

// DevicePtr is an address in the address space of kernels.
type DevicePtr uint64

// Alloc allocates device memory, aligned to at least 256 bytes.
func (c *Context) Alloc(bytes int64) (DevicePtr, error) {
	var p cu.DevicePtr
	err := c.do("cuMemAlloc", ofBytes(bytes), func() (err error) {
		p, err = cu.MemAlloc(bytes)
		return err
	})
	return DevicePtr(p), err
}

// Free frees memory of Alloc. It waits for enqueued work that uses it.
func (c *Context) Free(p DevicePtr) error {
	return c.do("cuMemFree", fmt.Sprintf("of %#x", uint64(p)), func() error { return cu.MemFree(cu.DevicePtr(p)) })
}
