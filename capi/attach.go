//go:build cgo

package main

// #include "bridge.h"
import "C"

import (
	"context"

	"github.com/tensorcache/tensorcache/cache"
)

// attach attaches to the cache of another process.
func attach(address string, o cache.AttachOptions) (*served, error) {
	if err := startTelemetry(&o.Telemetry); err != nil {
		return nil, err
	}
	c, err := cache.Attach(context.Background(), address, o)
	if err != nil {
		return nil, err
	}
	return serveCache(c, false, nil)
}

//export tcgo_attach
func tcgo_attach(address *C.char, config *C.tc_attach_config, to *C.uintptr_t) status {
	return call(func() error {
		c, err := take(config, "tc_attach_config")
		switch {
		case err != nil:
			return err
		case !(c.wait >= 0 && c.wait < 1e9):
			return argument("config.wait (%v s) must be 0 to 1e9", c.wait)
		case c.lanes < 0 || c.workers < 0:
			return argument("config.lanes (%d) and config.workers (%d) must not be negative", c.lanes, c.workers)
		case c.scratch != 0 && c.scratch < 1<<20:
			return argument("config.scratch (%d) must be at least 1048576, or 0 for what the owner allows", c.scratch)
		case c.timeout != 0 && !(c.timeout >= 0.1 && c.timeout < 1e9):
			return argument("config.timeout (%v s) must be 0.1 to 1e9, or 0 for 10", c.timeout)
		}
		name := text(c.name)
		logger, err := loggerOf(c.log_level, name)
		if err != nil {
			return err
		}
		s, err := attach(text(address), cache.AttachOptions{
			Name: name, Lanes: int(c.lanes), Scratch: int64(c.scratch), Workers: int(c.workers), Threads: int(c.host_threads),
			Wait: seconds(c.wait), Timeout: seconds(c.timeout), Telemetry: cache.TelemetryOptions{Name: name, Logger: logger},
		})
		if err != nil {
			return err
		}
		return handOver(s, to)
	})
}
