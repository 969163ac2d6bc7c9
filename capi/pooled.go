package main

// #include "bridge.h"
import "C"

import (
	"unsafe"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/reduce"
)

// maxPooled is the most batches of one call.
const maxPooled = 1 << 16

func (s *served) gatherPooledHost(dev C.int32_t, batches *C.tc_pooled, count C.int32_t) error {
	requests, err := s.pooledRequests(dev, batches, count, false)
	if err != nil {
		return err
	}
	return s.run(dev, requests...)
}

func (s *served) gatherPooled(dev C.int32_t, batches *C.tc_pooled, count C.int32_t, stream C.uintptr_t, to *C.uintptr_t) error {
	if err := s.checkStream(stream); err != nil {
		return err
	}
	if s.onHost {
		if err := s.gatherPooledHost(dev, batches, count); err != nil {
			return err
		}
		return giveBatch(to)
	}
	if err := s.checkDevice(dev, 0); err != nil {
		return err
	}
	requests, err := s.pooledRequests(dev, batches, count, true)
	switch {
	case err != nil:
		return err
	case len(requests) == 0:
		return giveBatch(to)
	}
	return s.submit(dev, stream, to, requests...)
}

// pooledRequests checks batches, and the device, also of no batches. onGPU says that their memory is a GPU's.
func (s *served) pooledRequests(dev C.int32_t, first *C.tc_pooled, count C.int32_t, onGPU bool) ([]cache.Request, error) {
	batches, err := takeAll(first, count, 0, maxPooled, "tc_pooled", "batches", "batch")
	if err == nil {
		err = s.checkDevice(dev, -1)
	}
	if err != nil {
		return nil, err
	}
	requests := make([]cache.Request, len(batches))
	for i := range batches {
		if requests[i], err = s.pooledRequest(dev, &batches[i], onGPU); err != nil {
			return nil, err
		}
	}
	return requests, nil
}

func (s *served) pooledRequest(dev C.int32_t, p *C.tc_pooled, onGPU bool) (q cache.Request, err error) {
	r, err := s.shapeOf(dev, p.table, p.id_type, p.n, 0, p.ids != nil, true)
	if err != nil {
		return q, err
	}
	narrow := p.offset_type == C.TC_INT32
	switch {
	case p.bags < 0 || p.bags > maxBatch || p.first_bag < 0 || p.first_bag > maxBatch:
		return q, argument("first_bag and bags (%d, %d) must be 0 to 2^31 - 1", p.first_bag, p.bags)
	case p.bag < 0 || p.bag > maxBatch:
		return q, argument("bag (%d) must be 0 to 2^31 - 1", p.bag)
	case p.offset_count < 0 || p.offset_count > maxBatch+1:
		return q, argument("offset_count (%d) must be 0 to 2^31", p.offset_count)
	case p.offset_count > 0 && p.offsets == nil:
		return q, argument("offsets (NULL) must be %d positions", p.offset_count)
	case p.offset_count > 0 && !narrow && p.offset_type != C.TC_INT64:
		return q, argument("offset_type (%d) must be TC_INT32 or TC_INT64", p.offset_type)
	case p.mode < 0 || p.mode > C.TC_POOL_MAX:
		return q, argument("mode (%d) must be one of tc_pool_mode", p.mode)
	case p.float8 < 0 || p.float8 > C.TC_FLOAT8_E8M0 || p.float8_scales < 0 || p.float8_scales > C.TC_FLOAT8_E8M0 || p.float8_block < 0 || int64(p.float8_block) > r.row:
		return q, argument("float8 (%d, scales %d, block %d) must be tc_dtype, tc_dtype, and 0 to the row's %d bytes", p.float8, p.float8_scales, p.float8_block, r.row)
	}
	output := dtype.Invalid
	if p.output != 0 {
		if output, err = elementsOf(p.output); err != nil {
			return q, argument("output (%d) must be TC_FLOAT32, TC_FLOAT16, TC_BFLOAT16 or 0", p.output)
		}
	}
	pool := &cache.Pooling{
		Mode: cache.PoolMode(p.mode), Bag: int(p.bag), LastOffset: p.last_offset != 0, Padding: p.has_padding != 0, PaddingRow: int64(p.padding),
		Offsets32: narrow, FirstBag: int(p.first_bag), Bags: int(p.bags),
	}
	q = cache.Request{Table: r.table, As: output, Stride: int64(p.out_stride), Pool: pool, Float8: cache.Float8{
		Values: dtype.Type(p.float8), Scales: dtype.Type(p.float8_scales), Block: int(p.float8_block), Factor: float32(p.float8_factor),
	}}
	bags := int64(p.offset_count)
	switch {
	case p.bags > 0:
		bags = int64(p.bags)
	case p.bag > 0:
		bags = r.n / int64(p.bag)
	case p.last_offset != 0:
		bags = max(bags-1, 0)
	}
	width := outputBytes(s.tables[r.table].of, output, r.row, q.Float8)
	stride := int64(p.out_stride)
	switch {
	case stride == 0:
		stride = width
	case stride < width || stride > 1<<40:
		return q, argument("out_stride (%d) must be 0 or at least the output's %d bytes", p.out_stride, width)
	}
	if bags > 0 && p.out == nil {
		return q, argument("out (NULL) must have room for %d bags", bags)
	}
	out := min(bags, 1) * ((bags-1)*stride + width)
	if onGPU {
		at := func(p unsafe.Pointer, bytes int64) device.Buffer {
			return device.DeviceBuffer(uint64(uintptr(p)), bytes)
		}
		q.DeviceRows, q.DeviceRows32, q.DeviceOut = at(p.ids, r.n*r.idBytes), r.idBytes == 4, at(p.out, out)
		pool.DeviceOffsets = at(p.offsets, 8*int64(p.offset_count))
		if narrow {
			pool.DeviceOffsets = at(p.offsets, 4*int64(p.offset_count))
		}
		if p.weights != nil {
			pool.DeviceWeights = at(unsafe.Pointer(p.weights), 4*r.n)
		}
		return q, nil
	}
	r.setRows(&q, p.ids)
	pool.Offsets = wide(p.offsets, p.offset_type, int64(p.offset_count))
	if p.weights != nil && r.n > 0 {
		pool.Weights = inPlace[float32](unsafe.Pointer(p.weights), r.n)
	}
	if out > 0 {
		q.Out = unsafe.Slice((*byte)(p.out), out)
	}
	return q, nil
}

// outputBytes returns the bytes of a bag's output, of rows of so many bytes of a type. output is what was asked for, Invalid for the table's type.
func outputBytes(of, output dtype.Type, row int64, f8 cache.Float8) int64 {
	columns, f := row, reduce.Float8(f8)
	if f.Complete(of); f.Is() {
		of, columns = dtype.Float32, int64(f.Columns(int(row)))
	} else if of.Size() > 0 {
		columns /= int64(of.Size())
	}
	if output == dtype.Invalid {
		output = of
	}
	return columns * int64(max(output.Size(), 1))
}
