//go:build cuda

package driver

import (
	"errors"
	"unsafe"
)

// Kernel is a function whose parameters are the fields of A, in order: integers, floats, DevicePtr, and arrays and
// structs of them, which the kernel takes by value. Fields named _ are padding. No field holds a Go pointer.
type Kernel[A any] struct {
	*Function
	offsets []uint16
}

// NewKernel returns a kernel by name. Where the driver can tell (CUDA 12.4 and later) it checks that the kernel's
// parameters are as many and as long as A's fields.
func NewKernel[A any](m *Module, name string) (*Kernel[A], error) {
	params, err := layoutOf[A]()
	if err != nil {
		return nil, err
	}
	f, err := m.Function(name)
	if err != nil {
		return nil, err
	}
	k := &Kernel[A]{Function: f, offsets: make([]uint16, len(params))}
	for i, p := range params {
		k.offsets[i] = p.offset
	}
	if !has("cuFuncGetParamInfo") {
		return k, nil
	}
	for i := 0; ; i++ {
		_, n, err := f.Param(i)
		switch {
		case err != nil && i == len(params):
			return k, nil
		case errors.Is(err, invalidValue):
			return nil, layoutError[A](name, "the kernel has %d parameters, the struct %d", i, len(params))
		case err != nil:
			return nil, err
		case i == len(params):
			return nil, layoutError[A](name, "the kernel has more than the struct's %d parameters", i)
		case n != int64(params[i].bytes):
			return nil, layoutError[A](name, "parameter %d, %s, has %d bytes in the kernel and %d in the struct",
				i, params[i].name, n, params[i].bytes)
		}
	}
}

// Launch enqueues the kernel; see Function.Launch. args is not used after it returns.
func (k *Kernel[A]) Launch(s *Stream, grid, block Dim3, shared int, args *A) error {
	return k.Function.Launch(s, grid, block, shared, unsafe.Pointer(args), k.offsets)
}
