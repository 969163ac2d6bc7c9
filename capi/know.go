package main

// #include "bridge.h"
import "C"

import (
	"context"
	"log/slog"
	"unsafe"

	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/dtype"
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

// newInfo returns what is said of a table, but for its rows. Axes are rows and columns.
func newInfo(name, codec string, of dtype.Type, rowBytes int, capacity int64) C.tc_table_info {
	i := C.tc_table_info{capacity: C.int64_t(capacity), row_bytes: C.int64_t(rowBytes), axes: 2}
	setText(i.name[:], name)
	setText(i.codec[:], codec)
	if of.IsRow() {
		i.dtype, i.columns = C.TC_UINT8, i.row_bytes
		setText(i.parts[:], of.String())
	} else {
		i.dtype, i.columns = C.int32_t(of), C.int64_t(rowBytes/of.Size())
	}
	i.shape[1] = i.columns
	return i
}

func (s *served) tableGetInfo(table C.int32_t, to *C.tc_table_info) error {
	t, err := s.table(table)
	if err != nil {
		return err
	}
	i := t.info
	i.rows = C.int64_t(s.cache.Rows(int(table)))
	i.shape[0] = i.rows
	return give(to, &i, "tc_table_info")
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
		t, err := r.open(context.Background())
		if err != nil {
			return err
		}
		i, shape := newInfo(t.Name(), "", t.DType(), t.RowBytes(), max(int64(t.Rows()), int64(c.capacity))), t.Shape()
		i.rows = C.int64_t(t.Rows())
		if err := t.Close(); err != nil {
			return err
		}
		if len(shape) > len(i.shape) {
			return argument("%s: array (%d axes) must have at most %d", t.Name(), len(shape), len(i.shape))
		}
		i.axes = C.int32_t(len(shape))
		i.shape = [len(i.shape)]C.int64_t{}
		for axis, n := range shape {
			i.shape[axis] = C.int64_t(n)
		}
		return give(to, &i, "tc_table_info")
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
	held := s.bounceBytes() // what this library holds for the cache, page-locked
	all.StagingBytes += held
	all.HostTakenBytes += held
	if table != -1 { // the table's numbers in front, with what is of the whole cache
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
