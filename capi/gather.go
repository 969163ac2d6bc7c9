package main

// #include "bridge.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
)

// batch is a tc_batch: a gather, in one part or several, that was enqueued. One without parts has ended.
type batch struct{ parts []*cache.Batch }

// perThreadStream is CUDA's handle of the calling thread's default stream, which Go's threads do not have.
const perThreadStream = 2

// maxBatch is the most row numbers of one call.
const maxBatch = 1<<31 - 1

// shape is what was asked of a gather, checked.
type shape struct {
	device, table int
	n             int64
	idBytes       int64 // 4 or 8
	row, stride   int64 // bytes
}

// table returns a table by its index.
func (s *served) table(i C.int32_t) (*servedTable, error) {
	if uint(i) >= uint(len(s.tables)) {
		return nil, fmt.Errorf("%w (%d) must be 0 to %d", cache.ErrTable, i, len(s.tables)-1)
	}
	return &s.tables[i], nil
}

// checkDevice returns an error unless the index of a device is least to the last one's.
func (s *served) checkDevice(i, least C.int32_t) error {
	if i < least || int(i) >= len(s.views) {
		return argument("device (%d) must be 0 to %d", i, len(s.views)-1)
	}
	return nil
}

// checkStream returns an error for a stream that a call cannot be enqueued on.
func (s *served) checkStream(stream C.uintptr_t) error {
	switch {
	case s.onHost && stream != 0:
		return argument("stream (%#x) must be NULL on the host backend", stream)
	case !s.onHost && stream == perThreadStream:
		return argument("stream (%#x) must not be the per-thread default stream", stream)
	}
	return nil
}

// shapeOf returns the shape of a gather. device -1 is any.
func (s *served) shapeOf(device, table, idType C.int32_t, n, stride C.int64_t, ids, out bool) (shape, error) {
	r := shape{device: int(device), table: int(table), n: int64(n), stride: int64(stride), idBytes: 8}
	t, err := s.table(table)
	if err != nil {
		return r, err
	}
	r.row = t.rowBytes
	if r.stride == 0 {
		r.stride = r.row
	}
	if idType == C.TC_INT32 {
		r.idBytes = 4
	}
	if err := s.checkDevice(device, -1); err != nil {
		return r, err
	}
	switch {
	case idType != C.TC_INT32 && idType != C.TC_INT64:
		return r, argument("id_type (%d) must be TC_INT32 or TC_INT64", idType)
	case r.n < 0 || r.n > maxBatch:
		return r, argument("n (%d) must be 0 to 2^31 - 1", n)
	case r.stride < r.row || r.stride > 1<<40:
		return r, argument("row_stride (%d) must be 0 or at least the row's %d bytes", stride, r.row)
	case r.n > 1 && r.stride > (math.MaxInt64-r.row)/(r.n-1):
		return r, argument("row_stride (%d) must be less for %d rows: they would take 2^63 bytes or more", stride, r.n)
	case r.n > 0 && !ids:
		return r, argument("ids (NULL) must be %d row numbers", r.n)
	case r.n > 0 && !out:
		return r, argument("out (NULL) must have room for %d rows", r.n)
	}
	return r, nil
}

func (s *served) gather(dev, table C.int32_t, ids C.uintptr_t, idType C.int32_t, n C.int64_t, out C.uintptr_t, stride C.int64_t, stream C.uintptr_t, to *C.uintptr_t) error {
	return s.gatherFrom(false, dev, table, ids, idType, n, out, stride, stream, to)
}

func (s *served) gatherHostIDs(dev, table C.int32_t, ids C.uintptr_t, idType C.int32_t, n C.int64_t, out C.uintptr_t, stride C.int64_t, stream C.uintptr_t, to *C.uintptr_t) error {
	return s.gatherFrom(true, dev, table, ids, idType, n, out, stride, stream, to)
}

// gatherFrom gathers on a stream, which on the host backend is NULL and means at once. hostIDs says that row numbers are in host memory.
func (s *served) gatherFrom(hostIDs bool, dev, table C.int32_t, ids C.uintptr_t, idType C.int32_t, n C.int64_t, out C.uintptr_t, stride C.int64_t, stream C.uintptr_t, to *C.uintptr_t) error {
	if err := s.checkStream(stream); err != nil {
		return err
	}
	if s.onHost {
		if err := s.gatherHost(dev, table, ids, idType, n, out, stride); err != nil {
			return err
		}
		return giveBatch(to)
	}
	r, err := s.shapeOf(dev, table, idType, n, stride, ids != 0, out != 0)
	if err == nil {
		err = s.checkDevice(dev, 0)
	}
	if err != nil {
		return err
	}
	if !hostIDs {
		return s.submit(dev, stream, to, r.onDevice(ids, uintptr(out)))
	}
	parts, err := s.bounced(r, pointer(ids), uintptr(out), uintptr(stream))
	if err != nil {
		return err
	}
	return giveBatch(to, parts...)
}

// pointer returns the address of C's memory, which the garbage collector neither moves nor frees, as a pointer.
func pointer(address C.uintptr_t) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }

// outBytes is the length of the output.
func (r *shape) outBytes() int64 { return max(0, r.n-1)*r.stride + min(r.n, 1)*r.row }

// onDevice returns a request whose row numbers and output are in memory of the device.
func (r *shape) onDevice(ids C.uintptr_t, out uintptr) cache.Request {
	return cache.Request{
		Table: r.table, DeviceRows: device.DeviceBuffer(uint64(ids), r.n*r.idBytes), DeviceRows32: r.idBytes == 4,
		DeviceOut: device.DeviceBuffer(uint64(out), r.outBytes()), Stride: r.stride,
	}
}

// setRows gives a request row numbers in memory of the host.
func (r *shape) setRows(q *cache.Request, ids unsafe.Pointer) {
	if r.idBytes == 4 {
		q.Rows32 = inPlace[int32](ids, r.n)
	} else {
		q.Rows = inPlace[int64](ids, r.n)
	}
}

// submit enqueues requests of a device, and gives C code the batch.
func (s *served) submit(dev C.int32_t, stream C.uintptr_t, to *C.uintptr_t, requests ...cache.Request) error {
	b, err := s.views[dev].Enqueue(context.Background(), uintptr(stream), requests...)
	if err != nil {
		return err
	}
	return giveBatch(to, b)
}

// run serves requests between memory of the host.
func (s *served) run(dev C.int32_t, requests ...cache.Request) error {
	if dev < 0 {
		return s.cache.Gather(context.Background(), requests...)
	}
	return s.views[dev].Gather(context.Background(), requests...)
}

// giveBatch gives C code the handle of a batch, if it wants one.
func giveBatch(to *C.uintptr_t, parts ...*cache.Batch) error {
	if to != nil {
		*to = C.uintptr_t(batches.add(&batch{slices.Clone(parts)}))
	}
	return nil
}

// gatherHost gathers between memory of the host.
func (s *served) gatherHost(dev, table C.int32_t, ids C.uintptr_t, idType C.int32_t, n C.int64_t, out C.uintptr_t, stride C.int64_t) error {
	r, err := s.shapeOf(dev, table, idType, n, stride, ids != 0, out != 0)
	if err != nil {
		return err
	}
	q := cache.Request{Table: r.table, Out: unsafe.Slice((*byte)(pointer(out)), r.outBytes()), Stride: r.stride}
	r.setRows(&q, pointer(ids))
	return s.run(dev, q)
}

// checkRows returns an error that wraps cache.ErrRows for row numbers in the host's memory that are out of range.
func (s *served) checkRows(r shape, ids unsafe.Pointer) error { return s.copyRows(nil, r, ids) }

// copyRows is checkRows that also copies the row numbers, unless to is nil.
func (s *served) copyRows(to unsafe.Pointer, r shape, ids unsafe.Pointer) error {
	limit := s.cache.Rows(r.table)
	idType := C.int32_t(C.TC_INT64)
	if r.idBytes == 4 {
		idType = C.TC_INT32
	}
	if C.tcgo_copy_rows(to, ids, idType, C.int64_t(r.n), C.int64_t(limit)) != 0 {
		return nil
	}
	first, bad := -1, 0
	rows := wide(ids, idType, r.n)
	for i, row := range rows {
		if uint64(row) >= uint64(limit) {
			if bad == 0 {
				first = i
			}
			bad++
		}
	}
	return fmt.Errorf("%w: row number (%d) at position %d must be 0 to %d; %d of %d are out of range", cache.ErrRows, rows[first], first, limit-1, bad, r.n)
}

func (b *batch) wait() error {
	var errs []error
	for _, p := range b.parts {
		errs = append(errs, p.Wait())
	}
	return errors.Join(errs...)
}

func (b *batch) error() error {
	var errs []error
	for _, p := range b.parts { // of a batch in a graph there is one, and Poll says once what was wrong
		done, err := p.Poll()
		switch {
		case !done && err != nil:
			return as(C.TC_ERROR_DEVICE, err)
		case !done:
			return errPending
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

//export tcgo_batch_destroy
func tcgo_batch_destroy(h C.uintptr_t) { batches.remove(handle(h)) }

func (s *served) check(wait C.int32_t) error { return s.cache.Check(wait != 0) }
