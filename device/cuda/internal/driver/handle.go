//go:build cuda

package driver

/*
#include "shim.h"
*/
import "C"

import (
	"unsafe"

	"gorgonia.org/cu"
)

// gorgonia.org/cu does not export its handles. Each of these types is a struct with the handle as its only field.
var (
	_ [unsafe.Sizeof(uintptr(0))]byte = [unsafe.Sizeof(cu.CUContext{})]byte{}
	_ [unsafe.Sizeof(uintptr(0))]byte = [unsafe.Sizeof(cu.Stream{})]byte{}
	_ [unsafe.Sizeof(uintptr(0))]byte = [unsafe.Sizeof(cu.Event{})]byte{}
)

// cuHandle returns the CUDA handle in an object of gorgonia.org/cu.
func cuHandle[T cu.CUContext | cu.Stream | cu.Event](object *T) C.uintptr_t {
	return *(*C.uintptr_t)(unsafe.Pointer(object))
}
