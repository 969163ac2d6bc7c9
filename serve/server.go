//go:build linux

package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/sharing"
	"github.com/tensorcache/tensorcache/internal/throttle"
	"github.com/tensorcache/tensorcache/internal/wire"
	"github.com/tensorcache/tensorcache/serve/catalog"
)

// Server accepts clients of a cache, or of several.
type Server struct {
	tables *catalog.Catalog
	o      Options
	socket *socket
	life   context.Context // ends with Close
	stop   context.CancelFunc
	tasks  sync.WaitGroup
	// refused records clients that cannot be served.
	refused throttle.Log

	mu struct {
		sync.Mutex
		all map[*connection]struct{}
		// owners are of the caches that have been asked for, also of those that have left the catalog while processes read them; nil where memory is not shared.
		owners   map[*cache.Cache]sharing.Owner
		draining bool
		ending   bool
		changing int           // requests under way that change the cache
		changed  chan struct{} // closed and replaced when a connection or a change ends
	}
}

// Listen makes a cache available at an address. Clients can attach if the cache was opened with cache.Options.Shared; otherwise they can ask and
// command only. Close the server before the cache. Clients then go on reading the rows as they are.
func Listen(c *cache.Cache, o Options) (*Server, error) {
	o.ensureDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	s := &Server{tables: o.Tables, o: o}
	s.mu.all, s.mu.changed, s.mu.owners = map[*connection]struct{}{}, make(chan struct{}), map[*cache.Cache]sharing.Owner{}
	var err error
	if s.tables == nil {
		if s.tables, err = catalog.New(c); err != nil {
			return nil, fmt.Errorf("serve: %w", err)
		}
	}
	for _, c := range s.tables.View().Caches {
		if _, err := s.ownerOf(c); err != nil && !errors.Is(err, sharing.ErrNotShared) {
			return nil, fmt.Errorf("serve: %w", err)
		}
	}
	if s.socket, err = listen(o.Address); err != nil {
		return nil, err
	}
	s.life, s.stop = context.WithCancel(context.Background())
	s.tasks.Go(s.accept)
	return s, nil
}

// Address returns the address that clients connect to.
func (s *Server) Address() string { return s.o.Address }

// Close removes the socket, ends all connections and waits for requests under way, which are cancelled.
func (s *Server) Close() error {
	s.stop()
	err := s.socket.Close()
	s.mu.Lock()
	for c := range s.mu.all {
		c.wire.Close()
	}
	s.mu.Unlock()
	s.tasks.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil // closed before
	}
	return err
}

// Pauses after connections that could not be accepted.
const (
	firstWait = time.Millisecond
	lastWait  = time.Second
)

// accept serves connections until Close.
func (s *Server) accept() {
	for wait := firstWait; ; {
		socket, err := s.socket.AcceptUnix()
		if s.life.Err() != nil {
			if err == nil {
				socket.Close()
			}
			return
		}
		if err != nil { // too many open files: the next one may succeed
			s.o.Logger.Warn("connection not accepted", slog.Any("error", err))
			select {
			case <-time.After(wait):
			case <-s.life.Done():
			}
			wait = min(2*wait, lastWait)
			continue
		}
		wait = firstWait
		c := &connection{server: s, wire: wire.NewConn(socket)}
		c.mu.running = map[uint64]context.CancelFunc{}
		refusal := spare(socket)
		s.mu.Lock()
		if n := len(s.mu.all); n >= maxConnections {
			refusal = fmt.Errorf("serve: connections (%d) must be at most %d", n+1, maxConnections)
		}
		if refusal == nil {
			s.mu.all[c] = struct{}{}
		}
		s.mu.Unlock()
		if refusal != nil {
			c.refuse(refusal)
		}
		if refusal != nil || s.life.Err() != nil {
			s.forget(c)
			continue
		}
		s.tasks.Go(c.serve)
	}
}

const (
	// maxConnections is the most connections at a time, attached or not.
	maxConnections = maxClients + 64
	// spareFiles is how many files the process can open when it takes no further connections: for what attached clients and the cache need.
	spareFiles = 16
)

// spare returns an error if a new connection has one of the last descriptors that the process may have. A new descriptor is the lowest that is free, so
// that all below it are in use.
func spare(socket *net.UnixConn) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return nil // no limit is known
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	last := false
	if err := raw.Control(func(fd uintptr) { last = uint64(fd)+spareFiles >= limit.Cur }); err != nil {
		return err
	}
	if last {
		return fmt.Errorf("serve: open files of the owner must leave %d of %d (RLIMIT_NOFILE) for itself: it takes no further connections now", spareFiles, limit.Cur)
	}
	return nil
}

// forget ends a connection.
func (s *Server) forget(c *connection) {
	c.wire.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.all, c)
	s.changedLocked()
}

// ownerOf returns the owner's side of a cache. The error for one that has left the list, and that Forget may have been called for, wraps errUnlisted.
func (s *Server) ownerOf(c *cache.Cache) (sharing.Owner, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if owner := s.mu.owners[c]; owner != nil {
		return owner, nil
	}
	if !s.listed(c) {
		return nil, errUnlisted
	}
	owner, err := sharing.Open(c, sharing.Options{StoppedAfter: s.o.StoppedAfter, Evict: s.o.EvictStopped})
	if err == nil {
		s.mu.owners[c] = owner
	}
	return owner, err
}

// owners returns the owner's sides of all caches.
func (s *Server) owners() []sharing.Owner {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.mu.owners))
}

// Readers names the processes that are attached to a cache or about to be, and those that have lost their connection and may still read it.
func (s *Server) Readers(c *cache.Cache) (all []string) {
	s.mu.Lock()
	owner := s.mu.owners[c]
	for one := range s.mu.all {
		if one.attaching && one.cache == c && one.client == nil {
			all = append(all, one.String())
		}
	}
	s.mu.Unlock()
	if owner != nil {
		for _, d := range owner.Describe() {
			all = append(all, d.Name)
		}
	}
	return all
}

// Detach ends the connections of the processes that are attached to a cache which has left Options.Tables. If another cache with equal tables has taken its
// place, they attach to that one by themselves; otherwise they go on reading the rows as they are.
func (s *Server) Detach(c *cache.Cache) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for one := range s.mu.all {
		if one.attaching && one.cache == c {
			one.wire.Close()
		}
	}
}

// Left returns when no process reads a cache any more, or an error that names those that do when ctx has ended. Captured batches read until their graphs
// are destroyed.
func (s *Server) Left(ctx context.Context, c *cache.Cache) error {
	for {
		readers := s.Readers(c)
		if len(readers) == 0 {
			return nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("serve: processes (%s) may still read the rows of before: %w", strings.Join(readers, ", "), ctx.Err())
		}
	}
}

// Forget is called before a cache that has left Options.Tables is closed.
func (s *Server) Forget(c *cache.Cache) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.owners, c)
}

// Drain lets no further client attach, and returns when the last one has left or ctx has ended.
func (s *Server) Drain(ctx context.Context) error {
	for {
		s.mu.Lock()
		s.mu.draining = true
		attached, changed := 0, s.mu.changed
		for c := range s.mu.all {
			if c.attaching {
				attached++
			}
		}
		s.mu.Unlock()
		if attached == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("serve: drain: clients (%d) are still attached: %w", attached, ctx.Err())
		}
	}
}

// Finish lets no further process attach and no request change the cache, and returns when the changes under way are done or ctx has ended. It does not
// wait for clients: they go on reading, also when the owner has ended.
func (s *Server) Finish(ctx context.Context) error {
	for {
		s.mu.Lock()
		s.mu.draining, s.mu.ending = true, true
		n, changed := s.mu.changing, s.mu.changed
		s.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("serve: finish: changes (%d) by clients are still under way: %w", n, ctx.Err())
		}
	}
}

// beginChange lets a request change the cache, until end is called.
func (s *Server) beginChange() (end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.ending {
		return nil, errors.New("serve: no further changes: the owner is about to end")
	}
	s.mu.changing++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mu.changing--
		s.changedLocked()
	}, nil
}

// changedLocked wakes Drain and Finish.
func (s *Server) changedLocked() {
	close(s.mu.changed)
	s.mu.changed = make(chan struct{})
}

// oldest returns the oldest version of the protocol that clients may speak.
func (s *Server) oldest() int {
	oldest := wire.Oldest
	for _, owner := range s.owners() {
		oldest = max(oldest, owner.Oldest())
	}
	return oldest
}
