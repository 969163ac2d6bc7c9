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
	"github.com/tensorcache/tensorcache/internal/datafile"
	"github.com/tensorcache/tensorcache/internal/faults"
	"github.com/tensorcache/tensorcache/internal/foreign"
	"github.com/tensorcache/tensorcache/internal/pagetable"
)

// request is what tc_open and tc_open_begin ask for, copied from C's structures. Memory of tables and of training remains C's.
type request struct {
	options  cache.Options
	tables   []tableRequest
	training *training
}

// maxTables is the most tables of a cache.
const maxTables = 256

var (
	// backends are the values of tc_backend, and buddies those of tc_buddy.
	backends = [...]cache.Backend{C.TC_BACKEND_AUTO: cache.BackendAuto, C.TC_BACKEND_HOST: cache.BackendHost, C.TC_BACKEND_CUDA: cache.BackendCUDA}
	buddies  = [...]cache.BuddyMemory{C.TC_BUDDY_HOST: cache.BuddyHost, C.TC_BUDDY_PEER: cache.BuddyPeer, C.TC_BUDDY_AUTO: cache.BuddyAuto}
)

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
	f := faults.List{Prefix: "tensorcache: "}
	f.If(c.backend < 0 || int(c.backend) >= len(backends), "config.backend (%d) must be one of tc_backend", c.backend)
	f.If(c.gpu_memory <= 0, "config.gpu_memory (%d) must be positive", c.gpu_memory)
	f.If(c.devices < 0 || c.devices > 8, "config.devices (%d) must be 0 to 8", c.devices)
	f.If(c.training_batches < 0 || c.training_batches > 1<<31 || c.training_batches > 0 && c.training == nil,
		"config.training_batches (%d) must be the number of elements of training (%p)", c.training_batches, c.training)
	f.If(!(c.refresh_interval >= 0 && c.refresh_interval < 1e9), "config.refresh_interval (%v s) must be 0 to 1e9", c.refresh_interval)
	f.If(c.host_memory < 0, "config.host_memory (%d) must not be negative", c.host_memory)
	policy, err := policyOf(text(c.policy))
	f.If(err != nil, "config.policy: %w", err)
	if err := arguments(&f); err != nil {
		return nil, err
	}
	training, err := newTraining(unsafe.Slice(c.training, c.training_batches), len(tables))
	if err != nil {
		return nil, err
	}
	name := text(c.name)
	logger, err := loggerOf(c.log_level, name)
	if err != nil {
		return nil, err
	}
	r := &request{training: training, options: cache.Options{
		Budget: int64(c.gpu_memory), Shared: c.shared != 0, Codec: cache.Codec(text(c.codec)), Seed: uint64(c.seed),
		Devices:   cache.DeviceOptions{Backend: backends[c.backend], Count: int(c.devices)},
		Host:      cache.HostOptions{Threads: int(c.host_threads), Workers: int(c.workers), Overlay: int64(c.overlay), Memory: int64(c.host_memory), NoEqualRows: c.no_equal_rows != 0},
		Admission: cache.AdmissionOptions{Policy: policy, Training: training.rows(), Cold: c.cold != 0, Restore: text(c.restore)},
		Refresh: cache.RefreshOptions{
			Interval: seconds(c.refresh_interval), MaxChurn: float64(c.refresh_churn), MaxBytes: int64(c.refresh_bytes), Accesses: float64(c.refresh_accesses),
		},
		Telemetry: cache.TelemetryOptions{Name: name, Logger: logger},
	}}
	if c.host_packed != 0 {
		r.options.Host.Tier = cache.Packed
	}
	if c.gpus != nil {
		for _, gpu := range unsafe.Slice(c.gpus, max(1, c.devices)) {
			r.options.Devices.GPUs = append(r.options.Devices.GPUs, int(gpu))
		}
	}
	for i := range tables {
		t, err := newTableRequest(i, &tables[i])
		if err != nil {
			return nil, err
		}
		if t.place.Logger = logger; logger == nil {
			t.place.Logger = slog.New(slog.DiscardHandler)
		}
		r.tables = append(r.tables, t)
	}
	return r, nil
}

// policyOf returns the admission policy of a name, "" for the default.
func policyOf(name string) (admission.Policy, error) {
	if name == "" {
		name = admission.Default
	}
	spec, err := admission.Lookup(name)
	if err == nil && spec.Learns == admission.FromGraph {
		err = fmt.Errorf("%q must be one that needs no graph", name)
	}
	if err != nil {
		return nil, err
	}
	return spec.New(admission.Inputs{})
}

// text returns a C string, "" for NULL.
func text(s *C.char) string {
	if s == nil {
		return ""
	}
	return C.GoString(s)
}

// seconds returns a time in seconds as Go has it.
func seconds(s C.double) time.Duration { return time.Duration(float64(s) * float64(time.Second)) }

// tableRequest is a tc_table that has been checked.
type tableRequest struct {
	c        C.tc_table // its numbers, and data; texts are the caller's again
	name     string
	of       dtype.Type // of elements or rows; Invalid for the type in a file
	codec    cache.Codec
	resident *cache.ResidentOptions
	place    pagetable.Place // its path, and where pages and updates are
}

func newTableRequest(i int, t *C.tc_table) (tableRequest, error) {
	r := tableRequest{c: *t, name: text(t.name), codec: cache.Codec(text(t.codec)), place: pagetable.Place{
		Path: text(t.path), Cold: text(t.cold), Cache: text(t.cold_cache), CacheBytes: int64(t.cold_cache_bytes), Log: text(t.log), Durable: t.durable != 0,
	}}
	f := faults.List{Prefix: fmt.Sprintf("tensorcache: table %d: ", i)}
	var err error
	switch parts := text(t.parts); {
	case parts != "":
		f.If(t.dtype != 0 && t.dtype != C.TC_UINT8, "dtype (%d) must be 0 or TC_UINT8 with parts (%q)", t.dtype, parts)
		if r.of, err = dtype.Parse(parts); err == nil && !r.of.IsRow() {
			err = fmt.Errorf("parts (%q) must be of different types", parts)
		}
	case t.dtype != 0 || r.place.Path == "":
		r.of, err = elementsOf(t.dtype)
	}
	f.If(err != nil, "%w", err)
	f.If(t.resident_buddy < 0 || int(t.resident_buddy) >= len(buddies), "resident_buddy (%d) must be one of tc_buddy", t.resident_buddy)
	f.If(t.resident == 0 && (t.resident_target != 0 || t.resident_overflow != 0 || t.resident_max_target != 0 || t.resident_retarget != 0 || t.resident_buddy != 0),
		"resident_target (%d), resident_overflow (%v), resident_max_target (%d), resident_retarget (%d) and resident_buddy (%d) must be 0 unless resident is set",
		t.resident_target, t.resident_overflow, t.resident_max_target, t.resident_retarget, t.resident_buddy)
	if path := r.place.Path; path != "" {
		f.If(t.data != nil, "path (%q) and data (%p) must not both be set", path, t.data)
		err := r.place.Check()
		f.If(err != nil, "%w", err)
	} else {
		if r.name == "" {
			r.name = fmt.Sprintf("table %d", i)
		}
		f.If(r.place.Given(), "cold, cold_cache, log and durable must not be set without a path")
		f.If(t.rows < 0 || t.rows > 1<<50-2, "rows (%d) must be 0 to 2^50 - 2", t.rows)
		if f.If(t.row_bytes < 1 || t.row_bytes >= 1<<20, "row_bytes (%d) must be 1 to 2^20 - 1", t.row_bytes); t.row_bytes > 0 && r.of != dtype.Invalid {
			f.If(r.of.IsRow() && int(t.row_bytes) != r.of.Size(), "row_bytes (%d) must be the %d of parts (%v)", t.row_bytes, r.of.Size(), r.of)
			f.If(int(t.row_bytes)%r.of.Size() != 0, "row_bytes (%d) must be a multiple of the %d bytes of an element", t.row_bytes, r.of.Size())
			f.If(t.rows > math.MaxInt64/t.row_bytes, "rows (%d) of %d bytes must have fewer than 2^63 bytes", t.rows, t.row_bytes)
		}
		f.If(t.rows > 0 && t.data == nil, "path or data must be set")
		f.If(t.memory < 0 || t.memory > C.TC_MEMORY_CUDA, "memory (%d) must be one of tc_memory", t.memory)
	}
	if err := arguments(&f); err != nil {
		return r, err
	}
	if t.resident != 0 {
		r.resident = &cache.ResidentOptions{
			Target: int(t.resident_target), MaxTarget: int(t.resident_max_target), MaxOverflow: float64(t.resident_overflow), Retarget: t.resident_retarget != 0,
			Buddy: buddies[t.resident_buddy],
		}
	}
	return r, nil
}

// elementsOf returns the element type of a tc_dtype, whose numbers are those of package dtype: gen says so.
func elementsOf(t C.int32_t) (dtype.Type, error) {
	if t >= C.TC_FLOAT16 && t <= C.TC_FLOAT8_E8M0 {
		return dtype.Type(t), nil
	}
	return dtype.Invalid, fmt.Errorf("dtype (%d) must be one of tc_dtype", t)
}

// openTables opens all tables of a request. After an error it has closed them.
func (r *request) openTables(ctx context.Context) (tables []cache.Table, err error) {
	for i := range r.tables {
		t, err := r.tables[i].open(ctx)
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

// open returns the table that a request describes.
func (r *tableRequest) open(ctx context.Context) (t cache.Table, err error) {
	data := func() []byte { return unsafe.Slice((*byte)(r.c.data), r.c.rows*r.c.row_bytes) }
	switch {
	case r.place.Path != "":
		t, err = r.fromPath(ctx)
	case r.c.memory == C.TC_MEMORY_CUDA:
		t, err = r.fromGPU()
	case r.c.memory == C.TC_MEMORY_COPY:
		t, err = cache.FromBytes(r.name, r.of, data(), int(r.c.row_bytes))
	default:
		if t, err = cache.Adopt(r.name, r.of, data(), int(r.c.row_bytes)); r.c.restore != 0 {
			t = t.RestoreOnClose()
		}
	}
	if err != nil {
		return t, err
	}
	if r.resident != nil {
		t = t.ResidentWith(*r.resident)
	}
	return t.WithCapacity(int64(r.c.capacity)).WithCodec(r.codec), nil
}

func (r *tableRequest) fromPath(ctx context.Context) (cache.Table, error) {
	open := cache.Open
	switch {
	case r.place.Given():
		open = func(string) (cache.Table, error) { return r.place.Open(ctx) }
	case r.c.first_axis != 0:
		open = cache.OpenArray
	}
	t, err := open(r.place.Path)
	if _, misnamed := errors.AsType[*datafile.NameError](err); misnamed {
		return t, failure{C.TC_ERROR_ARGUMENT, err}
	}
	if err != nil {
		return t, failure{C.TC_ERROR_FILE, err}
	}
	if r.name != "" {
		t = t.WithName(r.name)
	}
	if r.of == dtype.Invalid {
		return t, nil
	}
	if t, err = t.WithDType(r.of); err != nil {
		return t, errors.Join(argument("table %s: %w", t.Name(), err), t.Close())
	}
	return t, nil
}

// training is the batches of training. Their row numbers stay in C's memory until they are read.
type training struct {
	batches []C.tc_training
	err     error // set by who reads rows, if C's memory cannot be read
}

func newTraining(batches []C.tc_training, tables int) (*training, error) {
	for i, b := range batches {
		f := faults.List{Prefix: fmt.Sprintf("tensorcache: training batch %d: ", i)}
		f.If(b.table < 0 || int(b.table) >= tables, "table (%d) must be 0 to %d", b.table, tables-1)
		f.If(b.id_type != C.TC_INT32 && b.id_type != C.TC_INT64, "id_type (%d) must be TC_INT32 or TC_INT64", b.id_type)
		f.If(b.n < 0 || b.n > math.MaxInt32 || b.n > 0 && b.ids == nil, "n (%d) must be 0 to 2^31 - 1, the number of ids (%p)", b.n, b.ids)
		if err := arguments(&f); err != nil {
			return nil, err
		}
	}
	return &training{batches: slices.Clone(batches)}, nil
}

// rows yields copies of the row numbers: those who read them are not guarded against memory that goes away, such as that of a mapped file.
func (t *training) rows() admission.Training {
	if len(t.batches) == 0 {
		return nil
	}
	return func(yield func(int, []int64) bool) {
		for i, b := range t.batches {
			rows := make([]int64, b.n)
			if err := foreign.Read(func() { copy(rows, wide(unsafe.Pointer(b.ids), b.id_type, int64(b.n))) }); err != nil {
				t.err = failure{C.TC_ERROR_FILE, fmt.Errorf("tensorcache: training batch %d: %w", i, err)}
				return
			}
			if !yield(int(b.table), rows) {
				return
			}
		}
	}
}

// wide returns row numbers or offsets in C's memory as 64-bit ones: in place where they are and are aligned, else copied.
func wide(at unsafe.Pointer, of C.int32_t, n int64) []int64 {
	if of == C.TC_INT64 {
		return inPlace[int64](at, n)
	}
	narrow := inPlace[int32](at, n)
	all := make([]int64, n)
	for i, v := range narrow {
		all[i] = int64(v)
	}
	return all
}

// inPlace returns n numbers in C's memory: in place where they are aligned, else copied.
func inPlace[T int32 | int64 | float32](at unsafe.Pointer, n int64) []T {
	var one T
	if n == 0 {
		return []T{}
	}
	if uintptr(at)%unsafe.Sizeof(one) == 0 {
		return unsafe.Slice((*T)(at), n)
	}
	all := make([]T, n)
	bytes := n * int64(unsafe.Sizeof(one))
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&all[0])), bytes), unsafe.Slice((*byte)(at), bytes))
	return all
}
