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
func tcgo_gpu_count(count *C.int32_t) status {
	return call(func() error {
		*count = 0
		if err := cuda.Usable(); err != nil {
			return failure{C.TC_ERROR_DEVICE, err}
		}
		*count = C.int32_t(cuda.Count())
		return nil
	})
}

// setText writes a text to a field of a structure, cut to its length.
func setText(to []C.char, text string) {
	n := copy(unsafe.Slice((*byte)(unsafe.Pointer(&to[0])), len(to)-1), text)
	to[n] = 0
}

// info returns what is said of a table with so many rows.
func (t *servedTable) info(rows int64) *C.tc_table_info {
	i := &C.tc_table_info{
		rows: C.int64_t(rows), capacity: C.int64_t(t.capacity), row_bytes: C.int64_t(t.rowBytes), columns: C.int64_t(t.columns), dtype: t.elements,
	}
	setText(i.name[:], t.name)
	setText(i.codec[:], t.codec)
	return i
}

func (s *served) tableGetInfo(table C.int32_t, to *C.tc_table_info) error {
	t, err := s.table(table)
	if err != nil {
		return err
	}
	return give(to, t.info(s.cache.Rows(int(table))), "tc_table_info")
}

//export tcgo_table_describe
func tcgo_table_describe(table *C.tc_table, to *C.tc_table_info) status {
	return call(func() error {
		c, err := take(table, "tc_table")
		if err != nil {
			return err
		}
		r, err := newTableRequest(0, &c)
		if err != nil {
			return err
		}
		r.place.Logger = slog.New(slog.DiscardHandler)
		t, err := r.open(context.Background(), 0)
		if err != nil {
			return err
		}
		code, bytes := codeOf(t.DType())
		rows, rowBytes := int64(t.Rows()), t.RowBytes()
		of := servedTable{name: t.Name(), capacity: max(rows, r.capacity), rowBytes: int64(rowBytes), columns: int64(rowBytes / bytes), elements: code}
		if err := t.Close(); err != nil {
			return err
		}
		return give(to, of.info(rows), "tc_table_info")
	})
}

func (s *served) deviceGetInfo(device C.int32_t, to *C.tc_device_info) error {
	if err := s.checkDevice(device, 0); err != nil {
		return err
	}
	i := s.cache.DeviceInfo(int(device))
	info := C.tc_device_info{backend: C.TC_BACKEND_CUDA, gpu: C.int32_t(i.Index)}
	if s.onHost {
		info.backend = C.TC_BACKEND_HOST
	}
	setText(info.name[:], i.Name)
	return give(to, &info, "tc_device_info")
}

func (s *served) statsJSON(table C.int32_t, to **C.char) error {
	if table != -1 {
		if _, err := s.table(table); err != nil {
			return err
		}
	}
	all, err := statjson.Of(s.cache)
	if err != nil {
		return err
	}
	all.StagingBytes += s.bounceBytes() // what this library holds for the cache
	if table != -1 {                    // the table's numbers in front, with what is of the whole cache
		all.Table = all.Tables[table]
	}
	return giveJSON(all, to)
}

func (s *served) explainJSON(table C.int32_t, ids C.uintptr_t, idType C.int32_t, n C.int64_t, to **C.char) error {
	rows, err := s.rowsOf(table, ids, idType, n)
	if err != nil {
		return err
	}
	all, err := statjson.Explain(s.cache, int(table), rows)
	if err != nil {
		return err
	}
	return giveJSON(all, to)
}
