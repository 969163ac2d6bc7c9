package main

// #include "bridge.h"
import "C"

import (
	"context"
	"sync"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/faults"
	"github.com/tensorcache/tensorcache/serve"
)

//export tcgo_attach
func tcgo_attach(address *C.char, config *C.tc_attach_config, to *C.uintptr_t) status {
	return call(func() error {
		c, err := take(config, "tc_attach_config")
		if err != nil {
			return err
		}
		f := faults.List{Prefix: "tensorcache: config."}
		f.If(!(c.wait >= 0 && c.wait < 1e9), "wait (%v s) must be 0 to 1e9", c.wait)
		f.If(c.lanes < 0, "lanes (%d) must not be negative", c.lanes)
		f.If(c.workers < 0, "workers (%d) must not be negative", c.workers)
		f.If(c.scratch != 0 && c.scratch < 1<<20, "scratch (%d) must be at least 1048576, or 0 for what the owner allows", c.scratch)
		f.If(c.timeout != 0 && !(c.timeout >= 0.1 && c.timeout < 1e9), "timeout (%v s) must be 0.1 to 1e9, or 0 for 10", c.timeout)
		if err := arguments(&f); err != nil {
			return err
		}
		o := cache.AttachOptions{
			Name: text(c.name), Lanes: int(c.lanes), Scratch: int64(c.scratch), Workers: int(c.workers), Threads: int(c.host_threads),
			Wait: seconds(c.wait), Timeout: seconds(c.timeout), Telemetry: cache.TelemetryOptions{Name: text(c.name)},
		}
		if o.Telemetry.Logger, err = loggerOf(c.log_level, o.Name); err != nil {
			return err
		}
		if err := startTelemetry(&o.Telemetry); err != nil {
			return err
		}
		attached, err := cache.Attach(context.Background(), text(address), o)
		if err != nil {
			return err
		}
		s, err := serveCache(attached, false, nil)
		if err != nil {
			return err
		}
		*to = C.uintptr_t(caches.add(s))
		return nil
	})
}

// listening is where other processes attach to a cache.
type listening struct {
	mu     sync.Mutex
	server *serve.Server
	closed bool
}

func (s *served) listen(address *C.char, config *C.tc_listen_config) error {
	c, err := take(config, "tc_listen_config")
	if err != nil {
		return err
	}
	f := faults.List{Prefix: "tensorcache: "}
	f.If(c.max_clients < 0 || c.max_clients > 1024, "config.max_clients (%d) must be 1 to 1024, or 0 for the default", c.max_clients)
	f.If(c.max_lanes < 0 || c.max_lanes > 1024, "config.max_lanes (%d) must be 1 to 1024, or 0 for the default", c.max_lanes)
	f.If(c.max_scratch != 0 && c.max_scratch < 1<<20, "config.max_scratch (%d) must be at least 1048576, or 0 for no limit", c.max_scratch)
	f.If(c.stopped_after != 0 && !(c.stopped_after >= 0.1 && c.stopped_after < 1e9), "config.stopped_after (%v s) must be 0.1 to 1e9, or 0 for the default", c.stopped_after)
	f.If(!s.shared, "cache must be opened with config.shared for other processes to attach")
	if err := arguments(&f); err != nil {
		return err
	}
	l := &s.listening
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return cache.ErrClosed
	case l.server != nil:
		return argument("address (%s) must be the cache's only one: it listens at %s", text(address), l.server.Address())
	}
	server, err := serve.Listen(s.cache, serve.Options{
		Address: text(address), MaxClients: int(c.max_clients), MaxLanes: int(c.max_lanes), MaxScratch: int64(c.max_scratch),
		StoppedAfter: seconds(c.stopped_after), EvictStopped: c.evict_stopped != 0, Logger: s.log,
	})
	if err == nil {
		l.server = server
	}
	return err
}

// end lets no further process attach. Those that are attached go on reading.
func (l *listening) end() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.server == nil {
		return nil
	}
	return l.server.Close()
}
