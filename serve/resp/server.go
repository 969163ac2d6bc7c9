package resp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/throttle"
	"github.com/tensorcache/tensorcache/serve/catalog"
)

// Options configure a Server. The zero value of a field is its default.
type Options struct {
	// Cache is the cache to serve. It has no default, unless Tables is set.
	Cache *cache.Cache
	// Tables are those to serve of a program that has several caches. Default: those of Cache.
	Tables *catalog.Catalog
	// Users are who may log in.
	Users Users
	// TLS, if not nil, encrypts all connections. It needs a certificate.
	TLS *tls.Config
	// MaxClients is the most connections at a time; further ones get an error. Default 1,000. A connection holds some 40 KiB, and up to 400 KiB while
	// it has work, besides MaxMemory.
	MaxClients int
	// MaxMemory is the most bytes that commands and replies of all connections take beyond that. When they take more, the connection with most of them is
	// cut off. At least 1 MiB. Default 512 MiB. A command has at most 64 MiB, and as much is read ahead while a client does not take its replies.
	MaxMemory int64
	// IdleTime is how long a client that has logged in may send nothing. Default 0: for ever.
	IdleTime time.Duration
	// Stats returns what TC.STATS tells as JSON. Default: the cache's statistics.
	Stats func() (any, error)
	// Logger receives refused connections and protocol errors. Default: none.
	Logger *slog.Logger
	// Audit receives a record of each change of rows: who, of which table, and how many rows. Default: Logger.
	Audit *slog.Logger
	// Version is what INFO and HELLO tell.
	Version string
}

// Server serves connections.
type Server struct {
	o            Options
	tables       *catalog.Catalog
	listing      atomic.Pointer[tables] // of the last view of them that a connection has seen
	users        atomic.Pointer[users]
	started      time.Time
	ids          atomic.Int64
	counters     counters
	slow         slowLog
	invalidation invalidation
	writing      sync.RWMutex // TC.SETs share it; an EXEC that changes rows after WATCH has it alone
	endings      endings
	logins       throttle.Logins
	failed       throttle.Log // logins
	memory       *memory
	metrics      metric.Registration
	closing      atomic.Bool
	serving      sync.WaitGroup
	// writeTime is how long a client may take to read a part of a reply.
	writeTime time.Duration
	// open is a context that Close ends at once. shut ends it.
	open context.Context
	shut context.CancelFunc
	// life is the context of the cache's calls. cut ends it, when Close waits no more.
	life context.Context
	cut  context.CancelFunc

	mu struct {
		sync.Mutex
		listeners []net.Listener
		conns     map[*conn]struct{}
	}
}

// New returns a server of a cache whose tables have names that CheckNames accepts.
func New(o Options) (*Server, error) {
	if o.Cache == nil && o.Tables == nil {
		return nil, errors.New("resp: Options.Cache or Tables must be set")
	}
	if o.MaxClients == 0 {
		o.MaxClients = 1000
	}
	if o.MaxClients < 0 {
		return nil, fmt.Errorf("resp: Options.MaxClients (%d) must not be negative", o.MaxClients)
	}
	if o.MaxMemory == 0 {
		o.MaxMemory = 512 << 20
	}
	if o.MaxMemory < 1<<20 {
		return nil, fmt.Errorf("resp: Options.MaxMemory (%d B) must be at least 1 MiB", o.MaxMemory)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Audit == nil {
		o.Audit = o.Logger
	}
	if o.IdleTime < 0 {
		return nil, fmt.Errorf("resp: Options.IdleTime (%v) must not be negative", o.IdleTime)
	}
	t := o.Tables
	if t == nil {
		var err error
		if t, err = catalog.New(o.Cache); err != nil {
			return nil, err
		}
	}
	if err := CheckNames(t.View().Names()); err != nil {
		return nil, err
	}
	s := &Server{o: o, tables: t, started: time.Now(), memory: newMemory(o.MaxMemory), writeTime: writeTime}
	s.counters.of = make([]commandCounters, len(allNames))
	s.invalidation.server = s
	s.life, s.cut = context.WithCancel(context.Background())
	s.open, s.shut = context.WithCancel(s.life)
	s.mu.conns = map[*conn]struct{}{}
	s.SetUsers(o.Users)
	if err := s.measure(otel.GetMeterProvider()); err != nil {
		return nil, err
	}
	return s, nil
}

// SetUsers changes who may log in. Connections that are logged in stay so, with the rights that their user has then; they are cut off, with their next
// command, if there is no such user any more.
func (s *Server) SetUsers(u Users) { s.users.Store(newUsers(u)) }

// listed returns the tables that are listed now.
func (s *Server) listed() *tables {
	t := s.listing.Load()
	if t == nil || t.cache.view != s.tables.View() {
		t = newTables(s.tables)
		s.listing.Store(t)
	}
	return t
}

// Clients returns the number of connections.
func (s *Server) Clients() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.conns)
}

// Serve accepts connections of a listener until Close, and then returns nil. The listener is closed.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	s.mu.listeners = append(s.mu.listeners, l)
	closing := s.closing.Load()
	s.mu.Unlock()
	defer l.Close()
	if closing {
		return nil
	}
	for wait := time.Millisecond; ; {
		nc, err := l.Accept()
		switch {
		case err == nil:
			wait = time.Millisecond
			s.begin(nc)
		case s.closing.Load() || errors.Is(err, net.ErrClosed):
			return nil
		default: // such as too many open files: it passes
			s.o.Logger.Warn("resp: connection not accepted", slog.Any("error", err))
			time.Sleep(wait)
			wait = min(2*wait, time.Second)
		}
	}
}

// begin serves a connection, unless there are too many.
func (s *Server) begin(nc net.Conn) {
	if s.serves(nc) {
		return
	}
	if s.o.TLS == nil && !s.closing.Load() { // a handshake could take long
		nc.SetWriteDeadline(time.Now().Add(time.Second))
		nc.Write([]byte("-ERR max number of clients reached\r\n"))
	}
	nc.Close() // before the next one is accepted: it holds a descriptor
}

// serves begins to serve a connection. It is false if there are too many, or the server closes.
func (s *Server) serves(nc net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() {
		return false
	}
	if len(s.mu.conns) >= s.o.MaxClients {
		s.cutOff(full, slog.LevelWarn, slog.String("from", nc.RemoteAddr().String()), slog.Any("error", errFull), slog.Int("clients", len(s.mu.conns)))
		return false
	}
	s.counters.connections.Add(1)
	c := newConn(s, nc)
	s.mu.conns[c] = struct{}{}
	s.counters.connected.Add(1)
	s.serving.Go(func() {
		c.serve()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.mu.conns, c)
		s.counters.connected.Add(-1)
	})
	return true
}

// partBytes returns how many bytes of rows a connection reads at a time, so that the replies of all take at most half of MaxMemory.
func (s *Server) partBytes() int {
	return int(min(partBytes, max(leastPart, s.memory.most/4/max(1, s.counters.connected.Load()))))
}

// Close stops listening, lets every connection end the commands that the server has read, and closes them. When ctx ends first, it closes them at once and
// returns the context's error.
func (s *Server) Close(ctx context.Context) error {
	s.shut()
	s.metrics.Unregister()
	s.mu.Lock()
	s.closing.Store(true)
	for _, l := range s.mu.listeners {
		l.Close()
	}
	for c := range s.mu.conns {
		c.net.SetReadDeadline(past) // it reads no more
	}
	s.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		s.serving.Wait()
		close(ended)
	}()
	defer s.cut()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	s.cut() // an update may wait for batches
	s.mu.Lock()
	for c := range s.mu.conns {
		c.ahead.Conn.Close() // TLS's would wait for each client in turn to take its last record
	}
	s.mu.Unlock()
	<-ended
	return ctx.Err()
}
