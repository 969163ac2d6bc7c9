package resp

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/tensorcache/tensorcache/serve/catalog"
)

// invalidation tells connections with CLIENT TRACKING that rows have changed, so that clients empty their own caches of rows.
//
// Changes by this server's clients are told at once; others, such as those of attached processes, are noticed by the cache's counters within watchTime.
type invalidation struct {
	server *Server
	mu     struct {
		sync.Mutex
		conns    map[*conn]struct{}
		watching bool
	}
}

// watchTime is the time between two looks at the cache's counters.
const watchTime = 500 * time.Millisecond

func (v *invalidation) join(c *conn) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mu.conns == nil {
		v.mu.conns = map[*conn]struct{}{}
	}
	v.mu.conns[c] = struct{}{}
	if !v.mu.watching {
		v.mu.watching = true
		go v.watch(v.state())
	}
}

func (v *invalidation) leave(c *conn) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.mu.conns, c)
}

// tracking returns how many connections track.
func (v *invalidation) tracking() int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return int64(len(v.mu.conns))
}

// tell has every connection send the message.
func (v *invalidation) tell() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for c := range v.mu.conns {
		c.push()
	}
}

// others is how far changes have come that are not of this server's clients.
type others struct {
	tables *catalog.View // another one: a table has been replaced
	rows   int64
	known  bool // false: a TC.SET is under way, whose rows are counted only in part
}

func (v *invalidation) state() others {
	now := others{tables: v.server.tables.View(), rows: -1}
	if now.known = v.server.writing.TryLock(); !now.known {
		return now
	}
	defer v.server.writing.Unlock()
	if s, err := v.server.tables.Stats(); err == nil {
		now.rows = s.Updates.UpdatedRows + s.Updates.InvalidatedRows - v.server.counters.changed.Load()
	}
	return now
}

// watch looks for changes that did not come by this server, until no connection tracks. It tells once too often rather than miss one.
func (v *invalidation) watch(last others) {
	ticker := time.NewTicker(watchTime)
	defer ticker.Stop()
	for {
		select {
		case <-v.server.open.Done():
			return
		case <-ticker.C:
		}
		v.mu.Lock()
		if v.mu.watching = len(v.mu.conns) > 0; !v.mu.watching {
			v.mu.Unlock()
			return
		}
		v.mu.Unlock()
		now := v.state()
		if now != last || !now.known {
			v.tell()
		}
		last = now
	}
}

// pushing is a message to a connection that may be waiting for its client. One goroutine writes to a connection, so it is woken.
type pushing struct {
	mu   sync.Mutex
	due  bool
	idle bool // the connection waits for its client
}

// push has the connection send the message as soon as no reply is under way.
func (c *conn) push() {
	c.pushing.mu.Lock()
	defer c.pushing.mu.Unlock()
	if c.pushing.due = true; c.pushing.idle {
		c.ahead.interrupt(true)
	}
}

// pushed appends the message if it is due.
func (c *conn) pushed() {
	c.pushing.mu.Lock()
	defer c.pushing.mu.Unlock()
	if c.pushing.due && c.tracking.on {
		c.out = append(c.out, ">2\r\n$10\r\ninvalidate\r\n_\r\n"...)
	}
	c.pushing.due = false
}

// readOrPushed reads from the client. It is true if a message became due instead.
func (c *conn) readOrPushed(b []byte) (n int, err error, due bool) {
	c.pushing.mu.Lock()
	due, c.pushing.idle = c.pushing.due, !c.pushing.due
	c.pushing.mu.Unlock()
	if due {
		return 0, nil, true
	}
	n, err = c.net.Read(b)
	c.pushing.mu.Lock()
	defer c.pushing.mu.Unlock()
	if c.pushing.idle = false; c.pushing.due {
		c.ahead.interrupt(false)
	}
	return n, err, c.pushing.due && n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && !c.server.closing.Load()
}
