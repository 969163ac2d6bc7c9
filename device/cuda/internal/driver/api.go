//go:build cuda

package driver

/*
#cgo CFLAGS: -std=c11 -Wall -I${SRCDIR}/include
#cgo LDFLAGS: -lcuda -ldl -lpthread
#include <stdlib.h>
#include "shim.h"
#include "tensorcache_cuda.h"

#cgo noescape tensorcache_stream_ctx
#cgo noescape tensorcache_stream_capturing
#cgo noescape tensorcache_event_elapsed
#cgo noescape tensorcache_function_attribute
#cgo noescape tensorcache_function_occupancy
#cgo noescape tensorcache_launch
#cgo noescape tensorcache_launch_begun
#cgo nocallback tensorcache_copy_to_device
#cgo nocallback tensorcache_copy_to_host
#cgo nocallback tensorcache_copy_device
#cgo nocallback tensorcache_copy_rows
#cgo nocallback tensorcache_fill8
#cgo nocallback tensorcache_stream_capturing
#cgo nocallback tensorcache_stream_wait_event
#cgo nocallback tensorcache_stream_write_value32
#cgo nocallback tensorcache_event_record
#cgo nocallback tensorcache_event_query
#cgo nocallback tensorcache_launch
#cgo nocallback tensorcache_launch_begun
#cgo nocallback tensorcache_stream_ctx
*/
import "C"

import (
	"fmt"
	"reflect"
	"unsafe"

	"gorgonia.org/cu"
)

// LoadError returns nil if a driver is usable, else an error that wraps ErrNoDriver and says why not. The first call loads the driver.
func LoadError() error {
	reason := C.tensorcache_cuda_load_error()
	if reason == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrNoDriver, C.GoString(reason))
}

// Version returns the newest CUDA version that the driver supports, as 1000·major + 10·minor, or 0 without a driver.
func Version() int {
	return max(cu.Version(), 0)
}

// has says whether the driver has the entry of an exported name, such as cuStreamWriteValue32_v2.
func has(entry string) bool {
	name := C.CString(entry)
	defer C.free(unsafe.Pointer(name))
	return C.tensorcache_cuda_has(name) != 0
}

func init() {
	driverResult = func(r Result) (name, text string) {
		var cname, ctext *C.char
		if C.tensorcache_error_name(C.int(r), &cname) == 0 && cname != nil {
			name = C.GoString(cname)
		}
		if C.tensorcache_error_string(C.int(r), &ctext) == 0 && ctext != nil {
			text = C.GoString(ctext)
		}
		return name, text
	}
}

// failed returns the error for a result other than success.
func failed(r C.int, call, what string, device int) error {
	return &Error{Result: Result(r), Call: call, What: what, Device: device}
}

// failedCU returns the error for an error of gorgonia.org/cu, which is an integer of an unexported type, or nil for nil.
func failedCU(err error, call, what string, device int) error {
	if err == nil {
		return nil
	}
	r := Result(999)
	if v := reflect.ValueOf(err); v.CanInt() {
		r = Result(v.Int())
	}
	return &Error{Result: r, Call: call, What: what, Device: device}
}
