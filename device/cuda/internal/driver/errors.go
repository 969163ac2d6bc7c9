package driver

import (
	"errors"
	"strconv"
	"strings"
)

// ErrNoDriver is returned, wrapped with the reason, where a driver is needed and none is usable.
var ErrNoDriver = errors.New("cuda: no usable driver")

// Error is a failed driver call.
type Error struct {
	Result Result
	Call   string // the driver's entry, such as cuMemAlloc
	What   string // the object of the call, such as "of 4096 bytes"; may be empty
	Device int    // ordinal, or -1
	Log    string // of the PTX compiler; may be empty
}

// Error reads, for instance:
//
//	cuda: cuMemAlloc of 1073741824 bytes on device 0: CUDA_ERROR_OUT_OF_MEMORY (out of memory)
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("cuda: ")
	b.WriteString(e.Call)
	if e.What != "" {
		b.WriteString(" " + e.What)
	}
	if e.Device >= 0 {
		b.WriteString(" on device " + strconv.Itoa(e.Device))
	}
	b.WriteString(": " + e.Result.Error())
	if e.Log != "" {
		b.WriteString(": " + e.Log)
	}
	return b.String()
}

// Unwrap returns the result, so that errors.Is(err, driver.OutOfMemory) works.
func (e *Error) Unwrap() error { return e.Result }

// IsSticky says whether err is, or wraps, a result after which the context is lost.
func IsSticky(err error) bool {
	var r Result
	return errors.As(err, &r) && r.Sticky()
}
