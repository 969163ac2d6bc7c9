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

// uring is an engine of reads by io_uring. Each of its slots is a read that may be under way.
type uring struct {
	ring  *C.struct_tc_uring
	reads *C.struct_tc_uring_read // by slot; C memory, because the kernel reads it
	slots []uringSlot
	free  chan int   // slots
	mu    sync.Mutex // held while reads are submitted
	ended chan struct{}
}

type uringSlot struct {
	request *request
	pins    runtime.Pinner
}

// uringEnd is the ID of what ends the goroutine that waits.
const uringEnd = 1 << 31

func newUring(depth int) (engine, error) {
	e := &uring{slots: make([]uringSlot, depth), free: make(chan int, depth), ended: make(chan struct{})}
	if code := C.tc_uring_open(&e.ring, C.uint(depth)); code < 0 {
		return nil, fmt.Errorf("pages: io_uring: %w", syscall.Errno(-code))
	}
	e.reads = (*C.struct_tc_uring_read)(C.calloc(C.size_t(depth), C.sizeof_struct_tc_uring_read))
	if e.reads == nil {
		C.tc_uring_close(e.ring)
		return nil, errors.New("pages: io_uring: out of memory")
	}
	for i := range depth {
		e.free <- i
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

func (e *uring) submit(requests []*request, stop <-chan struct{}) {
	for len(requests) > 0 {
		var batch [uringBatch]*C.struct_tc_uring_read
		n := 0
		for n < len(batch) && n < len(requests) {
			slot, ok := e.take(n == 0, stop)
			if !ok {
				break
			}
			batch[n] = e.fill(slot, requests[n])
			n++
		}
		if n == 0 {
			return
		}
		requests = requests[n:]
		e.mu.Lock()
		code := C.tc_uring_submit(e.ring, C.uint(n), &batch[0])
		e.mu.Unlock()
		if code < 0 {
			for _, r := range batch[:n] {
				e.end(int(r.id), int64(code))
			}
		}
	}
}

// take returns a free slot. If it waits, it does so until stop is closed.
func (e *uring) take(wait bool, stop <-chan struct{}) (slot int, ok bool) {
	select {
	case slot = <-e.free:
		return slot, true
	default:
	}
	if !wait {
		return 0, false
	}
	select {
	case slot = <-e.free:
		return slot, true
	case <-stop:
		return 0, false
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

// wait ends reads as they are done.
func (e *uring) wait() {
	defer close(e.ended)
	var done [uringBatch]C.struct_tc_uring_done
	for {
		n := C.tc_uring_wait(e.ring, uringBatch, &done[0])
		for _, d := range done[:max(0, n)] {
			if d.id == uringEnd {
				return
			}
			e.end(int(d.id), int64(d.result))
		}
	}
}

// end frees a slot and finishes its request, with the result of a system call.
func (e *uring) end(slot int, result int64) {
	s := &e.slots[slot]
	r := s.request
	s.request = nil
	s.pins.Unpin()
	e.free <- slot
	switch n := int(result); {
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
	for range e.slots { // nothing is under way any more
		<-e.free
	}
	e.mu.Lock()
	C.tc_uring_submit(e.ring, uringEnd, nil)
	e.mu.Unlock()
	<-e.ended
	C.tc_uring_close(e.ring)
	C.free(unsafe.Pointer(e.reads))
}
