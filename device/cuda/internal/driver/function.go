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

// Function is a kernel in a module. It takes one parameter, by value: a struct of numbers, or of arrays and structs of them.
type Function struct {
	ctx    *Context
	handle C.uintptr_t
	name   string
}

// functionAttribute is a CUfunction_attribute.
type functionAttribute int

// Attributes of functions. The last two can be set.
const (
	SharedBytes      functionAttribute = C.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES // static
	LocalBytes       functionAttribute = C.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES  // per thread: spills show here
	Registers        functionAttribute = C.CU_FUNC_ATTRIBUTE_NUM_REGS          // per thread
	MaxDynamicShared functionAttribute = C.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
	SharedCarveout   functionAttribute = C.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT // percent of L1; -1: default
)

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

// MaxActiveBlocks returns how many blocks of so many threads and bytes of dynamic shared memory a multiprocessor can run at once.
func (f *Function) MaxActiveBlocks(threads int, shared int64) (int, error) {
	var blocks C.int
	r := C.tensorcache_function_occupancy(f.ctx.handle, f.handle, C.int(threads), C.size_t(shared), &blocks)
	return int(blocks), f.check(r, "cuOccupancyMaxActiveBlocksPerMultiprocessor")
}

// parameter is the offset of a kernel's one parameter in its arguments.
var parameter C.uint16_t

// Launch enqueues the kernel on a grid of blocks, with its parameter at args, which is copied before Launch returns, and shared bytes of
// dynamic shared memory a block. begun, if not nil, was made without timing and passes once all blocks have begun; it needs a driver for
// which SignalsBegin is true. Nothing is allocated.
func (f *Function) Launch(s *Stream, blocks, threads, shared int, args unsafe.Pointer, begun *Event) error {
	grid, block, bytes := C.uint32_t(blocks), C.uint32_t(threads), C.uint32_t(shared)
	var r C.int
	if begun == nil {
		r = C.tensorcache_launch(f.ctx.handle, f.handle, grid, 1, 1, block, 1, 1, bytes, s.handle, args, &parameter, 1)
	} else {
		r = C.tensorcache_launch_begun(f.ctx.handle, f.handle, grid, block, bytes, s.handle, args, begun.handle)
	}
	return f.launched(r, blocks, threads, shared)
}

// SignalsBegin says whether the driver can signal that all blocks of a launch have begun.
func SignalsBegin() bool { return Version() >= 12030 && has("cuLaunchKernelEx") }

// launched returns the error for the result of a launch, or nil.
func (f *Function) launched(r C.int, blocks, threads, shared int) error {
	if r == 0 {
		return nil
	}
	what := fmt.Sprintf("of %s, grid %d, block %d, %d bytes shared", f.name, blocks, threads, shared)
	return failed(r, "cuLaunchKernel", what, f.ctx.device.ordinal)
}

func (f *Function) check(r C.int, call string) error {
	if r == 0 {
		return nil
	}
	return failed(r, call, "of "+f.name, f.ctx.device.ordinal)
}
