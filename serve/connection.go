//go:build linux

package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/sharing"
	"github.com/tensorcache/tensorcache/internal/wire"
)

// connection is one client.
type connection struct {
	server  *Server
	wire    *wire.Conn
	process process
	name    string // from its greeting
	since   time.Time
	// Server.mu guards these.
	attaching bool           // attached, or about to be
	cache     *cache.Cache   // that it is attached to, or about to be; nil otherwise
	client    sharing.Client // nil unless attached
	number    uint64         // of the client
	scratch   int64          // most bytes that it may allocate on each device, 0: no limit

	mu struct {
		sync.Mutex
		running map[uint64]context.CancelFunc // requests under way, by ID
	}
}

const (
	// greetingWait is how long a client may take to greet, and greetingBytes the most bytes of a greeting.
	greetingWait  = 10 * time.Second
	greetingBytes = 64 << 10
	// refusalWait is how long the greeting of a client that is refused is waited for. No other client is accepted meanwhile.
	refusalWait = 100 * time.Millisecond
	// maxRequests is the most requests of one client under way.
	maxRequests = 64
)

// serve handles the connection until it ends.
func (c *connection) serve() {
	defer c.server.forget(c)
	err := c.greet()
	defer func() { c.process.Close() }()
	if err != nil {
		c.server.o.Logger.Warn("client refused", slog.Int("process", c.process.PID), slog.Any("error", err))
		return
	}
	life, stop := context.WithCancel(c.server.life)
	var tasks sync.WaitGroup
	defer c.lose()
	defer tasks.Wait()
	defer stop()
	go func() { // a child of a fork may hold the connection open
		if c.process.Wait() {
			c.wire.Close()
		}
	}()
	for {
		m, err := c.wire.Read(wire.MaxJSON + wire.MaxPayload)
		if err != nil {
			if errors.Is(err, wire.ErrFrame) {
				c.server.o.Logger.Warn("client dropped", slog.String("client", c.String()), slog.Any("error", err))
			}
			return
		}
		m.CloseFiles() // no request has any
		if m.Method == wire.Cancel {
			c.cancel(m)
			continue
		}
		if m.Method == wire.Ping {
			c.answer(m.ID, nil, nil)
			continue
		}
		ctx, end, err := c.begin(life, m.ID)
		if err != nil {
			c.answer(m.ID, nil, err)
			continue
		}
		tasks.Go(func() {
			defer end()
			result, err := c.handle(ctx, m)
			c.answer(m.ID, result, err)
		})
	}
}

// refuse answers the greeting of a client that cannot be served.
func (c *connection) refuse(err error) {
	c.server.refused.Record(c.server.o.Logger, slog.LevelWarn, "client refused", slog.Any("error", err))
	c.wire.Socket().SetReadDeadline(time.Now().Add(refusalWait))
	if m, bad := c.wire.Read(greetingBytes); bad == nil {
		m.CloseFiles()
		c.answer(m.ID, nil, err)
	}
}

// lose ends the attachment with the connection.
func (c *connection) lose() {
	c.server.mu.Lock()
	g := c.client
	c.server.mu.Unlock()
	if g != nil {
		g.Lost()
	}
}

// String returns the client's name and process, for errors.
func (c *connection) String() string { return c.process.String() }

// greet reads the greeting and answers it.
func (c *connection) greet() error {
	c.wire.Socket().SetReadDeadline(time.Now().Add(greetingWait))
	m, err := c.wire.Read(greetingBytes)
	if err != nil {
		return fmt.Errorf("serve: greeting: %w", err)
	}
	m.CloseFiles()
	var g wire.Greeting
	err = wire.Decode(m.Body, &g)
	var user error
	version := 0
	c.process, user = processOf(c.wire.Socket())
	switch {
	case m.Method != wire.Hello:
		err = fmt.Errorf("serve: first request (%q) must be %q", m.Method, wire.Hello)
	case err != nil:
	case user != nil:
		err = user
	default:
		version, err = g.Agree(c.server.oldest())
	}
	if err != nil {
		c.answer(m.ID, nil, err)
		return err
	}
	c.name, c.since = nameOf(g.Name), time.Now()
	c.process.name = c.name
	c.wire.Socket().SetReadDeadline(time.Time{})
	return c.answer(m.ID, wire.Reception{Version: version, Process: os.Getpid()}, nil)
}

// maxName is the most bytes of a client's name that are kept.
const maxName = 128

// nameOf returns what is kept of the name that a client gives itself: terminals and logs show it, so that it has no control characters.
func nameOf(given string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, given[:min(len(given), maxName)])
}

// begin notes that a request is under way, until end is called.
func (c *connection) begin(life context.Context, id uint64) (ctx context.Context, end func(), err error) {
	ctx, stop := context.WithCancel(life)
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, twice := c.mu.running[id]; twice || id == 0 || len(c.mu.running) >= maxRequests {
		stop()
		return nil, nil, fmt.Errorf("serve: request (%d) must have a number of its own, and at most %d may be under way", id, maxRequests)
	}
	c.mu.running[id] = stop
	return ctx, func() {
		stop()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.mu.running, id)
	}, nil
}

// cancel ends the request that a notice names.
func (c *connection) cancel(m *wire.Message) {
	var n wire.CancelNotice
	if wire.Decode(m.Body, &n) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if stop := c.mu.running[n.ID]; stop != nil {
		stop()
	}
}

// answer answers a request.
func (c *connection) answer(id uint64, result any, err error) error {
	m := &wire.Message{ID: id}
	if err == nil && result != nil {
		m.Body, err = json.Marshal(result)
	}
	if err != nil {
		m.Error = errorOf(err)
	}
	err = c.wire.Write(m)
	if errors.Is(err, wire.ErrTooLong) { // nothing has been sent: the client would wait for ever
		err = c.wire.Write(&wire.Message{ID: id, Error: errorOf(fmt.Errorf("serve: answer is too long, ask for fewer rows: %w", err))})
	}
	return err
}
