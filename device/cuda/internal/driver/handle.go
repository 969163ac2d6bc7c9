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

// gorgonia.org/cu keeps its handles to itself; each of these types is a struct of the one handle.
var (
	_ [unsafe.Sizeof(uintptr(0))]byte = [unsafe.Sizeof(cu.CUContext{})]byte{}
	_ [unsafe.Sizeof(uintptr(0))]byte = [unsafe.Sizeof(cu.Stream{})]byte{}
	_ [unsafe.Sizeof(uintptr(0))]byte = [unsafe.Sizeof(cu.Event{})]byte{}
)

// cuHandle returns the CUDA handle in an object of gorgonia.org/cu.
func cuHandle[T cu.CUContext | cu.Stream | cu.Event](object *T) C.uintptr_t {
	return *(*C.uintptr_t)(unsafe.Pointer(object))
}
