//go:build cuda

package driver

/*
#include <cuda.h>
#include "shim.h"
*/
import "C"

import (
	"errors"
	"runtime"
)

// Graph is a captured graph that can be launched.
type Graph struct {
	ctx  *Context
	exec C.uintptr_t
}

// Capture runs f while the stream captures a graph, and returns what was captured. After an error nothing is left of the graph. If global is
// set, calls that could break a capture do break this one, in any thread of the process; that is CUDA's default. Else all calls are allowed.
func (s *Stream) Capture(global bool, f func() error) (*Graph, error) {
	mode := C.int(C.CU_STREAM_CAPTURE_MODE_RELAXED)
	if global {
		mode = C.CU_STREAM_CAPTURE_MODE_GLOBAL
	}
	runtime.LockOSThread() // the thread that begins a capture must end it
	defer runtime.UnlockOSThread()
	if err := s.ctx.check(C.tensorcache_stream_begin_capture(s.ctx.handle, s.handle, mode), "cuStreamBeginCapture"); err != nil {
		return nil, err
	}
	err := f()
	g := &Graph{ctx: s.ctx}
	var graph C.uintptr_t
	err = errors.Join(err, s.ctx.check(C.tensorcache_stream_end_capture(s.ctx.handle, s.handle, &graph), "cuStreamEndCapture"))
	if graph == 0 {
		return nil, err
	}
	if err == nil {
		err = s.ctx.check(C.tensorcache_graph_instantiate(s.ctx.handle, graph, &g.exec), "cuGraphInstantiate")
	}
	if err = errors.Join(err, s.ctx.check(C.tensorcache_graph_destroy(s.ctx.handle, graph), "cuGraphDestroy")); err != nil {
		return nil, errors.Join(err, g.Destroy())
	}
	return g, nil
}

// Launch enqueues a replay of the graph. Replays of one graph do not overlap.
func (g *Graph) Launch(s *Stream) error {
	return g.ctx.check(C.tensorcache_graph_launch(g.ctx.handle, g.exec, s.handle), "cuGraphLaunch")
}

// Destroy destroys the graph. Replays that are enqueued still run. A second Destroy does nothing.
func (g *Graph) Destroy() error {
	if g.exec == 0 {
		return nil
	}
	if err := g.ctx.check(C.tensorcache_graph_exec_destroy(g.ctx.handle, g.exec), "cuGraphExecDestroy"); err != nil {
		return err
	}
	g.exec = 0
	return nil
}

// Hold says when a graph has been destroyed. It is used by one goroutine at a time.
type Hold struct{ hold *C.struct_tensorcache_hold }

// Hold returns a hold on the graph that the stream captures. Drivers before CUDA 11.4 have none: then the error is NotFound.
func (s *Stream) Hold() (*Hold, error) {
	var hold *C.struct_tensorcache_hold
	if err := s.ctx.check(C.tensorcache_hold_capture(s.ctx.handle, s.handle, &hold), "cuGraphRetainUserObject"); err != nil {
		return nil, err
	}
	return &Hold{hold}, nil
}

// Over says whether the graph, and everything that was instantiated of it, has been destroyed and runs no more. It must not be called after
// Free.
func (h *Hold) Over() bool { return C.tensorcache_hold_over(h.hold) != 0 }

// Free gives the hold up. A second Free does nothing.
func (h *Hold) Free() {
	if h.hold != nil {
		C.tensorcache_hold_free(h.hold)
		h.hold = nil
	}
}
