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

	"github.com/tensorcache/tensorcache/cache"
)

// Options configure a Server. The zero value of a field is its default.
type Options struct {
	// Cache is the cache to serve. It has no default.
	Cache *cache.Cache
	// Users are the passwords.
	Users Users
	// TLS, if not nil, encrypts all connections. It needs a certificate.
	TLS *tls.Config
	// MaxClients is the most connections at a time; further ones get an error. Default 1,000. A connection holds some 40 KiB, and up to 3 MiB while it
	// has long replies.
	MaxClients int
	// Stats returns what TC.STATS tells as JSON. Default: the cache's statistics.
	Stats func() (any, error)
	// Logger receives refused connections and protocol errors. Default: none.
	Logger *slog.Logger
	// Version is what INFO and HELLO tell.
	Version string
}

// Server serves connections.
type Server struct {
	o       Options
	tables  *tables
	users   atomic.Pointer[users]
	started time.Time
	ids     atomic.Int64
	counts  struct{ connections, refused, commands atomic.Int64 }
	closing atomic.Bool
	serving sync.WaitGroup
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
	if o.Cache == nil {
		return nil, errors.New("resp: Options.Cache must be set")
	}
	if o.MaxClients == 0 {
		o.MaxClients = 1000
	}
	if o.MaxClients < 0 {
		return nil, fmt.Errorf("resp: Options.MaxClients (%d) must not be negative", o.MaxClients)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	t, err := newTables(o.Cache)
	if err != nil {
		return nil, err
	}
	s := &Server{o: o, tables: t, started: time.Now()}
	s.life, s.cut = context.WithCancel(context.Background())
	s.mu.conns = map[*conn]struct{}{}
	s.SetUsers(o.Users)
	return s, nil
}

// SetUsers changes the passwords. Connections that are authenticated stay so.
func (s *Server) SetUsers(u Users) { s.users.Store(newUsers(u)) }

// Clients returns the number of connections.
func (s *Server) Clients() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.conns)
}

// Serve accepts connections of a listener until Close, and then returns nil. The listener is closed.
func (s *Server) Serve(l net.Listener) error {
	if s.o.TLS != nil {
		l = tls.NewListener(l, s.o.TLS)
	}
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() {
		nc.Close()
		return
	}
	if len(s.mu.conns) >= s.o.MaxClients {
		s.counts.refused.Add(1)
		s.o.Logger.Warn("resp: too many clients", slog.Int("clients", len(s.mu.conns)), slog.String("from", nc.RemoteAddr().String()))
		go func() {
			nc.SetDeadline(time.Now().Add(time.Second))
			nc.Write([]byte("-ERR max number of clients reached\r\n"))
			nc.Close()
		}()
		return
	}
	s.counts.connections.Add(1)
	c := newConn(s, nc)
	s.mu.conns[c] = struct{}{}
	s.serving.Go(func() {
		c.serve()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.mu.conns, c)
	})
}

// Close stops listening, lets every connection end the commands that the server has read, and closes them. When ctx ends first, it closes them at once and
// returns the context's error.
func (s *Server) Close(ctx context.Context) error {
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
		c.net.Close()
	}
	s.mu.Unlock()
	<-ended
	return ctx.Err()
}
