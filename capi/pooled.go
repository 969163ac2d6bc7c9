//go:build cgo

package main

// #include "bridge.h"
import "C"

import (
	"context"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/reduce"
)

// pooledShape is a tc_pooled that has been checked.
type pooledShape struct {
	shape
	c       *C.tc_pooled
	request cache.Request // without row numbers and output
	pooling cache.Pooling // without offsets and weights
	bags    int64
	outSize int64 // bytes
}

// pooledShapes checks batches, and the device, also of no batches.
func (s *served) pooledShapes(device C.int32_t, batches []C.tc_pooled) ([]pooledShape, error) {
	if err := s.checkDevice(device, -1); err != nil {
		return nil, err
	}
	all := make([]pooledShape, len(batches))
	for i := range batches {
		var err error
		if all[i], err = s.pooledShape(device, &batches[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (s *served) pooledShape(on C.int32_t, p *C.tc_pooled) (r pooledShape, err error) {
	r.c = p
	if r.shape, err = s.shapeOf(on, p.table, p.id_type, p.n, 0, p.ids != nil, true); err != nil {
		return r, err
	}
	narrow := p.offset_type == C.TC_INT32
	switch {
	case p.bags < 0 || p.bags > maxBatch || p.first_bag < 0 || p.first_bag > maxBatch:
		return r, argument("first_bag and bags (%d, %d) must be 0 to 2^31 - 1", p.first_bag, p.bags)
	case p.bag < 0 || p.bag > maxBatch:
		return r, argument("bag (%d) must be 0 to 2^31 - 1", p.bag)
	case p.offset_count < 0 || p.offset_count > maxBatch+1:
		return r, argument("offset_count (%d) must be 0 to 2^31", p.offset_count)
	case p.offset_count > 0 && p.offsets == nil:
		return r, argument("offsets (NULL) must be %d positions", p.offset_count)
	case p.offset_count > 0 && !narrow && p.offset_type != C.TC_INT64:
		return r, argument("offset_type (%d) must be TC_INT32 or TC_INT64", p.offset_type)
	case p.mode < 0 || p.mode > C.TC_POOL_MAX:
		return r, argument("mode (%d) must be one of tc_pool_mode", p.mode)
	}
	output := dtype.Invalid
	if p.output != 0 {
		if output, err = elementsOf(p.output); err != nil {
			return r, argument("output (%d) must be TC_FLOAT32, TC_FLOAT16, TC_BFLOAT16 or 0", p.output)
		}
	}
	r.pooling = cache.Pooling{
		Mode: cache.PoolMode(p.mode), Bag: int(p.bag), LastOffset: p.last_offset != 0, Padding: p.has_padding != 0, PaddingRow: int64(p.padding),
		Offsets32: narrow, FirstBag: int(p.first_bag), Bags: int(p.bags),
	}
	r.request = cache.Request{Table: r.table, As: output, Stride: int64(p.out_stride)}
	switch r.bags = int64(p.offset_count); {
	case p.bags > 0:
		r.bags = int64(p.bags)
	case p.bag > 0:
		r.bags = r.n / int64(p.bag)
	case p.last_offset != 0:
		r.bags = max(r.bags-1, 0)
	}
	of := s.tables[r.table].of
	r.request.Float8 = cache.Float8{
		Values: dtype.Type(p.float8), Scales: dtype.Type(p.float8_scales), Block: int(p.float8_block), Factor: float32(p.float8_factor),
	}
	if p.float8 < 0 || p.float8 > C.TC_FLOAT8_E8M0 || p.float8_scales < 0 || p.float8_scales > C.TC_FLOAT8_E8M0 || p.float8_block < 0 || int64(p.float8_block) > r.row {
		return r, argument("float8 (%d, scales %d, block %d) must be tc_dtype, tc_dtype, and 0 to the row's %d bytes", p.float8, p.float8_scales, p.float8_block, r.row)
	}
	columns, f := r.row, reduce.Float8(r.request.Float8)
	if f.Complete(of); f.Is() {
		of, columns = dtype.Float32, int64(f.Columns(int(r.row)))
	} else if of.Size() > 0 {
		columns /= int64(of.Size())
	}
	if output == dtype.Invalid {
		output = of
	}
	width := columns * int64(max(output.Size(), 1))
	stride := int64(p.out_stride)
	switch {
	case stride == 0:
		stride = width
	case stride < width || stride > 1<<40:
		return r, argument("out_stride (%d) must be 0 or at least the output's %d bytes", p.out_stride, width)
	}
	if r.bags > 0 {
		r.outSize = (r.bags-1)*stride + width
	}
	if r.bags > 0 && p.out == nil {
		return r, argument("out (NULL) must have room for %d bags", r.bags)
	}
	return r, nil
}

// maxPooled is the most batches of one call.
const maxPooled = 1 << 16

func takePooled(first *C.tc_pooled, count C.int32_t) ([]C.tc_pooled, error) {
	return takeAll(first, count, 0, maxPooled, "tc_pooled", "batches", "batch")
}

func (s *served) gatherPooledHost(dev C.int32_t, batches *C.tc_pooled, count C.int32_t) error {
	pooled, err := takePooled(batches, count)
	if err != nil {
		return err
	}
	return s.reduceHost(dev, pooled)
}

// reduceHost reduces rows between memory of the host.
func (s *served) reduceHost(dev C.int32_t, pooled []C.tc_pooled) error {
	all, err := s.pooledShapes(dev, pooled)
	if err != nil {
		return err
	}
	requests := make([]cache.Request, len(all))
	for i := range all {
		r := &all[i]
		q := r.request
		if r.idBytes == 4 {
			q.Rows32 = narrow(r.c.ids, r.n)
		} else {
			q.Rows = wide(r.c.ids, C.TC_INT64, r.n)
		}
		r.pooling.Offsets = wide(r.c.offsets, r.c.offset_type, int64(r.c.offset_count))
		if r.c.weights != nil {
			r.pooling.Weights = weightsOf(unsafe.Pointer(r.c.weights), r.n)
		}
		if r.outSize > 0 {
			q.Out = unsafe.Slice((*byte)(r.c.out), r.outSize)
		}
		q.Pool = &r.pooling
		requests[i] = q
	}
	if dev < 0 {
		return s.cache.Gather(context.Background(), requests...)
	}
	return s.views[dev].Gather(context.Background(), requests...)
}

// weightsOf returns n floats in C's memory: in place where they are aligned, else copied.
func weightsOf(at unsafe.Pointer, n int64) []float32 {
	if n == 0 {
		return nil
	}
	if uintptr(at)%4 == 0 {
		return unsafe.Slice((*float32)(at), n)
	}
	copied := make([]float32, n)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&copied[0])), 4*n), unsafe.Slice((*byte)(at), 4*n))
	return copied
}

func (s *served) gatherPooled(dev C.int32_t, batches *C.tc_pooled, count C.int32_t, stream C.uintptr_t, to *C.uintptr_t) error {
	pooled, err := takePooled(batches, count)
	switch {
	case err != nil:
		return err
	case s.onHost:
		if err := s.checkStream(stream); err != nil {
			return err
		}
		if err := s.reduceHost(dev, pooled); err != nil {
			return err
		}
		return giveBatch(to)
	}
	if err := s.checkDevice(dev, 0); err != nil {
		return err
	}
	if err := s.checkStream(stream); err != nil {
		return err
	}
	all, err := s.pooledShapes(dev, pooled)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return giveBatch(to)
	}
	enqueued := make([]cache.Request, len(all))
	for i := range all {
		enqueued[i] = all[i].onDevice()
	}
	b, err := s.views[dev].Enqueue(context.Background(), uintptr(stream), enqueued...)
	if err != nil {
		return err
	}
	return giveBatch(to, b)
}

// onDevice returns a request whose memory is a GPU's.
func (r *pooledShape) onDevice() cache.Request {
	at := func(p unsafe.Pointer, bytes int64) device.Buffer {
		return device.DeviceBuffer(uint64(uintptr(p)), bytes)
	}
	offsetBytes := int64(8)
	if r.pooling.Offsets32 {
		offsetBytes = 4
	}
	r.pooling.DeviceOffsets = at(r.c.offsets, offsetBytes*int64(r.c.offset_count))
	if r.c.weights != nil {
		r.pooling.DeviceWeights = at(unsafe.Pointer(r.c.weights), 4*r.n)
	}
	q := r.request
	q.DeviceRows, q.DeviceRows32, q.DeviceOut, q.Pool = at(r.c.ids, r.n*r.idBytes), r.idBytes == 4, at(r.c.out, r.outSize), &r.pooling
	return q
}
