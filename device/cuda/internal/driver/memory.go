//go:build cuda

package driver

import (
	"fmt"

	"gorgonia.org/cu"
)

// DevicePtr is an address as kernels see it.
type DevicePtr uint64

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
