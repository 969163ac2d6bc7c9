//go:build cgo

package main

// #include "bridge.h"
import "C"

import (
	"context"
	"log/slog"
	"unsafe"

	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/statjson"
)

//export tcgo_gpu_count
func tcgo_gpu_count(count *C.int32_t) (st status) {
	defer recovered(&st)
	*count = 0
	if err := cuda.Usable(); err != nil {
		return result(failure{C.TC_ERROR_DEVICE, err})
	}
	*count = C.int32_t(cuda.Count())
	return C.TC_OK
}

// setText writes a text to a field of a structure, cut to its length.
func setText(to []C.char, text string) {
	n := copy(unsafe.Slice((*byte)(unsafe.Pointer(&to[0])), len(to)-1), text)
	to[n] = 0
}

//export tcgo_table_info
func tcgo_table_info(h C.uintptr_t, table C.int32_t, info *C.tc_table_info) (st status) {
	defer recovered(&st)
	s, ok := caches.get(handle(h))
	if !ok {
		return result(caches.missing(handle(h)))
	}
	r, err := s.check(-1, table, C.TC_INT64, 0, 0, true, true)
	if err != nil {
		return result(err)
	}
	t := &s.tables[r.table]
	info.rows, info.capacity, info.row_bytes = C.int64_t(s.cache.Rows(r.table)), C.int64_t(t.capacity), C.int64_t(r.row)
	info.columns, info.dtype = C.int64_t(t.columns), s.elements[r.table]
	setText(info.name[:], t.name)
	setText(info.codec[:], t.codec)
	return C.TC_OK
}

//export tcgo_table_describe
func tcgo_table_describe(table *C.tc_table, info *C.tc_table_info) (st status) {
	defer recovered(&st)
	r, err := newTableRequest(0, table)
	if err != nil {
		return result(err)
	}
	r.place.Logger = slog.New(slog.DiscardHandler)
	t, err := r.open(context.Background(), 0)
	if err != nil {
		return result(err)
	}
	code, bytes := codeOf(t.DType())
	info.rows, info.capacity, info.row_bytes = C.int64_t(t.Rows()), C.int64_t(max(int64(t.Rows()), r.capacity)), C.int64_t(t.RowBytes())
	info.columns, info.dtype = C.int64_t(t.RowBytes()/bytes), code
	setText(info.name[:], t.Name())
	return result(t.Close())
}

//export tcgo_device_info
func tcgo_device_info(h C.uintptr_t, device C.int32_t, info *C.tc_device_info) (st status) {
	defer recovered(&st)
	s, ok := caches.get(handle(h))
	if !ok {
		return result(caches.missing(handle(h)))
	}
	if device < 0 || int(device) >= len(s.views) {
		return result(argument("device (%d) must be 0 to %d", device, len(s.views)-1))
	}
	i := s.cache.DeviceInfo(int(device))
	info.backend, info.gpu = C.TC_BACKEND_CUDA, C.int32_t(i.Index)
	if s.onHost {
		info.backend = C.TC_BACKEND_HOST
	}
	setText(info.name[:], i.Name)
	return C.TC_OK
}

// stats returns the statistics of a cache, with the memory that this library holds for it.
func (s *served) stats() (*statjson.Stats, error) {
	all, err := statjson.Of(s.cache)
	if err != nil {
		return nil, err
	}
	all.StagingBytes += s.bounceBytes()
	return all, nil
}

//export tcgo_stats_json
func tcgo_stats_json(h C.uintptr_t, table C.int32_t, to **C.char) (st status) {
	defer recovered(&st)
	s, ok := caches.get(handle(h))
	if !ok {
		return result(caches.missing(handle(h)))
	}
	if table != -1 {
		if _, err := s.check(-1, table, C.TC_INT64, 0, 0, true, true); err != nil {
			return result(err)
		}
	}
	all, err := s.stats()
	if err != nil {
		return result(err)
	}
	if table != -1 { // the table's numbers in front, with what is of the whole cache
		all.Table = all.Tables[table]
	}
	return giveJSON(all, to)
}

//export tcgo_explain_json
func tcgo_explain_json(h C.uintptr_t, table C.int32_t, ids unsafe.Pointer, idType C.int32_t, n C.int64_t, to **C.char) (st status) {
	defer recovered(&st)
	s, ok := caches.get(handle(h))
	if !ok {
		return result(caches.missing(handle(h)))
	}
	rows, r, err := s.rowsOf(table, ids, idType, n)
	if err != nil {
		return result(err)
	}
	all, err := statjson.Explain(s.cache, r.table, rows)
	if err != nil {
		return result(err)
	}
	return giveJSON(all, to)
}
