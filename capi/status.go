//go:build cgo

package main

// #include "bridge.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
)

// status is a tc_status.
type status = C.int

// failure is an error with a status of its own.
type failure struct {
	status status
	error
}

func (f failure) Unwrap() error { return f.error }

// argument returns an error of status TC_ERROR_ARGUMENT.
func argument(format string, values ...any) error {
	return failure{C.TC_ERROR_ARGUMENT, fmt.Errorf("tensorcache: "+format, values...)}
}

// as gives an error the status that it has unless statusOf knows a better one. nil stays nil.
func as(s status, err error) error {
	if err == nil {
		return nil
	}
	if known := statusOf(err); known != C.TC_ERROR_ARGUMENT {
		s = known
	}
	return failure{s, err}
}

// errClosed is the error of a handle that is none.
func errClosed(what string) error {
	return failure{C.TC_ERROR_CLOSED, fmt.Errorf("tensorcache: %s is closed, or the handle is none", what)}
}

// statuses are the errors that have a status. The first one that matches counts.
var statuses = []struct {
	err    error
	status status
}{
	{cache.ErrClosed, C.TC_ERROR_CLOSED},
	{cache.ErrTable, C.TC_ERROR_TABLE},
	{cache.ErrRows, C.TC_ERROR_ROWS},
	{device.ErrOutOfMemory, C.TC_ERROR_OUT_OF_MEMORY},
	{cache.ErrBudget, C.TC_ERROR_BUDGET},
	{cache.ErrCapturing, C.TC_ERROR_CAPTURE},
	{cache.ErrCorrupt, C.TC_ERROR_CORRUPT},
	{cache.ErrPolicy, C.TC_ERROR_POLICY},
	{cache.ErrDevice, C.TC_ERROR_DEVICE},
	{context.Canceled, C.TC_ERROR_CANCELLED},
	{cuda.ErrUnsupported, C.TC_ERROR_DEVICE},
}

// statusOf returns the status of an error that is not nil.
func statusOf(err error) status {
	if f, ok := errors.AsType[failure](err); ok {
		return f.status
	}
	for _, s := range statuses {
		if errors.Is(err, s.err) {
			return s.status
		}
	}
	if cuda.IsDriverError(err) {
		return C.TC_ERROR_DEVICE
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return C.TC_ERROR_FILE
	}
	return C.TC_ERROR_ARGUMENT
}

// result returns the status of an error, and keeps its text for tc_last_error. The goroutine of a call from C runs on the caller's thread.
func result(err error) status {
	if err == nil {
		return C.TC_OK
	}
	text := err.Error()
	C.tcgo_set_error(unsafe.Pointer(unsafe.StringData(text)), C.size_t(len(text)))
	return statusOf(err)
}

// recovered turns a panic into TC_ERROR_INTERNAL. It is deferred by every exported function.
func recovered(s *status) {
	if p := recover(); p != nil {
		*s = result(panicked(p))
	}
}

// panicked returns the error of a panic. It is called by who recovers from it.
func panicked(p any) error {
	return failure{C.TC_ERROR_INTERNAL, fmt.Errorf("tensorcache: internal error: %v\n%s", p, debug.Stack())}
}

// errTooMany is the error of a handle too many.
var errTooMany = errors.New("tensorcache: too many handles")
