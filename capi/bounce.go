//go:build cgo

package main

// #include "bridge.h"
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/dtype"
)

// A bounce is memory of a GPU and of the host through which gathers pass that a cache does not serve directly: those with row numbers in
// the host's memory, and those whose rows are not to lie back to back.
//
// All memory is used in the order of the GPU: an area's next user has its stream wait for the area's event, which its last user recorded. So
// nothing waits on the host, except for page-locked memory that the host is to write again.
type bounce struct {
	mu      sync.Mutex
	device  device.Device // nil until it is needed
	closed  bool
	rows    []area // device memory
	ids     []area // page-locked memory
	takings int    // calls of take
	capture []area // of batches in graphs
}

// area is memory with an event that passes when its last user is done with it.
type area struct {
	memory device.Buffer
	done   device.Event
	taken  int         // the number of its last taking
	paged  bool        // its last user reads a table of pages, for which it may wait long
	hold   device.Hold // of an area of a captured batch
}

const (
	// rowAreas is the number of gathers on different streams that can pass at the same time: with two, one copies while the other one gathers.
	rowAreas = 2
	// idAreas is how many batches with row numbers in the host's memory can be enqueued ahead before the host waits for one.
	idAreas = 4
	// pagedAreas is how many more areas of each kind batches of tables of pages may have, so that others do not wait for what these wait for.
	pagedAreas = 64
	// bounceBytes is the most bytes of rows, or of row numbers, that pass at a time, unless a row is longer.
	bounceBytes = 32 << 20
)

// bounced enqueues a gather that passes through the bounce of its device.
func (s *served) bounced(r shape, ids, out, stream uintptr, hostIDs bool) ([]*cache.Batch, error) {
	from := unsafe.Pointer(nil)
	if hostIDs {
		from = pointer(C.uintptr_t(ids))
	}
	if r.n == 0 {
		_, err := s.enqueue(r, device.DeviceBuffer(0, 0), device.DeviceBuffer(0, 0), stream)
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
	case capturing && hostIDs:
		return nil, failure{C.TC_ERROR_CAPTURE, errors.New("tensorcache: row numbers in host memory cannot be a part of a graph: its replays would repeat them")}
	}
	part := r.n
	if hostIDs {
		part = min(part, bounceBytes/r.idBytes)
	}
	strided := r.stride != r.row
	if strided && !capturing {
		part = min(part, max(1, bounceBytes/r.row))
	}
	if hostIDs && part < r.n { // none may be enqueued before all are checked
		if err := s.checkRows(r, from); err != nil {
			return nil, err
		}
	}
	var parts []*cache.Batch
	for first := int64(0); first < r.n; first += part {
		q := r
		q.n = min(part, r.n-first)
		p, err := b.pass(s, q, on, stream, ids, out, first, from, capturing)
		if err != nil {
			if !capturing { // earlier parts, and this one, may still read and write the caller's memory, which nobody has a batch to wait for
				err = errors.Join(err, on.Synchronize())
			}
			return nil, err
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// pass enqueues a part of a gather, from row number first on. REQUIRES: b.mu is locked.
func (b *bounce) pass(s *served, r shape, on device.Stream, stream, ids, out uintptr, first int64, from unsafe.Pointer, capturing bool) (_ *cache.Batch, err error) {
	numbers := device.DeviceBuffer(uint64(ids)+uint64(first*r.idBytes), r.n*r.idBytes)
	rows := device.DeviceBuffer(uint64(out)+uint64(first*r.row), r.n*r.row)
	paged := s.tables[r.table].paged
	if from != nil {
		a, err := b.take(&b.ids, idAreas, paged)
		if err != nil {
			return nil, err
		}
		if err := b.fit(a, numbers.Size(), b.device.AllocHost); err != nil {
			return nil, err
		}
		if err := a.done.Synchronize(); err != nil { // the host writes it
			return nil, err
		}
		numbers = a.memory.Slice(0, numbers.Size())
		if err := s.copyRows(unsafe.Pointer(unsafe.SliceData(numbers.Bytes())), r, unsafe.Add(from, first*r.idBytes)); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, on.Record(a.done)) }()
	}
	if r.stride == r.row {
		return s.enqueue(r, numbers, rows, stream)
	}
	copier, ok := on.(device.RowCopier)
	if !ok {
		return nil, argument("row_stride (%d) must be the row's %d bytes on this device", r.stride, r.row)
	}
	var a *area
	if capturing {
		if a, err = b.captured(rows.Size(), on); err != nil {
			return nil, err
		}
	} else {
		if a, err = b.take(&b.rows, rowAreas, paged); err != nil {
			return nil, err
		}
		if err := b.fit(a, rows.Size(), b.device.Alloc); err != nil {
			return nil, err
		}
		if err := on.Wait(a.done); err != nil {
			return nil, err
		}
	}
	rows = a.memory.Slice(0, rows.Size())
	batch, err := s.enqueue(r, numbers, rows, stream)
	if err != nil {
		return nil, err
	}
	to := device.DeviceBuffer(uint64(out)+uint64(first*r.stride), (r.n-1)*r.stride+r.row)
	if err = copier.CopyRows(to, r.stride, rows, r.row); err == nil && !capturing {
		err = on.Record(a.done)
	}
	return batch, as(C.TC_ERROR_DEVICE, err)
}

// take returns the area for the next batch, which has to wait for the area's event: one that nobody uses, or a new one, of which batches of each of the two kinds of
// table may have so many, or the one of its own kind that was taken first. REQUIRES: b.mu is locked.
func (b *bounce) take(areas *[]area, most int, paged bool) (*area, error) {
	b.takings++
	if paged {
		most = pagedAreas
	}
	var a *area
	own := 0
	for i := range *areas {
		one := &(*areas)[i]
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
		*areas = append(*areas, area{done: done})
		a = &(*areas)[len(*areas)-1]
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

// fit gives an area memory of at least that many bytes. REQUIRES: b.mu is locked.
func (b *bounce) fit(a *area, bytes int64, alloc func(int64, string) (device.Buffer, error)) (err error) {
	if a.memory.Size() >= bytes {
		return nil
	}
	if err := a.done.Synchronize(); err != nil {
		return err
	}
	b.device.Free(a.memory)
	a.memory = device.Buffer{}
	size := int64(64 << 10)
	for size < bytes && size < bounceBytes {
		size *= 2
	}
	a.memory, err = alloc(max(size, bytes), "gathers with a row stride or row numbers in host memory")
	return err
}

// captured returns memory for a batch in a graph, which is freed when the graph is destroyed. REQUIRES: b.mu is locked.
func (b *bounce) captured(bytes int64, on device.Stream) (*area, error) {
	kept := b.capture[:0]
	for _, a := range b.capture {
		if a.hold.Over() {
			a.hold.Free()
			b.device.Free(a.memory)
		} else {
			kept = append(kept, a)
		}
	}
	b.capture = kept
	of, ok := on.(device.Capturer)
	if !ok {
		return nil, failure{C.TC_ERROR_CAPTURE, errors.New("tensorcache: a row stride needs a driver that says when graphs are destroyed")}
	}
	memory, err := b.device.Alloc(bytes, "rows of a captured gather with a row stride")
	if err != nil {
		return nil, err
	}
	hold, err := of.HoldCapture()
	if err != nil {
		b.device.Free(memory)
		return nil, failure{C.TC_ERROR_CAPTURE, fmt.Errorf("tensorcache: a row stride in a graph: %w", err)}
	}
	b.capture = append(b.capture, area{memory: memory, hold: hold})
	return &b.capture[len(b.capture)-1], nil
}

// close frees everything. Batches of the cache have ended; copies of their rows may not have.
func (b *bounce) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.device == nil {
		return
	}
	for _, areas := range [][]area{b.rows, b.ids, b.capture} {
		for _, a := range areas {
			if a.done != nil {
				a.done.Synchronize() // an error means that the device has failed, and its memory is gone
				a.done.Close()
			}
			if a.hold != nil {
				a.hold.Free()
			}
			b.device.Free(a.memory)
		}
	}
	b.capture = nil
	b.device.Close()
}

// bounceBytes returns the memory of all bounces.
func (s *served) bounceBytes() (n int64) {
	for i := range s.bounces {
		b := &s.bounces[i]
		b.mu.Lock()
		for _, areas := range [][]area{b.rows, b.ids, b.capture} {
			for _, a := range areas {
				n += a.memory.Size()
			}
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
