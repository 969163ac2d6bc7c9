//go:build cuda

package driver

/*
#include <cuda.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"

	"gorgonia.org/cu"
)

// Stream is a queue of work on a device.
type Stream struct {
	ctx    *Context
	cu     cu.Stream
	handle C.uintptr_t
	owned  bool
}

// NewStream creates a stream that does not wait for the legacy default stream.
func (c *Context) NewStream() (*Stream, error) {
	s := &Stream{ctx: c, owned: true}
	err := c.do("cuStreamCreateWithPriority", "", func() (err error) {
		s.cu, err = cu.MakeStreamWithPriority(0, cu.NonBlocking)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.handle = cuHandle(&s.cu)
	return s, nil
}

// WrapStream returns a Stream for a CUstream of the caller, which must be of this context. 0, 1 and 2 are the default streams: the
// context's, the legacy one, and the thread's own, which goroutines should not use. Destroy does not destroy the CUstream.
func (c *Context) WrapStream(handle uintptr) (*Stream, error) {
	s := &Stream{ctx: c, handle: C.uintptr_t(handle)}
	if err := s.CheckOwner(); err != nil {
		return nil, err
	}
	return s, nil
}

// CheckOwner returns an error if the stream is of another context.
func (s *Stream) CheckOwner() error {
	if s.handle <= 2 {
		return nil
	}
	var owner C.uintptr_t
	if err := s.ctx.check(C.tensorcache_stream_ctx(s.ctx.handle, s.handle, &owner), "cuStreamGetCtx"); err != nil {
		return err
	}
	if owner != s.ctx.handle {
		return fmt.Errorf("cuda: stream %#x is of another context than the primary context of device %d",
			uintptr(s.handle), s.ctx.device.ordinal)
	}
	return nil
}

// Destroy destroys a stream of NewStream. Enqueued work still finishes.
func (s *Stream) Destroy() error {
	if !s.owned {
		return nil
	}
	s.owned = false
	return s.ctx.do("cuStreamDestroy", "", s.cu.Destroy)
}

// Handle returns the CUstream.
func (s *Stream) Handle() uintptr { return uintptr(s.handle) }

// Synchronize waits until all work enqueued so far has finished, and returns an error if any of it failed.
func (s *Stream) Synchronize() error {
	return s.ctx.check(C.tensorcache_stream_synchronize(s.ctx.handle, s.handle), "cuStreamSynchronize")
}

// IsCapturing says whether the stream is capturing a graph, or has failed to.
func (s *Stream) IsCapturing() (bool, error) {
	var status C.int
	r := C.tensorcache_stream_capturing(s.ctx.handle, s.handle, &status)
	return status != C.CU_STREAM_CAPTURE_STATUS_NONE, s.ctx.check(r, "cuStreamIsCapturing")
}

// WaitEvent makes later work of the stream wait for the event as last recorded.
func (s *Stream) WaitEvent(e *Event) error {
	return s.ctx.check(C.tensorcache_stream_wait_event(s.ctx.handle, s.handle, e.handle), "cuStreamWaitEvent")
}

// WriteValue32 enqueues a store of one word. It happens when all earlier work of the stream is done.
func (s *Stream) WriteValue32(p DevicePtr, value uint32) error {
	return s.ctx.check(C.tensorcache_stream_write_value32(s.ctx.handle, s.handle, C.uint64_t(p), C.uint32_t(value)),
		"cuStreamWriteValue32")
}

// ready returns false for CUDA_ERROR_NOT_READY, true for success, and else an error.
func (c *Context) ready(r C.int, call string) (bool, error) {
	if Result(r) == notReady {
		return false, nil
	}
	return r == 0, c.check(r, call)
}
