//go:build cgo

package main

// #include "bridge.h"
import "C"

import (
	"context"
	"unsafe"
)

// rowsOf returns the row numbers of a call that changes or explains rows.
func (s *served) rowsOf(table C.int32_t, ids unsafe.Pointer, idType C.int32_t, n C.int64_t) ([]int64, shape, error) {
	r, err := s.check(-1, table, idType, n, 0, ids != nil, true)
	if err != nil {
		return nil, r, err
	}
	return wide(ids, idType, r.n), r, nil
}

//export tcgo_update
func tcgo_update(h C.uintptr_t, table C.int32_t, ids unsafe.Pointer, idType C.int32_t, n C.int64_t, rows unsafe.Pointer, stride C.int64_t) (st status) {
	defer recovered(&st)
	s, ok := caches.get(handle(h))
	if !ok {
		return result(caches.missing(handle(h)))
	}
	r, err := s.check(-1, table, idType, n, stride, ids != nil, rows != nil)
	if err != nil {
		return result(err)
	}
	if r.n == 0 {
		return result(s.cache.Update(context.Background(), r.table, nil, nil))
	}
	numbers := wide(ids, idType, r.n)
	if r.stride == r.row {
		return result(s.cache.Update(context.Background(), r.table, numbers, unsafe.Slice((*byte)(rows), r.n*r.row)))
	}
	// Rows that do not lie back to back are copied, so that one call of Update checks all row numbers before any row changes.
	data := make([]byte, r.n*r.row)
	for i := range r.n {
		copy(data[i*r.row:][:r.row], unsafe.Slice((*byte)(unsafe.Add(rows, i*r.stride)), r.row))
	}
	return result(s.cache.Update(context.Background(), r.table, numbers, data))
}

//export tcgo_invalidate
func tcgo_invalidate(h C.uintptr_t, table C.int32_t, ids unsafe.Pointer, idType C.int32_t, n C.int64_t) (st status) {
	defer recovered(&st)
	s, ok := caches.get(handle(h))
	if !ok {
		return result(caches.missing(handle(h)))
	}
	rows, r, err := s.rowsOf(table, ids, idType, n)
	if err != nil {
		return result(err)
	}
	return result(s.cache.Invalidate(r.table, rows))
}

//export tcgo_prefetch
func tcgo_prefetch(h C.uintptr_t, table C.int32_t, ids unsafe.Pointer, idType C.int32_t, n C.int64_t) (st status) {
	defer recovered(&st)
	s, ok := caches.get(handle(h))
	if !ok {
		return result(caches.missing(handle(h)))
	}
	r, err := s.check(-1, table, idType, n, 0, ids != nil, true)
	if err == nil {
		err = s.checkRows(r, ids)
	}
	if err == nil {
		err = s.cache.Prefetch(r.table, wide(ids, idType, r.n))
	}
	return result(err)
}

//export tcgo_refresh
func tcgo_refresh(h C.uintptr_t) (st status) {
	defer recovered(&st)
	s, ok := caches.get(handle(h))
	if !ok {
		return result(caches.missing(handle(h)))
	}
	return result(s.cache.Refresh(context.Background()))
}

//export tcgo_retarget
func tcgo_retarget(h C.uintptr_t, table C.int32_t, target C.int64_t) (st status) {
	defer recovered(&st)
	s, ok := caches.get(handle(h))
	if !ok {
		return result(caches.missing(handle(h)))
	}
	return result(s.cache.Retarget(context.Background(), int(table), int(target)))
}

//export tcgo_merge_updates
func tcgo_merge_updates(h C.uintptr_t, table C.int32_t) (st status) {
	defer recovered(&st)
	s, ok := caches.get(handle(h))
	if !ok {
		return result(caches.missing(handle(h)))
	}
	return result(as(C.TC_ERROR_FILE, s.cache.MergeUpdates(context.Background(), int(table))))
}

//export tcgo_set_gpu_memory
func tcgo_set_gpu_memory(h C.uintptr_t, bytes C.int64_t) (st status) {
	defer recovered(&st)
	s, ok := caches.get(handle(h))
	if !ok {
		return result(caches.missing(handle(h)))
	}
	return result(s.cache.SetBudget(context.Background(), int64(bytes)))
}

//export tcgo_snapshot
func tcgo_snapshot(h C.uintptr_t, path *C.char) (st status) {
	defer recovered(&st)
	s, ok := caches.get(handle(h))
	if !ok {
		return result(caches.missing(handle(h)))
	}
	return result(as(C.TC_ERROR_FILE, s.cache.Snapshot(text(path))))
}
