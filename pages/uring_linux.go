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
	"sync/atomic"
	"syscall"
	"unsafe"
)

// uring is an engine of reads by io_uring: rings that take requests from one queue. A system call and a goroutine's work for each read limit what one ring
// serves to some 100,000 a second, so short reads have several.
type uring struct {
	rings []*ring
	turn  atomic.Uint32 // of the ring that takes requests first

	mu      sync.Mutex
	waiting []*request // for a slot
}

// ring is one of a uring. Each of its slots is a read that may be under way. Who frees slots begins the next reads, so that the drive need not wait until
// a goroutine runs.
type ring struct {
	queue *uring
	ring  *C.struct_tc_uring
	reads *C.struct_tc_uring_read // by slot; C memory, because the kernel reads it
	slots []uringSlot

	mu    sync.Mutex // also held while reads are submitted
	free  []int      // slots
	idle  *sync.Cond // of mu: all slots are free
	ended chan struct{}
}

type uringSlot struct {
	request *request
	pins    runtime.Pinner
}

// uringEnd is the ID of what ends the goroutine that waits.
const uringEnd = 1 << 31

// newUring returns an engine that has so many reads under way at once, by so many rings.
func newUring(depth, rings int) (engine, error) {
	e := &uring{}
	for i := range rings {
		r, err := newRing(e, depth*(i+1)/rings-depth*i/rings)
		if err != nil {
			e.close()
			return nil, err
		}
		e.rings = append(e.rings, r)
	}
	return e, nil
}

// submit implements engine. It never waits.
func (e *uring) submit(requests []*request, _ <-chan struct{}) {
	e.mu.Lock()
	e.waiting = append(e.waiting, requests...)
	e.mu.Unlock()
	first := int(e.turn.Add(1))
	for _, most := range []int{(len(requests)-1)/len(e.rings) + 1, len(requests)} { // evenly, then where there are slots
		for i := range e.rings {
			e.rings[(first+i)%len(e.rings)].begin(most)
		}
	}
}

// next takes a request that is still wanted off the queue, nil if there is none.
func (e *uring) next() *request {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.waiting) > 0 {
		r := e.waiting[0]
		e.waiting[0] = nil
		if e.waiting = e.waiting[1:]; r.begin() {
			return r
		}
	}
	return nil
}

func (e *uring) close() {
	for _, r := range e.rings {
		r.close()
	}
}

func newRing(queue *uring, depth int) (*ring, error) {
	e := &ring{queue: queue, slots: make([]uringSlot, depth), ended: make(chan struct{})}
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

func (e *ring) read(slot int) *C.struct_tc_uring_read {
	return (*C.struct_tc_uring_read)(unsafe.Add(unsafe.Pointer(e.reads), slot*C.sizeof_struct_tc_uring_read))
}

// uringBatch is how many reads are submitted or taken at once.
const uringBatch = 32

// begin begins at most so many reads that wait, as long as there are slots.
func (e *ring) begin(most int) {
	for most > 0 {
		var batch [uringBatch]*C.struct_tc_uring_read
		n, code := 0, C.int(0)
		e.mu.Lock()
		for n < min(len(batch), most) && len(e.free) > 0 {
			r := e.queue.next()
			if r == nil {
				break
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
		most -= n
		if code < 0 {
			for _, read := range batch[:n] {
				e.release(int(read.id)).complete(int(code))
			}
		}
	}
}

// fill puts a request into a slot.
func (e *ring) fill(slot int, r *request) *C.struct_tc_uring_read {
	s, read := &e.slots[slot], e.read(slot)
	s.request = r
	for i, b := range r.into {
		s.pins.Pin(&b[0])
		// An assignment of a pointer would have the garbage collector look at the one before, whose memory may be gone: the slot's memory is not Go's.
		*(*uintptr)(unsafe.Pointer(&read.into[i].iov_base)) = uintptr(unsafe.Pointer(&b[0]))
		read.into[i].iov_len = C.size_t(len(b))
	}
	read.fd, read.buffers, read.offset, read.id = C.int(r.file.Fd()), C.uint(len(r.into)), C.int64_t(r.offset), C.uint64_t(slot)
	return read
}

// wait ends reads as they are done, once the next ones are under way.
func (e *ring) wait() {
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
		e.begin(len(e.slots))
		for i, d := range done[:n] {
			requests[i].complete(int(d.result))
			requests[i] = nil
		}
	}
}

// release frees a slot and returns its request.
func (e *ring) release(slot int) *request {
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

func (e *ring) close() {
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
