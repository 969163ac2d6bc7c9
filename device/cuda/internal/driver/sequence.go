//go:build cuda

package driver

/*
#include "shim.h"

#cgo noescape tensorcache_enqueue
#cgo nocallback tensorcache_enqueue
*/
import "C"

import (
	"slices"
	"unsafe"
)

// Sequence collects work for streams of one context, and then enqueues it in order by one call from Go to C, which makes the context
// current once. It reuses its memory, and so allocates only when it holds more work than ever before. Not safe for concurrent use.
type Sequence struct {
	ctx       *Context
	commands  []C.struct_tensorcache_command
	functions []*Function // one for each command; nil if it is no launch
	args      []uint64    // the kernels' parameters
}

// NewSequence returns an empty sequence.
func (c *Context) NewSequence() *Sequence { return &Sequence{ctx: c} }

// Launch collects Function.Launch of a kernel whose parameter has the given bytes.
func (q *Sequence) Launch(s *Stream, f *Function, blocks, threads, shared int, args unsafe.Pointer, bytes uintptr, begun *Event) {
	c := C.struct_tensorcache_command{
		what: C.TENSORCACHE_LAUNCH, stream: s.handle, function: f.handle, args: C.uint32_t(len(q.args)),
		blocks: C.uint32_t(blocks), threads: C.uint32_t(threads), shared: C.uint32_t(shared),
	}
	if begun != nil {
		c.event = begun.handle
	}
	at, words := len(q.args), int(bytes+7)/8
	q.args = slices.Grow(q.args, words)[:at+words]
	copy(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(q.args[at:]))), bytes), unsafe.Slice((*byte)(args), bytes))
	q.add(c, f)
}

// Record collects Event.Record.
func (q *Sequence) Record(s *Stream, e *Event) {
	q.add(C.struct_tensorcache_command{what: C.TENSORCACHE_RECORD, stream: s.handle, event: e.handle}, nil)
}

// Wait collects Stream.WaitEvent.
func (q *Sequence) Wait(s *Stream, e *Event) {
	q.add(C.struct_tensorcache_command{what: C.TENSORCACHE_WAIT, stream: s.handle, event: e.handle}, nil)
}

func (q *Sequence) add(c C.struct_tensorcache_command, f *Function) {
	q.commands = append(q.commands, c)
	q.functions = append(q.functions, f)
}

// Drop discards the collected work.
func (q *Sequence) Drop() {
	q.commands, q.functions, q.args = q.commands[:0], q.functions[:0], q.args[:0]
}

// Enqueue enqueues the collected work up to the first failure, and discards it.
func (q *Sequence) Enqueue() error {
	if len(q.commands) == 0 {
		return nil
	}
	defer q.Drop()
	var enqueued C.uint32_t
	r := C.tensorcache_enqueue(q.ctx.handle, unsafe.SliceData(q.commands), C.uint32_t(len(q.commands)),
		(*C.uint64_t)(unsafe.SliceData(q.args)), &enqueued)
	if r == 0 {
		return nil
	}
	if int(enqueued) == len(q.commands) { // all were enqueued; restoring the context failed
		return q.ctx.check(r, "cuCtxPopCurrent")
	}
	switch c := &q.commands[enqueued]; c.what {
	case C.TENSORCACHE_RECORD:
		return q.ctx.check(r, "cuEventRecord")
	case C.TENSORCACHE_WAIT:
		return q.ctx.check(r, "cuStreamWaitEvent")
	default:
		return q.functions[enqueued].launched(r, int(c.blocks), int(c.threads), int(c.shared))
	}
}
