package main

// #include "bridge.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"runtime/debug"
	"strings"
	"unsafe"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/unix"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/faults"
	"github.com/tensorcache/tensorcache/internal/foreign"
	"github.com/tensorcache/tensorcache/internal/memlimit"
)

// status is a tc_status.
type status = C.int

const statusClosed = C.TC_ERROR_CLOSED

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

// arguments returns the error of faults of arguments, nil if there are none.
func arguments(f *faults.List) error {
	if err := f.Err(); err != nil {
		return failure{C.TC_ERROR_ARGUMENT, err}
	}
	return nil
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

// statuses are the errors that have a status. The first one that matches counts.
var statuses = []struct {
	err    error
	status status
}{
	{cache.ErrOwner, C.TC_ERROR_OWNER},
	{cache.ErrHeld, C.TC_ERROR_OWNER},
	{cache.ErrClosed, C.TC_ERROR_CLOSED},
	{cache.ErrTable, C.TC_ERROR_TABLE},
	{cache.ErrRows, C.TC_ERROR_ROWS},
	{device.ErrOutOfMemory, C.TC_ERROR_OUT_OF_MEMORY},
	{cache.ErrBudget, C.TC_ERROR_BUDGET},
	{cache.ErrCapturing, C.TC_ERROR_CAPTURE},
	{cache.ErrCorrupt, C.TC_ERROR_CORRUPT},
	{cache.ErrCold, C.TC_ERROR_FILE}, // after ErrClosed, ErrTable and ErrRows

	{cache.ErrPolicy, C.TC_ERROR_POLICY},
	{cache.ErrDevice, C.TC_ERROR_DEVICE},
	{context.Canceled, C.TC_ERROR_CANCELLED},
	{foreign.ErrFault, C.TC_ERROR_FILE},
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

// errPending has the status TC_PENDING, which is no failure.
var errPending = errors.New("tensorcache: not finished")

// result returns the status of an error, and keeps its text for tc_last_error. The goroutine of a call from C runs on the caller's thread.
func result(err error) status {
	switch err {
	case nil:
		return C.TC_OK
	case errPending:
		return C.TC_PENDING
	}
	text := message(err)
	C.tcgo_set_error(unsafe.Pointer(unsafe.StringData(text)), C.size_t(len(text)))
	return statusOf(err)
}

// names are the words of package cache, in errors, that this interface has others for.
var names = strings.NewReplacer("GPUMemory (", "gpu_memory (", "Buddy (", "resident_buddy (", "MaxTarget", "resident_max_target", "MaxOverflow", "resident_overflow", "; FromBytes copies it instead", "; TC_MEMORY_COPY, in Python adopt=False, copies it")

// message returns the text of an error. Too little page-locked memory is the one lack that the driver does not give a reason for, and users
// can do something about: so the text says how much there is and what to try.
func message(err error) string {
	text := names.Replace(err.Error())
	if !errors.Is(err, device.ErrOutOfMemory) || !strings.Contains(text, "page-locked") {
		return text
	}
	text += "\nAll rows lie in page-locked host memory."
	if free, known := memlimit.Free(); known {
		text += fmt.Sprintf(" This process may still take %s (%s).", humanize.Bytes(uint64(free.Bytes)), free.From)
	}
	var lock unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &lock) == nil && lock.Cur < math.MaxInt64 {
		text += fmt.Sprintf(" `ulimit -l` is %s: set it to unlimited.", humanize.IBytes(lock.Cur))
	}
	return text + " Adopt memory that is page-locked already, open fewer rows, or take a host with more memory."
}

// call returns the status of what an exported function does. Such a function that has a handle calls with instead.
func call(do func() error) (st status) {
	defer recovered(&st)
	return result(do())
}

// with is call with the object of a handle.
func (s *handles[T]) with(h C.uintptr_t, do func(object T) error) (st status) {
	defer recovered(&st)
	object, ok := s.get(handle(h))
	if !ok {
		return result(s.missing(handle(h)))
	}
	return result(do(object))
}

// recovered turns a panic into TC_ERROR_INTERNAL.
func recovered(s *status) {
	if p := recover(); p != nil {
		*s = result(panicked(p))
	}
}

// panicked returns the error of a panic. It is called by who recovers from it.
func panicked(p any) error {
	return failure{C.TC_ERROR_INTERNAL, fmt.Errorf("tensorcache: internal error: %v\n%s", p, debug.Stack())}
}
