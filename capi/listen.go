//go:build cgo

package main

// #include "bridge.h"
import "C"

import (
	"sync"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/serve"
)

// listening is where other processes attach to a cache.
type listening struct {
	mu     sync.Mutex
	server *serve.Server
	closed bool
}

func (l *listening) begin(c *cache.Cache, o serve.Options) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return cache.ErrClosed
	case l.server != nil:
		return argument("address (%s) must be the cache's only one: it listens at %s", o.Address, l.server.Address())
	}
	server, err := serve.Listen(c, o)
	if err == nil {
		l.server = server
	}
	return err
}

// end has no further process attach. Those that are attached read on.
func (l *listening) end() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.server == nil {
		return nil
	}
	return l.server.Close()
}

func (s *served) listen(address *C.char, config *C.tc_listen_config) error {
	c, err := take(config, "tc_listen_config")
	switch {
	case err != nil:
		return err
	case c.max_clients < 0 || c.max_clients > 1024:
		return argument("config.max_clients (%d) must be 1 to 1024, or 0 for the default", c.max_clients)
	case c.max_lanes < 0 || c.max_lanes > 1024:
		return argument("config.max_lanes (%d) must be 1 to 1024, or 0 for the default", c.max_lanes)
	case c.max_scratch != 0 && c.max_scratch < 1<<20:
		return argument("config.max_scratch (%d) must be at least 1048576, or 0 for no limit", c.max_scratch)
	case c.stopped_after != 0 && !(c.stopped_after >= 0.1 && c.stopped_after < 1e9):
		return argument("config.stopped_after (%v s) must be 0.1 to 1e9, or 0 for the default", c.stopped_after)
	case !s.shared:
		return argument("cache must be opened with config.shared for other processes to attach")
	}
	return s.listening.begin(s.cache, serve.Options{
		Address: text(address), MaxClients: int(c.max_clients), MaxLanes: int(c.max_lanes), MaxScratch: int64(c.max_scratch),
		StoppedAfter: seconds(c.stopped_after), EvictStopped: c.evict_stopped != 0, Logger: s.log,
	})
}
