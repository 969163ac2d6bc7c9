//go:build cgo

package main

// #include "bridge.h"
import "C"

import (
	"context"
	"errors"
	"time"

	"github.com/tensorcache/tensorcache/cache"
)

// attach attaches to the cache of another process.
func attach(address string, o cache.AttachOptions) (*served, error) {
	if err := startTelemetry(&o.Telemetry); err != nil {
		return nil, err
	}
	s := &served{}
	var err error
	if s.cache, err = cache.Attach(context.Background(), address, o); err != nil {
		return nil, err
	}
	stats, err := s.cache.Stats()
	if err != nil {
		return nil, errors.Join(err, s.cache.Close())
	}
	for _, t := range stats.Tables {
		s.rowBytes = append(s.rowBytes, int64(t.RowBytes))
		s.paged = append(s.paged, t.Tiers.Paged)
		code, bytes := codeOf(t.DType)
		s.tables = append(s.tables, tableInfo{t.Name, t.Codec, t.Capacity, int64(t.RowBytes / bytes)})
		s.elements, s.types = append(s.elements, code), append(s.types, t.DType)
	}
	s.addDevices()
	return s, nil
}

//export tcgo_attach
func tcgo_attach(address *C.char, c *C.tc_attach_config, to *C.uintptr_t) (st status) {
	defer recovered(&st)
	switch {
	case !(c.wait >= 0 && c.wait < 1e9):
		return result(argument("config.wait (%v s) must be 0 to 1e9", c.wait))
	case c.lanes < 0 || c.workers < 0:
		return result(argument("config.lanes (%d) and config.workers (%d) must not be negative", c.lanes, c.workers))
	case c.scratch != 0 && c.scratch < 1<<20:
		return result(argument("config.scratch (%d) must be at least 1048576, or 0 for what the owner allows", c.scratch))
	case c.timeout != 0 && !(c.timeout >= 0.1 && c.timeout < 1e9):
		return result(argument("config.timeout (%v s) must be 0.1 to 1e9, or 0 for 10", c.timeout))
	case c.log_level < 0 || c.log_level > C.TC_LOG_OFF:
		return result(argument("config.log_level (%d) must be one of tc_log_level", c.log_level))
	}
	name := text(c.name)
	s, err := attach(text(address), cache.AttachOptions{
		Name: name, Lanes: int(c.lanes), Scratch: int64(c.scratch), Workers: int(c.workers), Threads: int(c.host_threads),
		Wait:      time.Duration(float64(c.wait) * float64(time.Second)),
		Timeout:   time.Duration(float64(c.timeout) * float64(time.Second)),
		Telemetry: cache.TelemetryOptions{Name: name, Logger: loggerOf(c.log_level, name)},
	})
	if err != nil {
		return result(err)
	}
	return handOver(s, to)
}
