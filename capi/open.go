package main

// #include "bridge.h"
import "C"

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/faults"
)

// served is a cache that C code holds.
type served struct {
	cache   *cache.Cache
	views   []cache.View // by device
	onHost  bool         // the devices are the host's
	gpus    []int        // ordinals of the devices
	tables  []servedTable
	bounces []bounce // by device

	shared    bool         // other processes can attach
	log       *slog.Logger // nil: none
	listening listening
}

// servedTable is what is said of a table, and what batches of it need.
type servedTable struct {
	info     C.tc_table_info
	rowBytes int64
	paged    bool // it is one of pages
	of       dtype.Type
}

// opening is a cache that is being opened.
type opening struct {
	stop  context.CancelFunc
	ended chan struct{}

	mu    sync.Mutex
	far   C.tc_progress
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
	o := r.options
	o.Tables, o.Host.Progress = tables, tell
	c, err := cache.NewContext(ctx, o)
	if err != nil {
		for _, t := range tables {
			err = errors.Join(err, t.Close())
		}
		return nil, err
	}
	if err := r.training.err; err != nil { // it has learnt from a part
		return nil, errors.Join(err, c.Close())
	}
	return serveCache(c, r.options.Shared, r.options.Telemetry.Logger)
}

// serveCache returns what C code holds of a cache, which is closed after an error.
func serveCache(c *cache.Cache, shared bool, log *slog.Logger) (*served, error) {
	stats, err := c.Stats()
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	s := &served{cache: c, shared: shared, log: log, bounces: make([]bounce, c.Devices())}
	for _, t := range stats.Tables {
		s.tables = append(s.tables, servedTable{newInfo(t.Name, t.Codec, t.DType, t.RowBytes, t.Capacity), int64(t.RowBytes), t.Tiers.Paged, t.DType})
	}
	for i := range c.Devices() {
		info := c.DeviceInfo(i)
		s.views = append(s.views, c.On(i))
		s.gpus = append(s.gpus, info.Index)
		s.onHost = info.Kind == "host"
	}
	return s, nil
}

// checkGPUs returns an error of status TC_ERROR_DEVICE if GPUs are asked for that are not there.
func (r *request) checkGPUs() error {
	d := &r.options.Devices
	if d.Backend != cache.BackendCUDA {
		return nil
	}
	if err := cuda.Usable(); err != nil {
		return failure{C.TC_ERROR_DEVICE, err}
	}
	have := cuda.Count()
	f := faults.List{Prefix: "tensorcache: config."}
	f.If(d.Count > have, "devices (%d) must be at most %d, the number of GPUs", d.Count, have)
	for _, gpu := range d.GPUs {
		f.If(gpu < 0 || gpu >= have, "gpus (%d) must be 0 to %d", gpu, have-1)
	}
	return as(C.TC_ERROR_DEVICE, f.Err())
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
func tcgo_open(config *C.tc_config, tables *C.tc_table, count C.int32_t, to *C.uintptr_t) status {
	return call(func() error {
		r, err := newRequest(config, tables, count)
		if err != nil {
			return err
		}
		s, err := r.open(context.Background(), nil)
		if err != nil {
			return err
		}
		*to = C.uintptr_t(caches.add(s))
		return nil
	})
}

//export tcgo_open_begin
func tcgo_open_begin(config *C.tc_config, tables *C.tc_table, count C.int32_t, to *C.uintptr_t) status {
	return call(func() error {
		r, err := newRequest(config, tables, count)
		if err != nil {
			return err
		}
		ctx, stop := context.WithCancel(context.Background())
		o := &opening{stop: stop, ended: make(chan struct{}), far: C.tc_progress{tables: count}}
		*to = C.uintptr_t(openings.add(o))
		go func() {
			defer close(o.ended)
			defer func() {
				if p := recover(); p != nil {
					o.mu.Lock()
					defer o.mu.Unlock()
					o.err = panicked(p)
				}
			}()
			s, err := r.open(ctx, o.tell)
			o.mu.Lock()
			o.cache, o.err = s, err
			o.mu.Unlock()
		}()
		return nil
	})
}

// tell is told how far the opening is.
func (o *opening) tell(table int, rows, of int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.far.table, o.far.rows, o.far.of, o.far.filled = C.int32_t(table), C.int64_t(rows), C.int64_t(of), 0
	if table == int(o.far.tables)-1 && rows == of {
		o.far.filled = 1
	}
}

func (o *opening) wait(wait C.double, to *C.uintptr_t) error {
	switch {
	case wait < 0 || wait > 1e9:
		<-o.ended
	case wait > 0:
		t := time.NewTimer(seconds(wait))
		defer t.Stop()
		select {
		case <-o.ended:
		case <-t.C:
			return errPending
		}
	default: // 0, or not a number
		select {
		case <-o.ended:
		default:
			return errPending
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.err != nil:
		return o.err
	case o.cache == nil:
		return failure{C.TC_ERROR_CLOSED, errors.New("tensorcache: the opening's cache was handed over before")}
	}
	*to = C.uintptr_t(caches.add(o.cache))
	o.cache = nil
	return nil
}

func (o *opening) progress(to *C.tc_progress) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return give(to, &o.far, "tc_progress")
}

func (o *opening) cancel() error {
	o.stop()
	return nil
}

//export tcgo_opening_destroy
func tcgo_opening_destroy(h C.uintptr_t) {
	o, ok := openings.remove(handle(h))
	if !ok {
		return
	}
	o.stop()
	<-o.ended
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.cache != nil {
		o.cache.close()
		o.cache = nil
	}
}

//export tcgo_close
func tcgo_close(h C.uintptr_t) status {
	return call(func() error {
		if h == 0 {
			return nil
		}
		s, ok := caches.remove(handle(h))
		if !ok {
			return caches.missing(handle(h))
		}
		return s.close()
	})
}

func (s *served) tableCount(count *C.int32_t) error {
	*count = C.int32_t(len(s.tables))
	return nil
}

func (s *served) deviceCount(count *C.int32_t) error {
	*count = C.int32_t(len(s.views))
	return nil
}
