//go:build cuda

package driver

/*
#include "shim.h"
*/
import "C"

import "unsafe"

// CopyToDeviceAsync enqueues a copy from the host. The source must not be freed before the copy is done. Go memory must be pinned until
// then.
func (s *Stream) CopyToDeviceAsync(dst DevicePtr, src unsafe.Pointer, bytes int64) error {
	return s.ctx.checkBytes(C.tensorcache_copy_to_device(s.ctx.handle, C.uint64_t(dst), src, C.size_t(bytes), s.handle),
		"cuMemcpyHtoDAsync", bytes)
}

// CopyToHostAsync enqueues a copy to the host. The rule of CopyToDeviceAsync holds for the destination.
func (s *Stream) CopyToHostAsync(dst unsafe.Pointer, src DevicePtr, bytes int64) error {
	return s.ctx.checkBytes(C.tensorcache_copy_to_host(s.ctx.handle, dst, C.uint64_t(src), C.size_t(bytes), s.handle),
		"cuMemcpyDtoHAsync", bytes)
}

// CopyAsync enqueues a copy within the device.
func (s *Stream) CopyAsync(dst, src DevicePtr, bytes int64) error {
	return s.ctx.checkBytes(C.tensorcache_copy_device(s.ctx.handle, C.uint64_t(dst), C.uint64_t(src), C.size_t(bytes),
		s.handle), "cuMemcpyDtoDAsync", bytes)
}

// CopyRowsAsync enqueues a copy of rows that lie back to back in src to dst, where each begins stride bytes after the one before it. Either may be
// device memory or page-locked.
func (s *Stream) CopyRowsAsync(dst DevicePtr, stride int64, src DevicePtr, row, rows int64) error {
	return s.ctx.checkBytes(C.tensorcache_copy_rows(s.ctx.handle, C.uint64_t(dst), C.size_t(stride), C.uint64_t(src), C.size_t(row), C.size_t(rows),
		s.handle), "cuMemcpy2DAsync", row*rows)
}

// Fill8Async enqueues setting count bytes.
func (s *Stream) Fill8Async(p DevicePtr, value uint8, count int64) error {
	return s.ctx.checkBytes(C.tensorcache_fill8(s.ctx.handle, C.uint64_t(p), C.uint8_t(value), C.size_t(count), s.handle),
		"cuMemsetD8Async", count)
}
