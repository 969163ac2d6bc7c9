package resp

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"
)

const (
	// loginTime is how long a client may take to authenticate.
	loginTime = 30 * time.Second
	// writeTime is how long a client may take to read a part of a reply. It frees what a client that reads no more holds.
	writeTime = time.Minute
	// strangerAhead is how many bytes are read ahead of a client that has not authenticated. They count as nothing.
	strangerAhead = freeBytes
	readBytes     = 16 << 10 // of one read
)

// conn is one connection. One goroutine uses it, but for what is said to be for others.
type conn struct {
	server *Server
	net    net.Conn
	id     int64
	begun  time.Time
	user   *user  // nil: has not logged in
	users  *users // that user is of
	reader reader
	ahead  *ahead
	holder *holder
	reply
	replies account // what a reply under way holds
	gather  *gatherer
	waiting []entry // GETs that have not been replied to
	entries []entry // of an MGET
	failed  error   // why the connection ends
	quit    bool

	multi       *transaction // nil: no MULTI is under way
	queuedBytes account      // of multi
	watched     []watchedRow
	watchedHeld account // of watched
	writes      bool    // the connection holds server.writing
	tracking    tracking
	pushing     pushing

	// Others read these.
	who    atomic.Pointer[identity]
	last   atomic.Pointer[command] // command
	seen   atomic.Int64            // when it ended, in nanoseconds since 1970
	queued atomic.Int64            // commands of multi and 1; 0: there is none
	killed atomic.Bool
}

func newConn(s *Server, nc net.Conn) *conn {
	h := &holder{memory: s.memory, cut: func() { nc.Close() }}
	c := &conn{server: s, id: s.ids.Add(1), begun: time.Now(), ahead: newAhead(nc, h, s.writeTime), holder: h, gather: &gatherer{ctx: s.life}}
	if c.net = c.ahead; s.o.TLS != nil {
		c.net = tls.Server(c.ahead, s.o.TLS)
	}
	c.proto, c.replies.holder, c.reader.account.holder, c.queuedBytes.holder, c.watchedHeld.holder = 2, h, h, h, h
	c.reader.from = bufio.NewReaderSize(source{c}, readBytes)
	c.who.Store(&identity{proto: 2})
	c.seen.Store(c.begun.UnixNano())
	c.setUser(s.users.Load().first())
	return c
}

// setUser changes who the connection is.
func (c *conn) setUser(u *user) {
	c.user, c.users = u, c.server.users.Load()
	c.gather.use(c.server.listed(), u)
	c.identify(func(i *identity) { i.user = u.name() })
	if u == nil {
		c.ahead.limit.Store(strangerAhead)
	} else {
		c.ahead.limit.Store(int64(clientLimits.bytes))
	}
}

// renew takes in users that have changed since the commands before.
func (c *conn) renew() {
	if u := c.server.users.Load(); u != c.users && c.user != nil {
		of := (*u)[c.user.Name]
		if of == nil {
			c.failed = errRevoked
			return
		}
		c.setUser(of)
	}
}

// from says in the log which connection it is.
func (c *conn) from() slog.Attr { return slog.String("from", c.net.RemoteAddr().String()) }

// source is where the reader reads from. Before it waits for the client, what has been asked for so far is replied to.
type source struct{ c *conn }

func (s source) Read(b []byte) (n int, err error) {
	c := s.c
	for again := true; again; {
		c.settle()
		if c.tracking.on {
			c.pushed()
		}
		c.flush()
		if c.failed != nil {
			return 0, c.failed
		}
		c.trim()
		if idle := c.server.o.IdleTime; idle > 0 && c.user != nil {
			c.deadline(time.Now().Add(idle))
		}
		if c.tracking.on {
			n, err, again = c.readOrPushed(b)
		} else {
			n, err = c.net.Read(b)
			again = false
		}
	}
	if c.renew(); c.failed != nil {
		return 0, c.failed
	}
	return n, err
}

// trim gives long buffers back: a client may be idle for days.
func (c *conn) trim() {
	const most = 8192 // elements
	if cap(c.out) > 4*flushBytes {
		c.out = nil
	}
	if cap(c.gather.buf) > 4*flushBytes {
		c.gather.buf = nil
	}
	if cap(c.entries) > most {
		c.entries = nil
	}
	if cap(c.waiting) > most {
		c.waiting = nil
	}
	for t := range c.gather.rows {
		if cap(c.gather.rows[t]) > most {
			c.gather.rows[t] = nil
		}
	}
}

// deadline bounds the time of reads, unless the server closes: then nothing more is read.
func (c *conn) deadline(at time.Time) {
	c.net.SetReadDeadline(at)
	if c.server.closing.Load() { // Close may have set its deadline before
		c.net.SetReadDeadline(past)
	}
}

// past is the deadline of reads that are to end at once.
var past = time.Unix(1, 0)

// serve replies to commands until the connection ends.
func (c *conn) serve() {
	defer c.holder.end()
	defer c.net.Close()
	defer c.track(tracking{})
	defer func() {
		if p := recover(); p != nil { // a fault of one command must not end the owner of the cache
			c.server.o.Logger.Error("resp: command failed", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		}
	}()
	if t, ok := c.net.(*tls.Conn); ok {
		ctx, cancel := context.WithTimeout(context.Background(), loginTime)
		err := t.HandshakeContext(ctx)
		cancel()
		if err != nil {
			c.server.ended(c, err)
			return
		}
	}
	if c.user == nil {
		c.deadline(time.Now().Add(loginTime))
	}
	var err error
	for err == nil && c.failed == nil && !c.quit {
		limit := clientLimits
		if c.user == nil {
			limit = unknownLimits
		}
		var args [][]byte
		if args, err = c.reader.next(limit); err == nil && isHTTP(args, c.reader.inline) {
			err = errHTTP
		}
		if err == nil {
			c.follow()
			c.run(args)
		}
	}
	c.settle()
	if protocol, ok := errors.AsType[errProtocol](err); ok {
		c.fail("ERR " + protocol.Error())
	}
	c.flush()
	err = cmp.Or(c.holder.end(), c.failed, err)
	switch late := errors.Is(err, os.ErrDeadlineExceeded) && !c.server.closing.Load(); {
	case c.killed.Load():
		err = errKilled
	case late && c.user == nil:
		err = errLate
	case late && c.server.o.IdleTime > 0 && !errors.Is(err, errUnread):
		err = errIdle
	}
	c.server.ended(c, err)
}

// follow has later commands name the tables that the catalog lists now. GETs that wait name those of before.
func (c *conn) follow() {
	if t := c.server.listed(); len(c.waiting) == 0 && t != c.gather.tables {
		c.gather.use(t, c.user)
	}
}

// isHTTP reports whether a command is a line of an HTTP request. Web pages can send those to any port, with commands in the body, so redis-server
// closes the connection after POST and Host:, too.
func isHTTP(args [][]byte, inline bool) bool {
	return bytes.EqualFold(args[0], []byte("post")) || bytes.EqualFold(args[0], []byte("host:")) ||
		inline && len(args) == 3 && bytes.HasPrefix(args[2], []byte("HTTP/"))
}

// grow makes room for n more bytes of replies and takes them in.
func (c *conn) grow(n int) {
	if at := len(c.out); cap(c.out)-at < n {
		c.out = append(make([]byte, 0, at+max(n, at)+4<<10), c.out...)
	}
	c.out = c.out[:len(c.out)+n]
}

// maxUnsent is the most bytes of replies that an EXEC keeps while other connections cannot change rows.
const maxUnsent = 64 << 20

// flush sends the replies. It keeps them while other connections cannot change rows: these must not wait for the client.
func (c *conn) flush() {
	if c.writes && c.failed == nil {
		switch err := c.replies.set(cap(c.out) + cap(c.gather.buf)); {
		case err != nil:
			c.failed = err
		case c.killed.Load():
			c.failed = errKilled
		case len(c.out) > maxUnsent:
			c.failed = fmt.Errorf("%w: after WATCH, replies up to the last TC.SET of an EXEC (%d bytes) must be at most %d bytes", errIncomplete, len(c.out), maxUnsent)
		}
		return
	}
	if len(c.out) > 0 && c.failed == nil {
		c.failed = c.send()
	}
	c.out = c.out[:0]
}

func (c *conn) send() error {
	if err := c.replies.set(cap(c.out) + cap(c.gather.buf)); err != nil {
		return err
	}
	defer c.replies.set(0)
	_, err := c.net.Write(c.out)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w for %v; of its commands %d bytes, at most %d, were read ahead", errUnread, c.server.writeTime, c.ahead.bytes, c.ahead.limit.Load())
	}
	return err
}
