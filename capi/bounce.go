package main

// #include "bridge.h"
import "C"

import (
	"context"
	"errors"
	"math/bits"
	"slices"
	"sync"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
)

// A bounce is page-locked memory through which row numbers pass that lie in other memory of the host.
//
// An area's next user waits for the area's event, which its last user recorded.
type bounce struct {
	mu      sync.Mutex
	device  device.Device // nil until it is needed
	closed  bool
	areas   []area
	spent   []device.Buffer // memory that areas had before they grew, to be freed
	takings int             // calls of take
}

// area is memory with an event that passes when its last user is done with it.
type area struct {
	memory device.Buffer
	done   device.Event
	taken  int  // the number of its last taking
	paged  bool // its last user reads a table of pages, for which it may wait long
}

const (
	// mostAreas is how many batches can be enqueued ahead before the host waits for one.
	mostAreas = 4
	// pagedAreas is how many more areas batches of tables of pages may have, so that others do not wait for what these wait for. Beyond mostAreas their memory is
	// at most pagedBytes in all.
	pagedAreas = 64
	pagedBytes = 128 << 20
	// bounceBytes is the most bytes of row numbers that pass at a time.
	bounceBytes = 32 << 20
)

// bounced enqueues a gather whose row numbers lie in the host's memory.
func (s *served) bounced(r shape, ids unsafe.Pointer, out, stream uintptr) ([]*cache.Batch, error) {
	if r.n == 0 {
		_, err := s.views[r.device].Enqueue(context.Background(), stream, r.onDevice(0, 0))
		return nil, err
	}
	b := &s.bounces[r.device]
	b.mu.Lock()
	defer b.mu.Unlock()
	on, err := b.stream(s.gpus[r.device], stream)
	if err != nil {
		return nil, err
	}
	capturing, err := on.Capturing()
	switch {
	case err != nil:
		return nil, as(C.TC_ERROR_DEVICE, err)
	case capturing:
		return nil, failure{C.TC_ERROR_CAPTURE, errors.New("tensorcache: row numbers in host memory cannot be a part of a graph: its replays would repeat them")}
	}
	part := min(r.n, bounceBytes/r.idBytes)
	if part < r.n { // none may be enqueued before all are checked
		if err := s.checkRows(r, ids); err != nil {
			return nil, err
		}
	}
	var parts []*cache.Batch
	for first := int64(0); first < r.n; first += part {
		q := r
		q.n = min(part, r.n-first)
		p, err := b.pass(s, q, on, stream, unsafe.Add(ids, first*r.idBytes), out+uintptr(first*r.stride))
		if err != nil { // earlier parts, and this one, may still read and write memory that nobody has a batch to wait for
			return nil, errors.Join(err, on.Synchronize())
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// pass enqueues a part of a gather. REQUIRES: b.mu is locked.
func (b *bounce) pass(s *served, r shape, on device.Stream, stream uintptr, ids unsafe.Pointer, out uintptr) (*cache.Batch, error) {
	a, err := b.take(s.tables[r.table].paged, r.n*r.idBytes)
	if err != nil {
		return nil, err
	}
	if err := a.done.Synchronize(); err != nil { // the host writes it
		return nil, err
	}
	if err := b.fit(a, r.n*r.idBytes); err != nil {
		return nil, err
	}
	numbers := a.memory.Slice(0, r.n*r.idBytes)
	if err := s.copyRows(unsafe.Pointer(unsafe.SliceData(numbers.Bytes())), r, ids); err != nil {
		return nil, err
	}
	q := r.onDevice(0, out)
	q.DeviceRows = numbers
	batch, err := s.views[r.device].Enqueue(context.Background(), stream, q)
	return batch, errors.Join(err, on.Record(a.done))
}

// take returns the area for the next batch, of so many bytes of row numbers. The caller waits for the area's event. It is
// an area that nobody uses, or a new one. If batches of its kind use as many areas as they may, it is the one of these
// that was taken first. REQUIRES: b.mu is locked.
func (b *bounce) take(paged bool, bytes int64) (*area, error) {
	b.takings++
	var first, idle *area
	own, held := 0, areaBytes(bytes)
	for i := range b.areas {
		a := &b.areas[i]
		passed, err := a.done.Passed()
		switch {
		case err != nil:
			return nil, as(C.TC_ERROR_DEVICE, err)
		case passed:
			if idle == nil || idle.memory.Size() < bytes && a.memory.Size() >= bytes {
				idle = a
			}
		case a.paged == paged:
			own, held = own+1, held+a.memory.Size()
			if first == nil || a.taken < first.taken {
				first = a
			}
		}
	}
	a := idle
	if own >= mostAreas && !(paged && own < pagedAreas && held <= pagedBytes) {
		a = first
	} else if a == nil {
		done, err := b.device.NewEvent()
		if err != nil {
			return nil, as(C.TC_ERROR_DEVICE, err)
		}
		b.areas = append(b.areas, area{done: done})
		a = &b.areas[len(b.areas)-1]
	}
	a.taken, a.paged = b.takings, paged
	return a, nil
}

// stream returns the caller's stream, after opening the device. REQUIRES: b.mu is locked.
func (b *bounce) stream(gpu int, handle uintptr) (device.Stream, error) {
	if b.closed {
		return nil, cache.ErrClosed
	}
	if b.device == nil {
		devices, err := cuda.OpenGPUs([]int{gpu})
		if err != nil {
			return nil, as(C.TC_ERROR_DEVICE, err)
		}
		b.device = devices[0]
	}
	on, err := b.device.WrapStream(handle)
	return on, as(C.TC_ERROR_DEVICE, err)
}

// fit gives an area that nobody uses memory of at least that many bytes. The memory that it had, and that of other areas
// that nobody uses, is freed, so that memory for long batches does not come on top of that for earlier ones. It is kept
// while a batch of a table of pages whose row numbers passed here is under way: freeing page-locked memory waits for the
// GPU, and so for the pages. Batches whose row numbers lie on the GPU are not known here, and may still hold this up.
// REQUIRES: b.mu is locked.
func (b *bounce) fit(a *area, bytes int64) (err error) {
	grows := a.memory.Size() < bytes
	if grows && a.memory.Size() > 0 {
		b.spent = append(b.spent, a.memory)
		a.memory = device.Buffer{}
	}
	if (grows || len(b.spent) > 0) && !b.mayWait() {
		for i := range b.areas {
			if other := &b.areas[i]; grows && other != a && other.memory.Size() > 0 && other.idle() {
				b.spent = append(b.spent, other.memory)
				other.memory = device.Buffer{}
			}
		}
		for _, memory := range b.spent {
			b.device.Free(memory)
		}
		b.spent = b.spent[:0]
	}
	if grows {
		a.memory, err = b.device.AllocHost(areaBytes(bytes), "gathers with row numbers in host memory")
	}
	return err
}

// mayWait says whether such a batch is under way.
func (b *bounce) mayWait() bool {
	return slices.ContainsFunc(b.areas, func(a area) bool { return a.paged && !a.idle() })
}

// idle says whether nobody uses the area's memory.
func (a *area) idle() bool {
	passed, err := a.done.Passed()
	return err == nil && passed
}

// areaBytes returns the memory of an area for so many bytes: at least 64 KiB, and a power of two.
func areaBytes(bytes int64) int64 { return max(64<<10, int64(1)<<bits.Len64(uint64(max(bytes, 1)-1))) }

// close frees everything. Batches of the cache have ended.
func (b *bounce) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.device == nil {
		return
	}
	for _, a := range b.areas {
		a.done.Synchronize() // an error means that the device has failed, and its memory is gone
		a.done.Close()
		b.device.Free(a.memory)
	}
	for _, memory := range b.spent {
		b.device.Free(memory)
	}
	b.device.Close()
}

// bounceBytes returns the memory of all bounces.
func (s *served) bounceBytes() (n int64) {
	for i := range s.bounces {
		b := &s.bounces[i]
		b.mu.Lock()
		for _, a := range b.areas {
			n += a.memory.Size()
		}
		for _, memory := range b.spent {
			n += memory.Size()
		}
		b.mu.Unlock()
	}
	return n
}
