package daemon

import (
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/internal/throttle"
)

// newHTTPServer returns a server whose connections and their times are bounded.
func newHTTPServer(h http.Handler, log *slog.Logger) (*http.Server, *httpConns) {
	most := mostHTTP
	if limit, _, known := openFiles(); known {
		most = httpShare(limit)
	}
	conns := &httpConns{most: most, log: log}
	conns.mu.since = map[net.Conn]time.Time{}
	return &http.Server{Handler: h, ConnState: conns.changed, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelInfo)}, conns
}

// httpConns bounds the connections of a server. Beyond the bound, the one that has been idle for longest makes room for a new one, so that
// connections that do nothing do not keep probes out. If none is idle, the new one is closed.
type httpConns struct {
	most   int
	log    *slog.Logger
	record throttle.Log
	cut    atomic.Int64 // connections that were closed
	mu     struct {
		sync.Mutex
		since map[net.Conn]time.Time // when it became idle, zero while a request is under way
	}
}

// changed is called when a connection's state changes.
func (h *httpConns) changed(c net.Conn, state http.ConnState) {
	if closing := h.note(c, state); closing != nil {
		h.cut.Add(1)
		h.record.Record(h.log, slog.LevelWarn, "http: too many connections", slog.Int("most", h.most), slog.String("closed", closing.RemoteAddr().String()))
		closing.Close()
	}
}

// now returns the number of connections.
func (h *httpConns) now() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return int64(len(h.mu.since))
}

// note keeps the state of a connection, and returns the one to close, if any.
func (h *httpConns) note(c net.Conn, state http.ConnState) (closing net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch state {
	case http.StateNew:
		if len(h.mu.since) >= h.most {
			closing = h.idleLocked(c)
			delete(h.mu.since, closing)
		}
		if closing != c {
			h.mu.since[c] = time.Now()
		}
	case http.StateActive, http.StateIdle:
		if _, known := h.mu.since[c]; !known {
			break // it is being closed
		}
		h.mu.since[c] = time.Time{}
		if state == http.StateIdle {
			h.mu.since[c] = time.Now()
		}
	default:
		delete(h.mu.since, c)
	}
	return closing
}

// idleLocked returns the connection that has been idle for longest, or else the given one.
func (h *httpConns) idleLocked(c net.Conn) net.Conn {
	var first time.Time
	for other, since := range h.mu.since {
		if !since.IsZero() && (first.IsZero() || since.Before(first)) {
			c, first = other, since
		}
	}
	return c
}
