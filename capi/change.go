package main

// #include "bridge.h"
import "C"

import (
	"context"
	"unsafe"
)

// rowsOf returns the row numbers of a call that changes or explains rows.
func (s *served) rowsOf(table C.int32_t, ids C.uintptr_t, idType C.int32_t, n C.int64_t) ([]int64, error) {
	r, err := s.shapeOf(-1, table, idType, n, 0, ids != 0, true)
	if err != nil {
		return nil, err
	}
	return wide(pointer(ids), idType, r.n), nil
}

func (s *served) update(table C.int32_t, ids C.uintptr_t, idType C.int32_t, n C.int64_t, rows C.uintptr_t, stride C.int64_t) error {
	r, err := s.shapeOf(-1, table, idType, n, stride, ids != 0, rows != 0)
	if err != nil {
		return err
	}
	if r.n == 0 {
		return s.cache.Update(context.Background(), r.table, nil, nil)
	}
	numbers := wide(pointer(ids), idType, r.n)
	if r.stride == r.row {
		return s.cache.Update(context.Background(), r.table, numbers, unsafe.Slice((*byte)(pointer(rows)), r.n*r.row))
	}
	// Rows that do not lie back to back are copied, so that one call of Update checks all row numbers before any row changes.
	data := make([]byte, r.n*r.row)
	for i := range r.n {
		copy(data[i*r.row:][:r.row], unsafe.Slice((*byte)(unsafe.Add(pointer(rows), i*r.stride)), r.row))
	}
	return s.cache.Update(context.Background(), r.table, numbers, data)
}

func (s *served) invalidate(table C.int32_t, ids C.uintptr_t, idType C.int32_t, n C.int64_t) error {
	rows, err := s.rowsOf(table, ids, idType, n)
	if err != nil {
		return err
	}
	return s.cache.Invalidate(int(table), rows)
}

func (s *served) prefetch(table C.int32_t, ids C.uintptr_t, idType C.int32_t, n C.int64_t) error {
	r, err := s.shapeOf(-1, table, idType, n, 0, ids != 0, true)
	if err == nil {
		err = s.checkRows(r, pointer(ids))
	}
	if err != nil {
		return err
	}
	return s.cache.Prefetch(r.table, wide(pointer(ids), idType, r.n))
}

func (s *served) refresh() error { return s.cache.Refresh(context.Background()) }

func (s *served) retarget(table C.int32_t, target C.int64_t) error {
	return s.cache.Retarget(context.Background(), int(table), int(target))
}

func (s *served) mergeUpdates(table C.int32_t) error {
	return as(C.TC_ERROR_FILE, s.cache.MergeUpdates(context.Background(), int(table)))
}

func (s *served) setGPUMemory(bytes C.int64_t) error {
	return s.cache.SetBudget(context.Background(), int64(bytes))
}

func (s *served) snapshot(path *C.char) error {
	return as(C.TC_ERROR_FILE, s.cache.Snapshot(text(path)))
}
