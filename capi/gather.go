//go:build cgo

package main

// #include "bridge.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"math"
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

// check returns the shape of a gather. device -1 is any.
func (s *served) check(device, table, idType C.int32_t, n, stride C.int64_t, ids, out bool) (shape, error) {
	r := shape{device: int(device), table: int(table), n: int64(n), stride: int64(stride), idBytes: 8}
	if uint(r.table) >= uint(len(s.rowBytes)) {
		return r, fmt.Errorf("%w (%d) must be 0 to %d", cache.ErrTable, table, len(s.rowBytes)-1)
	}
	r.row = s.rowBytes[r.table]
	if r.stride == 0 {
		r.stride = r.row
	}
	if idType == C.TC_INT32 {
		r.idBytes = 4
	}
	switch {
	case r.device < -1 || r.device >= len(s.views):
		return r, argument("device (%d) must be 0 to %d", device, len(s.views)-1)
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

//export tcgo_gather
func tcgo_gather(h C.uintptr_t, dev, table C.int32_t, ids C.uintptr_t, idType C.int32_t, n C.int64_t, out C.uintptr_t, stride C.int64_t,
	stream C.uintptr_t, hostIDs C.int32_t, to *C.uintptr_t) (st status) {
	defer recovered(&st)
	s, ok := caches.get(handle(h))
	if !ok {
		return result(caches.missing(handle(h)))
	}
	if s.onHost {
		if stream != 0 {
			return result(argument("stream (%#x) must be NULL on the host backend", stream))
		}
		// The addresses are of C's memory, which the garbage collector neither moves nor frees.
		if err := s.gatherHost(dev, table, pointer(ids), idType, n, pointer(out), stride); err != nil {
			return result(err)
		}
		return s.giveBatch(to, nil)
	}
	r, err := s.check(dev, table, idType, n, stride, ids != 0, out != 0)
	if err != nil {
		return result(err)
	}
	switch {
	case r.device < 0:
		return result(argument("device (%d) must be 0 to %d", dev, len(s.views)-1))
	case stream == perThreadStream:
		return result(argument("stream (%#x) must not be the per-thread default stream", stream))
	}
	if hostIDs != 0 {
		parts, err := s.bounced(r, pointer(ids), uintptr(out), uintptr(stream))
		if err != nil {
			return result(err)
		}
		return s.giveBatch(to, parts)
	}
	b, err := s.enqueue(r, device.DeviceBuffer(uint64(ids), r.n*r.idBytes), uintptr(out), uintptr(stream))
	if err != nil {
		return result(err)
	}
	if to == nil {
		return C.TC_OK
	}
	return s.giveBatch(to, []*cache.Batch{b})
}

// pointer returns the address of C's memory as a pointer.
func pointer(address C.uintptr_t) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }

// outBytes is the length of the output.
func (r *shape) outBytes() int64 { return max(0, r.n-1)*r.stride + min(r.n, 1)*r.row }

// enqueue enqueues a gather to memory of the device.
func (s *served) enqueue(r shape, ids device.Buffer, out, stream uintptr) (*cache.Batch, error) {
	return s.views[r.device].Enqueue(context.Background(), stream, cache.Request{
		Table: r.table, DeviceRows: ids, DeviceRows32: r.idBytes == 4, DeviceOut: device.DeviceBuffer(uint64(out), r.outBytes()), Stride: r.stride,
	})
}

// giveBatch gives C code the handle of a batch, if it wants one.
func (s *served) giveBatch(to *C.uintptr_t, parts []*cache.Batch) status {
	if to == nil {
		return C.TC_OK
	}
	h := batches.add(&batch{parts})
	if h == 0 {
		return result(failure{C.TC_ERROR_OUT_OF_MEMORY, errTooMany})
	}
	*to = C.uintptr_t(h)
	return C.TC_OK
}

//export tcgo_gather_host
func tcgo_gather_host(h C.uintptr_t, dev, table C.int32_t, ids unsafe.Pointer, idType C.int32_t, n C.int64_t, out unsafe.Pointer, stride C.int64_t) (st status) {
	defer recovered(&st)
	s, ok := caches.get(handle(h))
	if !ok {
		return result(caches.missing(handle(h)))
	}
	return result(s.gatherHost(dev, table, ids, idType, n, out, stride))
}

// gatherHost gathers between memory of the host.
func (s *served) gatherHost(dev, table C.int32_t, ids unsafe.Pointer, idType C.int32_t, n C.int64_t, out unsafe.Pointer, stride C.int64_t) error {
	r, err := s.check(dev, table, idType, n, stride, ids != nil, out != nil)
	if err != nil {
		return err
	}
	q := cache.Request{Table: r.table, Out: unsafe.Slice((*byte)(out), r.outBytes()), Stride: r.stride}
	if r.idBytes == 4 {
		q.Rows32 = narrow(ids, r.n)
	} else {
		q.Rows = wide(ids, C.TC_INT64, r.n)
	}
	if r.device < 0 {
		return s.cache.Gather(context.Background(), q)
	}
	return s.views[r.device].Gather(context.Background(), q)
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

//export tcgo_batch
func tcgo_batch(h C.uintptr_t, wait C.int32_t) (st status) {
	defer recovered(&st)
	b, ok := batches.get(handle(h))
	if !ok {
		return result(batches.missing(handle(h)))
	}
	var errs []error
	for _, p := range b.parts { // of a batch in a graph there is one, and Poll says once what was wrong
		if wait != 0 {
			errs = append(errs, p.Wait())
			continue
		}
		done, err := p.Poll()
		switch {
		case !done && err != nil:
			return result(as(C.TC_ERROR_DEVICE, err))
		case !done:
			return C.TC_PENDING
		}
		errs = append(errs, err)
	}
	return result(errors.Join(errs...))
}

//export tcgo_batch_destroy
func tcgo_batch_destroy(h C.uintptr_t) { batches.remove(handle(h)) }

//export tcgo_check
func tcgo_check(h C.uintptr_t, wait C.int32_t) (st status) {
	defer recovered(&st)
	s, ok := caches.get(handle(h))
	if !ok {
		return result(caches.missing(handle(h)))
	}
	return result(s.cache.Check(wait != 0))
}
