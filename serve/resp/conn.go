package resp

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
	"time"
)

const (
	// loginTime is how long a client may take to authenticate.
	loginTime = 30 * time.Second
	// writeTime is how long a client may take to read a part of a reply. It frees what a client that reads no more holds.
	writeTime = time.Minute
	readBytes = 16 << 10 // of one read
)

// conn is one connection. One goroutine uses it.
type conn struct {
	server *Server
	net    net.Conn
	id     int64
	role   role
	name   string // of CLIENT SETNAME
	reader reader
	reply
	gather  *gatherer
	waiting []entry // GETs that have not been replied to
	entries []entry // of an MGET
	failed  error   // why the connection ends
	quit    bool
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{server: s, net: nc, id: s.ids.Add(1), role: s.users.Load().first(), gather: newGatherer(s.life, s.tables)}
	c.proto = 2
	c.reader.from = bufio.NewReaderSize(source{c}, readBytes)
	return c
}

// source is where the reader reads from. Before it waits for the client, what has been asked for so far is replied to.
type source struct{ c *conn }

func (s source) Read(b []byte) (int, error) {
	c := s.c
	c.settle()
	c.flush()
	if c.failed != nil {
		return 0, c.failed
	}
	if cap(c.out) > 4*flushBytes {
		c.out = nil
	}
	if cap(c.gather.buf) > 4*flushBytes {
		c.gather.buf = nil
	}
	return c.net.Read(b)
}

// deadline bounds the time of reads, unless the server closes: then nothing more is read.
func (c *conn) deadline(at time.Time) {
	c.net.SetReadDeadline(at)
	if c.server.closing.Load() { // Close may have set its deadline before
		c.net.SetReadDeadline(past)
	}
}

var past = time.Unix(1, 0)

// serve replies to commands until the connection ends.
func (c *conn) serve() {
	defer c.net.Close()
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
			c.end(err)
			return
		}
	}
	if c.role == unknown {
		c.deadline(time.Now().Add(loginTime))
	}
	for c.failed == nil && !c.quit {
		limit := clientLimits
		if c.role == unknown {
			limit = unknownLimits
		}
		args, err := c.reader.next(limit)
		if err != nil {
			c.end(err)
			return
		}
		c.server.counts.commands.Add(1)
		c.run(args)
	}
	c.settle()
	c.flush()
}

// end replies to what has arrived, and says what was wrong with the rest.
func (c *conn) end(err error) {
	c.settle()
	if protocol, ok := errors.AsType[errProtocol](err); ok {
		c.fail("ERR " + protocol.Error())
		c.server.o.Logger.Info("resp: connection ended", slog.String("from", c.net.RemoteAddr().String()), slog.Any("error", err))
	} else if !errors.Is(err, io.EOF) {
		c.server.o.Logger.Debug("resp: connection ended", slog.String("from", c.net.RemoteAddr().String()), slog.Any("error", err))
	}
	c.flush()
}

// grow makes room for n more bytes of replies and takes them in.
func (c *conn) grow(n int) {
	if at := len(c.out); cap(c.out)-at < n {
		c.out = append(make([]byte, 0, at+n+4<<10), c.out...)
	}
	c.out = c.out[:len(c.out)+n]
}

// flush sends the replies.
func (c *conn) flush() {
	if len(c.out) > 0 && c.failed == nil {
		c.net.SetWriteDeadline(time.Now().Add(writeTime))
		if _, err := c.net.Write(c.out); err != nil {
			c.failed = err
		}
	}
	c.out = c.out[:0]
}
