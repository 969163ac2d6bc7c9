//go:build cgo

package main

// #include "bridge.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/foreign"
	"github.com/tensorcache/tensorcache/internal/pagetable"
)

// request is what tc_open and tc_open_begin ask for, copied from C's structures. Memory of tables and of training remains C's.
type request struct {
	options  cache.Options
	tables   []tableRequest
	training *training
}

type tableRequest struct {
	name, path string
	memory     C.int32_t
	data       unsafe.Pointer
	rows       int64
	rowBytes   int
	elements   C.int32_t // tc_dtype
	parts      string
	gpu        int
	restore    bool
	capacity   int64
	codec      cache.Codec
	resident   *cache.ResidentOptions
	place      pagetable.Place // of pages
}

// text returns a C string, "" for NULL.
func text(s *C.char) string {
	if s == nil {
		return ""
	}
	return C.GoString(s)
}

// maxTables is the most tables of a cache.
const maxTables = 256

// newRequest reads the structures and reports fields that are out of range. What package cache checks is left to it.
func newRequest(config *C.tc_config, first *C.tc_table, count C.int32_t) (*request, error) {
	c, err := take(config, "tc_config")
	if err != nil {
		return nil, err
	}
	tables, err := takeAll(first, count, 1, maxTables, "tc_table", "tables", "table")
	if err != nil {
		return nil, err
	}
	backend, ok := map[C.int32_t]cache.Backend{
		C.TC_BACKEND_AUTO: cache.BackendAuto, C.TC_BACKEND_HOST: cache.BackendHost, C.TC_BACKEND_CUDA: cache.BackendCUDA,
	}[c.backend]
	switch {
	case !ok:
		return nil, argument("config.backend (%d) must be one of tc_backend", c.backend)
	case c.gpu_memory <= 0:
		return nil, argument("config.gpu_memory (%d) must be positive", c.gpu_memory)
	case c.devices < 0 || c.devices > 8:
		return nil, argument("config.devices (%d) must be 0 to 8", c.devices)
	case c.training_batches < 0 || c.training_batches > 1<<31 || c.training_batches > 0 && c.training == nil:
		return nil, argument("config.training_batches (%d) must be the number of elements of training (%p)", c.training_batches, c.training)
	case !(c.refresh_interval >= 0 && c.refresh_interval < 1e9):
		return nil, argument("config.refresh_interval (%v s) must be 0 to 1e9", c.refresh_interval)
	case c.host_memory < 0:
		return nil, argument("config.host_memory (%d) must not be negative", c.host_memory)
	}
	name := text(c.policy)
	if name == "" {
		name = admission.Default
	}
	spec, err := admission.Lookup(name)
	if err != nil {
		return nil, argument("config.policy: %w", err)
	}
	if spec.Learns == admission.FromGraph {
		return nil, argument("config.policy (%q) must be one that needs no graph", name)
	}
	policy, err := spec.New(admission.Inputs{})
	if err != nil {
		return nil, argument("config.policy (%q): %w", name, err)
	}
	training, err := newTraining(unsafe.Slice(c.training, c.training_batches), len(tables))
	if err != nil {
		return nil, err
	}
	r := &request{training: training, options: cache.Options{
		Budget: int64(c.gpu_memory), Shared: c.shared != 0, Codec: cache.Codec(text(c.codec)), Seed: uint64(c.seed),
		Devices:   cache.DeviceOptions{Backend: backend, Count: int(c.devices)},
		Host:      cache.HostOptions{Threads: int(c.host_threads), Workers: int(c.workers), Overlay: int64(c.overlay), Memory: int64(c.host_memory), NoEqualRows: c.no_equal_rows != 0},
		Admission: cache.AdmissionOptions{Policy: policy, Training: training.rows(), Cold: c.cold != 0, Restore: text(c.restore)},
		Refresh: cache.RefreshOptions{
			Interval: seconds(c.refresh_interval), MaxChurn: float64(c.refresh_churn),
			MaxBytes: int64(c.refresh_bytes), Accesses: float64(c.refresh_accesses),
		},
		Telemetry: cache.TelemetryOptions{Name: text(c.name)},
	}}
	if c.host_packed != 0 {
		r.options.Host.Tier = cache.Packed
	}
	if c.gpus != nil {
		for _, gpu := range unsafe.Slice(c.gpus, max(1, c.devices)) {
			r.options.Devices.GPUs = append(r.options.Devices.GPUs, int(gpu))
		}
	}
	if r.options.Telemetry.Logger, err = loggerOf(c.log_level, r.options.Telemetry.Name); err != nil {
		return nil, err
	}
	for i := range tables {
		t, err := newTableRequest(i, &tables[i])
		if err != nil {
			return nil, err
		}
		r.tables = append(r.tables, t)
	}
	return r, nil
}

// loggerOf returns the logger of a cache for the tc_log_level of its config, nil for none.
func loggerOf(level C.int32_t, name string) (*slog.Logger, error) {
	switch {
	case level < 0 || level > C.TC_LOG_OFF:
		return nil, argument("config.log_level (%d) must be one of tc_log_level", level)
	case level == C.TC_LOG_OFF:
		return nil, nil
	case level == 0:
		level = C.TC_LOG_WARNING
	}
	return slog.New(&logHandler{level: slogLevels[level-1], cache: name}), nil
}

// seconds returns a time in seconds as Go has it.
func seconds(s C.double) time.Duration { return time.Duration(float64(s) * float64(time.Second)) }

// buddies are the values of tc_buddy.
var buddies = [...]cache.BuddyMemory{C.TC_BUDDY_HOST: cache.BuddyHost, C.TC_BUDDY_PEER: cache.BuddyPeer, C.TC_BUDDY_AUTO: cache.BuddyAuto}

func newTableRequest(i int, t *C.tc_table) (tableRequest, error) {
	r := tableRequest{
		name: text(t.name), path: text(t.path), memory: t.memory, data: unsafe.Pointer(t.data), rows: int64(t.rows), rowBytes: int(t.row_bytes),
		elements: t.dtype, parts: text(t.parts), gpu: int(t.gpu), restore: t.restore != 0, capacity: int64(t.capacity), codec: cache.Codec(text(t.codec)),
	}
	if r.parts != "" {
		if t.dtype != 0 && t.dtype != C.TC_UINT8 {
			return r, argument("table %d: dtype (%d) must be 0 or TC_UINT8 with parts (%q)", i, t.dtype, r.parts)
		}
		if _, err := r.of(); err != nil {
			return r, argument("table %d: %w", i, err)
		}
	}
	if t.resident_buddy < 0 || int(t.resident_buddy) >= len(buddies) {
		return r, argument("table %d: resident_buddy (%d) must be one of tc_buddy", i, t.resident_buddy)
	}
	if t.resident != 0 {
		r.resident = &cache.ResidentOptions{
			Target: int(t.resident_target), MaxTarget: int(t.resident_max_target), MaxOverflow: float64(t.resident_overflow), Retarget: t.resident_retarget != 0,
			Buddy: buddies[t.resident_buddy],
		}
	} else if t.resident_target != 0 || t.resident_overflow != 0 || t.resident_max_target != 0 || t.resident_retarget != 0 || t.resident_buddy != 0 {
		return r, argument("table %d: resident_target (%d), resident_overflow (%v), resident_max_target (%d), resident_retarget (%d) and resident_buddy (%d) must be 0 unless resident is set",
			i, t.resident_target, t.resident_overflow, t.resident_max_target, t.resident_retarget, t.resident_buddy)
	}
	r.place = pagetable.Place{Path: r.path, Cold: text(t.cold), Cache: text(t.cold_cache), CacheBytes: int64(t.cold_cache_bytes), Log: text(t.log), Durable: t.durable != 0}
	if r.path != "" {
		if r.data != nil {
			return r, argument("table %d: path (%q) and data (%p) must not both be set", i, r.path, r.data)
		}
		if err := r.place.Check(); err != nil {
			return r, argument("table %d: %w", i, err)
		}
		return r, nil
	}
	if r.place.Given() {
		return r, argument("table %d: cold, cold_cache, log and durable must not be set without a path", i)
	}
	if r.name == "" {
		r.name = fmt.Sprintf("table %d", i)
	}
	of, err := r.of()
	switch {
	case err != nil:
		return r, argument("table %d: %w", i, err)
	case r.rows < 0 || r.rows > 1<<50-2:
		return r, argument("table %d: rows (%d) must be 0 to 2^50 - 2", i, r.rows)
	case t.row_bytes < 1 || t.row_bytes >= 1<<20:
		return r, argument("table %d: row_bytes (%d) must be 1 to 2^20 - 1", i, t.row_bytes)
	case of.IsRow() && r.rowBytes != of.Size():
		return r, argument("table %d: row_bytes (%d) must be the %d of parts (%q)", i, r.rowBytes, of.Size(), r.parts)
	case r.rowBytes%of.Size() != 0:
		return r, argument("table %d: row_bytes (%d) must be a multiple of the %d bytes of an element", i, r.rowBytes, of.Size())
	case r.rows > 0 && r.data == nil:
		return r, argument("table %d: path or data must be set", i)
	case r.rows > math.MaxInt64/int64(r.rowBytes):
		return r, argument("table %d: rows (%d) of %d bytes must have fewer than 2^63 bytes", i, r.rows, r.rowBytes)
	case r.memory < C.TC_MEMORY_COPY || r.memory > C.TC_MEMORY_CUDA:
		return r, argument("table %d: memory (%d) must be one of tc_memory", i, r.memory)
	}
	return r, nil
}

// of returns the type of a table's elements or rows.
func (r *tableRequest) of() (dtype.Type, error) {
	if r.parts == "" {
		return elementsOf(r.elements)
	}
	of, err := dtype.Parse(r.parts)
	if err == nil && !of.IsRow() {
		err = fmt.Errorf("parts (%q) must be of different types", r.parts)
	}
	return of, err
}

// codeOf returns the tc_dtype of a table's elements: bytes where they are rows of parts.
func codeOf(of dtype.Type) (code C.int32_t, bytes int) {
	if of.IsRow() {
		return C.TC_UINT8, 1
	}
	return C.int32_t(of), of.Size()
}

// elementsOf returns the element type of a tc_dtype, whose numbers are those of package dtype: gen says so.
func elementsOf(t C.int32_t) (dtype.Type, error) {
	if t >= C.TC_FLOAT16 && t <= C.TC_FLOAT8_E8M0 {
		return dtype.Type(t), nil
	}
	return dtype.Invalid, fmt.Errorf("dtype (%d) must be one of tc_dtype", t)
}

// training is the batches of training. Their row numbers stay in C's memory until they are read.
type training struct {
	batches []C.tc_training
	err     error // set by who reads rows, if C's memory cannot be read
}

func newTraining(batches []C.tc_training, tables int) (*training, error) {
	batches = slices.Clone(batches)
	for i, b := range batches {
		switch {
		case b.table < 0 || int(b.table) >= tables:
			return nil, argument("training batch %d: table (%d) must be 0 to %d", i, b.table, tables-1)
		case b.id_type != C.TC_INT32 && b.id_type != C.TC_INT64:
			return nil, argument("training batch %d: id_type (%d) must be TC_INT32 or TC_INT64", i, b.id_type)
		case b.n < 0 || b.n > math.MaxInt32 || b.n > 0 && b.ids == nil:
			return nil, argument("training batch %d: n (%d) must be 0 to 2^31 - 1, the number of ids (%p)", i, b.n, b.ids)
		}
	}
	return &training{batches: batches}, nil
}

// rows yields copies of the row numbers: those who read them are not guarded against memory that goes away, such as that of a mapped file.
func (t *training) rows() admission.Training {
	if len(t.batches) == 0 {
		return nil
	}
	return func(yield func(int, []int64) bool) {
		for i, b := range t.batches {
			rows := make([]int64, b.n)
			if err := foreign.Read(func() { copyIDs(rows, unsafe.Pointer(b.ids), b.id_type) }); err != nil {
				t.err = failure{C.TC_ERROR_FILE, fmt.Errorf("tensorcache: training batch %d: %w", i, err)}
				return
			}
			if !yield(int(b.table), rows) {
				return
			}
		}
	}
}

// copyIDs copies row numbers from C's memory.
func copyIDs(to []int64, ids unsafe.Pointer, idType C.int32_t) {
	switch {
	case len(to) == 0:
	case idType == C.TC_INT64:
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&to[0])), len(to)*8), unsafe.Slice((*byte)(ids), len(to)*8))
	default:
		for i, id := range narrow(ids, int64(len(to))) {
			to[i] = int64(id)
		}
	}
}

// wide returns row numbers in C's memory as 64-bit ones: in place where they are and are aligned, else copied.
func wide(ids unsafe.Pointer, idType C.int32_t, n int64) []int64 {
	if n == 0 {
		return []int64{}
	}
	if idType == C.TC_INT64 && uintptr(ids)%8 == 0 {
		return unsafe.Slice((*int64)(ids), n)
	}
	rows := make([]int64, n)
	if idType == C.TC_INT64 {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&rows[0])), n*8), unsafe.Slice((*byte)(ids), n*8))
		return rows
	}
	for i, id := range narrow(ids, n) {
		rows[i] = int64(id)
	}
	return rows
}

// narrow returns 32-bit row numbers in C's memory: in place where they are aligned, else copied.
func narrow(ids unsafe.Pointer, n int64) []int32 {
	if n == 0 {
		return []int32{}
	}
	if uintptr(ids)%4 == 0 {
		return unsafe.Slice((*int32)(ids), n)
	}
	rows := make([]int32, n)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&rows[0])), n*4), unsafe.Slice((*byte)(ids), n*4))
	return rows
}

// open returns the table that a request describes.
func (r *tableRequest) open(ctx context.Context, i int) (cache.Table, error) {
	t, err := r.source(ctx, i)
	if err != nil {
		return t, err
	}
	if r.resident != nil {
		t = t.ResidentWith(*r.resident)
	}
	return t.WithCapacity(r.capacity).WithCodec(r.codec), nil
}

func (r *tableRequest) source(ctx context.Context, i int) (cache.Table, error) {
	if r.path != "" {
		open := func() (cache.Table, error) { return cache.Open(r.path) }
		if r.place.Given() {
			open = func() (cache.Table, error) { return r.place.Open(ctx) }
		}
		t, err := open()
		if err != nil {
			return t, failure{C.TC_ERROR_FILE, err}
		}
		if r.name != "" {
			t = t.WithName(r.name)
		}
		if r.elements == 0 && r.parts == "" {
			return t, nil
		}
		of, err := r.of()
		if err == nil {
			t, err = t.WithDType(of)
		}
		if err != nil {
			return t, errors.Join(argument("table %d: %w", i, err), t.Close())
		}
		return t, nil
	}
	of, err := r.of()
	if err != nil {
		return cache.Table{}, argument("table %d: %w", i, err)
	}
	if r.memory == C.TC_MEMORY_CUDA {
		return r.fromGPU(of)
	}
	data := unsafe.Slice((*byte)(r.data), r.rows*int64(r.rowBytes))
	if r.memory == C.TC_MEMORY_COPY {
		return cache.FromBytes(r.name, of, data, r.rowBytes)
	}
	t, err := cache.Adopt(r.name, of, data, r.rowBytes)
	if r.restore {
		t = t.RestoreOnClose()
	}
	return t, err
}

// openTables opens all tables of a request. After an error it has closed them.
func (r *request) openTables(ctx context.Context) (tables []cache.Table, err error) {
	for i := range r.tables {
		if r.tables[i].place.Logger = r.options.Telemetry.Logger; r.options.Telemetry.Logger == nil {
			r.tables[i].place.Logger = slog.New(slog.DiscardHandler)
		}
		t, err := r.tables[i].open(ctx, i)
		if err != nil {
			errs := []error{err}
			for _, t := range tables {
				errs = append(errs, t.Close())
			}
			return nil, as(statusOf(err), errors.Join(errs...))
		}
		tables = append(tables, t)
	}
	return tables, nil
}
