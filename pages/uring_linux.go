//go:build linux && cgo && liburing

package pages

/*
#cgo LDFLAGS: -l:liburing.a
#include <stdlib.h>
#include "uring.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"unsafe"
)

// uring is an engine of reads by io_uring. Each of its slots is a read that may be under way. Who frees slots begins the next reads, so that
// the drive need not wait until a goroutine runs.
type uring struct {
	ring  *C.struct_tc_uring
	reads *C.struct_tc_uring_read // by slot; C memory, because the kernel reads it
	slots []uringSlot

	mu      sync.Mutex // also held while reads are submitted
	free    []int      // slots
	waiting []*request // for a slot
	idle    *sync.Cond // of mu: all slots are free
	ended   chan struct{}
}

type uringSlot struct {
	request *request
	pins    runtime.Pinner
}

// uringEnd is the ID of what ends the goroutine that waits.
const uringEnd = 1 << 31

func newUring(depth int) (engine, error) {
	e := &uring{slots: make([]uringSlot, depth), ended: make(chan struct{})}
	e.idle = sync.NewCond(&e.mu)
	if code := C.tc_uring_open(&e.ring, C.uint(depth)); code < 0 {
		return nil, fmt.Errorf("pages: io_uring: %w", syscall.Errno(-code))
	}
	e.reads = (*C.struct_tc_uring_read)(C.calloc(C.size_t(depth), C.sizeof_struct_tc_uring_read))
	if e.reads == nil {
		C.tc_uring_close(e.ring)
		return nil, errors.New("pages: io_uring: out of memory")
	}
	for i := range depth {
		e.free = append(e.free, i)
	}
	go e.wait()
	return e, nil
}

func (e *uring) name() string { return "uring" }

func (e *uring) read(slot int) *C.struct_tc_uring_read {
	return (*C.struct_tc_uring_read)(unsafe.Add(unsafe.Pointer(e.reads), slot*C.sizeof_struct_tc_uring_read))
}

// uringBatch is how many reads are submitted or taken at once.
const uringBatch = 32

// submit implements engine. It never waits.
func (e *uring) submit(requests []*request, _ <-chan struct{}) {
	e.mu.Lock()
	e.waiting = append(e.waiting, requests...)
	e.mu.Unlock()
	e.begin()
}

// begin begins reads that wait, as long as there are slots.
func (e *uring) begin() {
	for {
		var batch [uringBatch]*C.struct_tc_uring_read
		n, code := 0, C.int(0)
		e.mu.Lock()
		for n < len(batch) && len(e.free) > 0 && len(e.waiting) > 0 {
			r := e.waiting[0]
			if e.waiting = e.waiting[1:]; !r.begin() {
				continue
			}
			last := len(e.free) - 1
			batch[n] = e.fill(e.free[last], r)
			e.free = e.free[:last]
			n++
		}
		if n > 0 {
			code = C.tc_uring_submit(e.ring, C.uint(n), &batch[0])
		}
		e.mu.Unlock()
		if n == 0 {
			return
		}
		if code < 0 {
			for _, read := range batch[:n] {
				e.release(int(read.id)).complete(int(code))
			}
		}
	}
}

// fill puts a request into a slot.
func (e *uring) fill(slot int, r *request) *C.struct_tc_uring_read {
	s, read := &e.slots[slot], e.read(slot)
	s.request = r
	for i, b := range r.into {
		s.pins.Pin(&b[0])
		read.into[i].iov_base, read.into[i].iov_len = unsafe.Pointer(&b[0]), C.size_t(len(b))
	}
	read.fd, read.buffers, read.offset, read.id = C.int(r.file.Fd()), C.uint(len(r.into)), C.int64_t(r.offset), C.uint64_t(slot)
	return read
}

// wait ends reads as they are done, once the next ones are under way.
func (e *uring) wait() {
	defer close(e.ended)
	var done [uringBatch]C.struct_tc_uring_done
	var requests [uringBatch]*request
	for {
		n := max(0, C.tc_uring_wait(e.ring, uringBatch, &done[0]))
		for i, d := range done[:n] {
			if d.id == uringEnd {
				return
			}
			requests[i] = e.release(int(d.id))
		}
		e.begin()
		for i, d := range done[:n] {
			requests[i].complete(int(d.result))
			requests[i] = nil
		}
	}
}

// release frees a slot and returns its request.
func (e *uring) release(slot int) *request {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := &e.slots[slot]
	r := s.request
	s.request = nil
	s.pins.Unpin()
	e.free = append(e.free, slot)
	if len(e.free) == len(e.slots) {
		e.idle.Broadcast()
	}
	return r
}

// complete finishes a request with the result of a system call.
func (r *request) complete(n int) {
	switch {
	case n == -int(syscall.EINTR), n == -int(syscall.EAGAIN), n > 0 && n%block == 0 && n < r.bytes():
		// Interrupted, or only a part came: the rest is read by a goroutine.
		n = max(n, 0)
		go func() {
			m, err := readFull(r.file, r.offset+int64(n), after(r.into, n))
			r.finish(n+m, err)
		}()
	case n < 0:
		r.finish(0, &os.PathError{Op: "read", Path: r.file.Name(), Err: syscall.Errno(-n)})
	default:
		r.finish(n, nil)
	}
}

func (e *uring) close() {
	e.mu.Lock()
	for len(e.free) < len(e.slots) {
		e.idle.Wait()
	}
	C.tc_uring_submit(e.ring, uringEnd, nil)
	e.mu.Unlock()
	<-e.ended
	C.tc_uring_close(e.ring)
	C.free(unsafe.Pointer(e.reads))
}
