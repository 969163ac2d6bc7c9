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
)

// Function is a kernel in a module.
type Function struct {
	ctx    *Context
	handle C.uintptr_t
	name   string
}

// functionAttribute is a CUfunction_attribute.
type functionAttribute int

// Attributes of functions; the last two can be set.
const (
	maxThreads       functionAttribute = C.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
	SharedBytes      functionAttribute = C.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES // static
	LocalBytes       functionAttribute = C.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES  // per thread: spills show here
	Registers        functionAttribute = C.CU_FUNC_ATTRIBUTE_NUM_REGS          // per thread
	ptxVersion       functionAttribute = C.CU_FUNC_ATTRIBUTE_PTX_VERSION
	binaryVersion    functionAttribute = C.CU_FUNC_ATTRIBUTE_BINARY_VERSION
	MaxDynamicShared functionAttribute = C.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
	SharedCarveout   functionAttribute = C.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT // percent of L1; -1: default
)

// Dim3 is the extent of a grid or block. Zeros in Y and Z count as 1.
type Dim3 struct{ X, Y, Z uint32 }

// shimMaxParams is the most parameters a kernel may have here.
const shimMaxParams = C.TENSORCACHE_MAX_PARAMS

// Name returns the kernel's name.
func (f *Function) Name() string { return f.name }

// Attribute returns an attribute's value.
func (f *Function) Attribute(a functionAttribute) (int, error) {
	var v C.int
	r := C.tensorcache_function_attribute(f.ctx.handle, f.handle, C.int(a), &v)
	return int(v), f.check(r, "cuFuncGetAttribute")
}

// SetAttribute sets an attribute.
func (f *Function) SetAttribute(a functionAttribute, value int) error {
	return f.check(C.tensorcache_function_set_attribute(f.ctx.handle, f.handle, C.int(a), C.int(value)),
		"cuFuncSetAttribute")
}

// MaxActiveBlocks returns how many blocks of so many threads and bytes of dynamic shared memory fit a multiprocessor.
func (f *Function) MaxActiveBlocks(threads int, shared int64) (int, error) {
	var blocks C.int
	r := C.tensorcache_function_occupancy(f.ctx.handle, f.handle, C.int(threads), C.size_t(shared), &blocks)
	return int(blocks), f.check(r, "cuOccupancyMaxActiveBlocksPerMultiprocessor")
}

// Param returns where parameter i lies in the kernel's parameter space. Drivers before CUDA 12.4 return notFound; an i
// past the last parameter is invalidValue.
func (f *Function) Param(i int) (offset, bytes int64, err error) {
	var o, n C.size_t
	r := C.tensorcache_function_param(f.ctx.handle, f.handle, C.size_t(i), &o, &n)
	return int64(o), int64(n), f.check(r, "cuFuncGetParamInfo")
}

// Launch enqueues the kernel with parameter i at args + offsets[i]. The parameters are copied before it returns, and
// nothing is allocated. shared is the dynamic shared memory per block in bytes. Kernel does the same in a typed way.
func (f *Function) Launch(s *Stream, grid, block Dim3, shared int, args unsafe.Pointer, offsets []uint16) error {
	r := C.tensorcache_launch(f.ctx.handle, f.handle,
		C.uint32_t(grid.X), C.uint32_t(max(grid.Y, 1)), C.uint32_t(max(grid.Z, 1)),
		C.uint32_t(block.X), C.uint32_t(max(block.Y, 1)), C.uint32_t(max(block.Z, 1)),
		C.uint32_t(shared), s.handle, args, (*C.uint16_t)(unsafe.Pointer(unsafe.SliceData(offsets))), C.uint32_t(len(offsets)))
	if r == 0 {
		return nil
	}
	return f.launchError(r, grid, block, shared)
}

// SignalsBegin says whether LaunchBegun works.
func SignalsBegin() bool { return Version() >= 12030 && has("cuLaunchKernelEx") }

// LaunchBegun is Launch of a kernel with one parameter, at args; the event, made without EventTiming, passes once all of its
// blocks have begun.
func (f *Function) LaunchBegun(s *Stream, blocks, threads, shared int, args unsafe.Pointer, e *Event) error {
	r := C.tensorcache_launch_begun(f.ctx.handle, f.handle, C.uint32_t(blocks), C.uint32_t(threads), C.uint32_t(shared), s.handle,
		args, e.handle)
	if r == 0 {
		return nil
	}
	return f.launchError(r, Dim3{X: uint32(blocks)}, Dim3{X: uint32(threads)}, shared)
}

func (f *Function) launchError(r C.int, grid, block Dim3, shared int) error {
	what := fmt.Sprintf("of %s, grid %d×%d×%d, block %d×%d×%d, %d bytes shared", f.name,
		grid.X, max(grid.Y, 1), max(grid.Z, 1), block.X, max(block.Y, 1), max(block.Z, 1), shared)
	return failed(r, "cuLaunchKernel", what, f.ctx.device.ordinal)
}

func (f *Function) check(r C.int, call string) error {
	if r == 0 {
		return nil
	}
	return failed(r, call, "of "+f.name, f.ctx.device.ordinal)
}
