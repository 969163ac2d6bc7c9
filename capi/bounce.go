//go:build cgo

package main

// #include "bridge.h"
import "C"

import (
	"errors"
	"runtime"
	"sync"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/dtype"
)

// A bounce is page-locked memory through which row numbers pass that lie in other memory of the host.
//
// An area's next user waits for the area's event, which its last user recorded.
type bounce struct {
	mu      sync.Mutex
	device  device.Device // nil until it is needed
	closed  bool
	areas   []area
	takings int // calls of take
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
	// pagedAreas is how many more areas batches of tables of pages may have, so that others do not wait for what these wait for.
	pagedAreas = 64
	// bounceBytes is the most bytes of row numbers that pass at a time.
	bounceBytes = 32 << 20
)

// bounced enqueues a gather whose row numbers lie in the host's memory.
func (s *served) bounced(r shape, ids unsafe.Pointer, out, stream uintptr) ([]*cache.Batch, error) {
	if r.n == 0 {
		_, err := s.enqueue(r, device.DeviceBuffer(0, 0), 0, stream)
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
	a, err := b.take(s.tables[r.table].paged)
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
	batch, err := s.enqueue(r, numbers, out, stream)
	return batch, errors.Join(err, on.Record(a.done))
}

// take returns the area for the next batch, which has to wait for the area's event: one that nobody uses, or a new one, of which batches of tables of pages and
// those of others may have so many, or the one of its own kind that was taken first. REQUIRES: b.mu is locked.
func (b *bounce) take(paged bool) (*area, error) {
	b.takings++
	most := mostAreas
	if paged {
		most = pagedAreas
	}
	var a *area
	own := 0
	for i := range b.areas {
		one := &b.areas[i]
		passed, err := one.done.Passed()
		if err != nil {
			return nil, as(C.TC_ERROR_DEVICE, err)
		}
		if passed {
			a, own = one, 0
			break
		}
		if one.paged != paged {
			continue
		}
		if own++; a == nil || one.taken < a.taken {
			a = one
		}
	}
	if a == nil || own > 0 && own < most {
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

// fit gives an area that nobody uses memory of at least that many bytes. REQUIRES: b.mu is locked.
func (b *bounce) fit(a *area, bytes int64) (err error) {
	if a.memory.Size() >= bytes {
		return nil
	}
	b.device.Free(a.memory)
	a.memory = device.Buffer{}
	size := int64(64 << 10)
	for size < bytes && size < bounceBytes {
		size *= 2
	}
	a.memory, err = b.device.AllocHost(max(size, bytes), "gathers with row numbers in host memory")
	return err
}

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
		b.mu.Unlock()
	}
	return n
}

// fromGPU returns a table of rows in the memory of a GPU, which are copied to the host in parts.
func (r *tableRequest) fromGPU(of dtype.Type) (cache.Table, error) {
	devices, err := cuda.OpenGPUs([]int{r.gpu})
	if err != nil {
		return cache.Table{}, as(C.TC_ERROR_DEVICE, err)
	}
	source := &gpuSource{device: devices[0], memory: device.DeviceBuffer(uint64(uintptr(r.data)), r.rows*int64(r.rowBytes)), rowBytes: int64(r.rowBytes)}
	t, err := cache.FromReader(r.name, of, r.rows, r.rowBytes, source.read, source.close)
	if err != nil {
		return t, errors.Join(err, source.close())
	}
	return t, nil
}

// gpuSource reads the rows of a table from the memory of a GPU.
type gpuSource struct {
	device   device.Device
	memory   device.Buffer
	rowBytes int64

	mu      sync.Mutex
	streams []device.Stream // not in use
}

func (g *gpuSource) read(row int64, dst []byte) error {
	g.mu.Lock()
	var s device.Stream
	if n := len(g.streams); n > 0 {
		s, g.streams = g.streams[n-1], g.streams[:n-1]
	}
	g.mu.Unlock()
	if s == nil {
		var err error
		if s, err = g.device.NewStream(); err != nil {
			return err
		}
	}
	var pinned runtime.Pinner // dst may be Go's memory
	pinned.Pin(unsafe.SliceData(dst))
	defer pinned.Unpin()
	from := row * g.rowBytes
	err := s.Copy(device.HostBuffer(dst), g.memory.Slice(from, from+int64(len(dst))))
	err = errors.Join(err, s.Synchronize())
	g.mu.Lock()
	defer g.mu.Unlock()
	g.streams = append(g.streams, s)
	return err
}

func (g *gpuSource) close() error {
	for _, s := range g.streams {
		s.Close()
	}
	g.streams = nil
	return g.device.Close()
}
