//go:build cuda

package driver

/*
#include "shim.h"
*/
import "C"

import (
	"time"

	"gorgonia.org/cu"
)

// Event marks a point in a stream.
type Event struct {
	ctx    *Context
	cu     cu.Event
	handle C.uintptr_t
}

// NewEvent creates an event. Until it is first recorded it counts as passed. Since needs events with timing, which cost a little more.
func (c *Context) NewEvent(timing bool) (*Event, error) {
	e, flags := &Event{ctx: c}, cu.DisableTiming
	if timing {
		flags = cu.DefaultEvent
	}
	err := c.do("cuEventCreate", "", func() (err error) {
		e.cu, err = cu.MakeEvent(flags)
		return err
	})
	if err != nil {
		return nil, err
	}
	e.handle = cuHandle(&e.cu)
	return e, nil
}

// Destroy destroys the event. Waits for it that are already enqueued remain valid. A second Destroy does nothing.
func (e *Event) Destroy() error {
	if e.handle == 0 {
		return nil
	}
	e.handle = 0
	return e.ctx.do("cuEventDestroy", "", func() error { return cu.DestroyEvent(&e.cu) })
}

// Record enqueues the event: it passes when everything before it in the stream has finished.
func (e *Event) Record(s *Stream) error {
	return e.ctx.check(C.tensorcache_event_record(e.ctx.handle, e.handle, s.handle), "cuEventRecord")
}

// Query says whether the event has passed.
func (e *Event) Query() (passed bool, err error) {
	return e.ctx.ready(C.tensorcache_event_query(e.ctx.handle, e.handle), "cuEventQuery")
}

// Synchronize waits until the event has passed.
func (e *Event) Synchronize() error {
	return e.ctx.check(C.tensorcache_event_synchronize(e.ctx.handle, e.handle), "cuEventSynchronize")
}

// Since returns the time from start to e. Both must have passed, and have timing.
func (e *Event) Since(start *Event) (time.Duration, error) {
	var ms C.float
	r := C.tensorcache_event_elapsed(e.ctx.handle, start.handle, e.handle, &ms)
	return time.Duration(float64(ms) * float64(time.Millisecond)), e.ctx.check(r, "cuEventElapsedTime")
}
