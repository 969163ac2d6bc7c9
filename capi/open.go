//go:build cgo

package main

// #include "bridge.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/dtype"
)

// served is a cache that C code holds.
type served struct {
	cache    *cache.Cache
	views    []cache.View // by device
	onHost   bool         // the devices are the host's
	gpus     []int        // ordinals of the devices
	tables   []tableInfo
	rowBytes []int64     // by table
	paged    []bool      // by table: it is one of pages
	elements []C.int32_t // tc_dtype by table
	types    []dtype.Type
	bounces  []bounce // by device

	shared    bool         // other processes can attach
	log       *slog.Logger // nil: none
	listening listening
}

// tableInfo is what does not change of a table.
type tableInfo struct {
	name, codec       string
	capacity, columns int64
}

// opening is a cache that is being opened.
type opening struct {
	cancel context.CancelFunc
	ended  chan struct{}
	tables int

	table, rows, of atomic.Int64
	filled          atomic.Bool

	mu    sync.Mutex
	cache *served // nil once it is handed over
	err   error
}

// open opens what is requested. tell may be nil.
func (r *request) open(ctx context.Context, tell func(table int, rows, of int64)) (*served, error) {
	if err := startTelemetry(&r.options.Telemetry); err != nil {
		return nil, err
	}
	if err := r.checkGPUs(); err != nil {
		return nil, err
	}
	tables, err := r.openTables(ctx)
	if err != nil {
		return nil, err
	}
	s := &served{shared: r.options.Shared, log: r.options.Telemetry.Logger}
	for i, t := range tables {
		s.rowBytes = append(s.rowBytes, int64(t.RowBytes()))
		code, bytes := codeOf(t.DType())
		s.tables = append(s.tables, tableInfo{t.Name(), "", max(int64(t.Rows()), r.tables[i].capacity), int64(t.RowBytes() / bytes)})
		s.elements, s.types = append(s.elements, code), append(s.types, t.DType())
	}
	o := r.options
	o.Tables, o.Host.Progress = tables, tell
	if s.cache, err = cache.NewContext(ctx, o); err != nil {
		for _, t := range tables {
			err = errors.Join(err, t.Close())
		}
		return nil, err
	}
	if err := r.training.err; err != nil { // it has learnt from a part
		return nil, errors.Join(err, s.cache.Close())
	}
	stats, err := s.cache.Stats()
	if err != nil {
		return nil, errors.Join(err, s.cache.Close())
	}
	for i, t := range stats.Tables {
		s.tables[i].codec = t.Codec
		s.paged = append(s.paged, t.Tiers.Paged)
	}
	s.addDevices()
	return s, nil
}

// addDevices notes the devices of the cache.
func (s *served) addDevices() {
	s.bounces = make([]bounce, s.cache.Devices())
	for i := range s.cache.Devices() {
		info := s.cache.DeviceInfo(i)
		s.views = append(s.views, s.cache.On(i))
		s.gpus = append(s.gpus, info.Index)
		s.onHost = info.Kind == "host"
	}
}

// checkGPUs returns an error of status TC_ERROR_DEVICE if GPUs are asked for that are not there.
func (r *request) checkGPUs() error {
	d := &r.options.Devices
	if d.Backend != cache.BackendCUDA {
		return nil
	}
	err := cuda.Usable()
	have := cuda.Count()
	switch {
	case err != nil:
	case d.Count > have:
		err = fmt.Errorf("tensorcache: config.devices (%d) must be at most %d, the number of GPUs", d.Count, have)
	default:
		for _, gpu := range d.GPUs {
			if gpu < 0 || gpu >= have {
				err = fmt.Errorf("tensorcache: config.gpus (%d) must be 0 to %d", gpu, have-1)
			}
		}
	}
	if err == nil {
		return nil
	}
	return failure{C.TC_ERROR_DEVICE, err}
}

func (s *served) close() error {
	flushTelemetry() // metrics are read from the open cache
	err := errors.Join(s.listening.end(), s.cache.Close())
	for i := range s.bounces {
		s.bounces[i].close()
	}
	flushTelemetry()
	return err
}

//export tcgo_open
func tcgo_open(c *C.tc_config, tables *C.tc_table, count C.int32_t, cache *C.uintptr_t) (st status) {
	defer recovered(&st)
	r, err := newRequest(c, unsafe.Slice(tables, count))
	if err != nil {
		return result(err)
	}
	s, err := r.open(context.Background(), nil)
	if err != nil {
		return result(err)
	}
	return handOver(s, cache)
}

// handOver gives C code the handle of a cache.
func handOver(s *served, to *C.uintptr_t) status {
	h := caches.add(s)
	if h == 0 {
		s.close()
		return result(failure{C.TC_ERROR_OUT_OF_MEMORY, errTooMany})
	}
	*to = C.uintptr_t(h)
	return C.TC_OK
}

//export tcgo_open_begin
func tcgo_open_begin(c *C.tc_config, tables *C.tc_table, count C.int32_t, to *C.uintptr_t) (st status) {
	defer recovered(&st)
	r, err := newRequest(c, unsafe.Slice(tables, count))
	if err != nil {
		return result(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	o := &opening{cancel: cancel, ended: make(chan struct{}), tables: int(count)}
	h := openings.add(o)
	if h == 0 {
		return result(failure{C.TC_ERROR_OUT_OF_MEMORY, errTooMany})
	}
	go func() {
		defer close(o.ended)
		defer func() {
			if p := recover(); p != nil {
				o.mu.Lock()
				defer o.mu.Unlock()
				o.err = panicked(p)
			}
		}()
		s, err := r.open(ctx, o.progress)
		o.mu.Lock()
		o.cache, o.err = s, err
		o.mu.Unlock()
	}()
	*to = C.uintptr_t(h)
	return C.TC_OK
}

// progress is told how far the opening is.
func (o *opening) progress(table int, rows, of int64) {
	o.table.Store(int64(table))
	o.rows.Store(rows)
	o.of.Store(of)
	o.filled.Store(table == o.tables-1 && rows == of)
}

//export tcgo_opening_wait
func tcgo_opening_wait(h C.uintptr_t, seconds C.double, to *C.uintptr_t) (st status) {
	defer recovered(&st)
	o, ok := openings.get(handle(h))
	if !ok {
		return result(openings.missing(handle(h)))
	}
	switch {
	case seconds < 0 || seconds > 1e9:
		<-o.ended
	case seconds > 0:
		t := time.NewTimer(time.Duration(float64(seconds) * float64(time.Second)))
		defer t.Stop()
		select {
		case <-o.ended:
		case <-t.C:
			return C.TC_PENDING
		}
	default: // 0, or not a number
		select {
		case <-o.ended:
		default:
			return C.TC_PENDING
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.err != nil:
		return result(o.err)
	case o.cache == nil:
		return result(failure{C.TC_ERROR_CLOSED, errHandedOver})
	}
	st = handOver(o.cache, to)
	o.cache = nil
	return st
}

//export tcgo_opening_progress
func tcgo_opening_progress(h C.uintptr_t, p *C.tc_progress) (st status) {
	defer recovered(&st)
	o, ok := openings.get(handle(h))
	if !ok {
		return result(openings.missing(handle(h)))
	}
	p.table, p.tables = C.int32_t(o.table.Load()), C.int32_t(o.tables)
	p.rows, p.of = C.int64_t(o.rows.Load()), C.int64_t(o.of.Load())
	if o.filled.Load() {
		p.filled = 1
	}
	return C.TC_OK
}

//export tcgo_opening_cancel
func tcgo_opening_cancel(h C.uintptr_t) (st status) {
	defer recovered(&st)
	o, ok := openings.get(handle(h))
	if !ok {
		return result(openings.missing(handle(h)))
	}
	o.cancel()
	return C.TC_OK
}

//export tcgo_opening_destroy
func tcgo_opening_destroy(h C.uintptr_t) {
	o, ok := openings.remove(handle(h))
	if !ok {
		return
	}
	o.cancel()
	<-o.ended
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.cache != nil {
		o.cache.close()
		o.cache = nil
	}
}

//export tcgo_close
func tcgo_close(h C.uintptr_t) (st status) {
	defer recovered(&st)
	s, ok := caches.remove(handle(h))
	if !ok {
		return result(caches.missing(handle(h)))
	}
	return result(s.close())
}

//export tcgo_counts
func tcgo_counts(h C.uintptr_t, tables, devices *C.int32_t) (st status) {
	defer recovered(&st)
	s, ok := caches.get(handle(h))
	if !ok {
		return result(caches.missing(handle(h)))
	}
	if tables != nil {
		*tables = C.int32_t(len(s.rowBytes))
	}
	if devices != nil {
		*devices = C.int32_t(len(s.views))
	}
	return C.TC_OK
}
