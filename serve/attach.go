//go:build linux

package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/sharing"
	"github.com/tensorcache/tensorcache/internal/wire"
)

// attach gives the client the cache's memory.
func (c *connection) attach(ctx context.Context, r wire.AttachRequest) (*wire.Welcome, error) {
	s := c.server
	if r.Lanes < 1 || r.Lanes > s.o.MaxLanes && !r.Fewer {
		return nil, fmt.Errorf("serve: lanes (%d) must be 1 to %d, the owner's limit for a client", r.Lanes, s.o.MaxLanes)
	}
	scratch, err := s.scratch(r.Scratch)
	if err != nil {
		return nil, err
	}
	of, owner, err := s.place(c, r.Table)
	if err != nil {
		return nil, err
	}
	p, err := processOf(c.wire.Socket()) // for the client, which may outlive the connection
	if err != nil {
		s.release(c)
		return nil, err
	}
	p.name = c.name
	g, welcome, err := owner.Admit(ctx, p, min(r.Lanes, s.o.MaxLanes), c.wire.Write)
	if err != nil {
		s.release(c)
		return nil, err
	}
	s.mu.Lock()
	c.client, c.number, c.scratch = g, welcome.Client, scratch
	s.mu.Unlock()
	welcome.Scratch, welcome.Tables = scratch, slices.Clone(welcome.Tables)
	for i := range welcome.Tables {
		welcome.Tables[i].Name = s.nameIn(of, i, welcome.Tables[i].Name)
	}
	s.o.Logger.Info("client attached", slog.String("client", c.String()))
	return welcome, nil
}

// place finds the cache that holds a table, and counts a client that is about to attach to it.
func (s *Server) place(c *connection, table string) (of *cache.Cache, owner sharing.Owner, err error) {
	for {
		if of, err = s.cacheOf(table); err == nil {
			if owner, err = s.ownerOf(of); err == nil {
				err = s.reserve(c, of, owner)
			}
		}
		if !errors.Is(err, errUnlisted) { // else another cache has taken its place, or the table is not listed any more
			return of, owner, err
		}
	}
}

// errUnlisted is the error for a cache none of whose tables is listed any more.
var errUnlisted = errors.New("serve: tables of the cache are no longer served")

// listed says whether a cache has a table that is listed. With mu held the answer true stays right for Detach and Forget, which come after the cache has left the list.
func (s *Server) listed(of *cache.Cache) bool { return slices.Contains(s.tables.View().Caches, of) }

// scratch returns the most bytes that a client may allocate on each device, 0 for no limit, if it asks for so many; 0: for what it may have. It keeps to
// that by itself.
func (s *Server) scratch(asked int64) (int64, error) {
	switch most := s.o.MaxScratch; {
	case asked == 0:
		return most, nil
	case asked < minScratch:
		return 0, fmt.Errorf("serve: scratch (%d B a device) must be 0, for what the owner allows, or at least %d", asked, minScratch)
	case most > 0 && asked > most:
		return 0, fmt.Errorf("serve: scratch (%d B a device) must be at most %d, the owner's limit for a client", asked, most)
	}
	return asked, nil
}

// cacheOf returns the cache that holds a table; of name "" the first.
func (s *Server) cacheOf(name string) (*cache.Cache, error) {
	v := s.tables.View()
	if name == "" && len(v.Caches) > 0 {
		return v.Caches[0], nil
	}
	t, err := v.Named(name)
	if err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	return t.Cache, nil
}

// nameIn returns the name by which processes attached to a cache see one of its tables. A table that is no longer served has a name that says so: its memory
// goes with the other tables of the cache.
func (s *Server) nameIn(of *cache.Cache, index int, name string) string {
	t, err := s.tables.View().Find(name)
	switch {
	case err != nil:
		return name + " (dropped)"
	case t.Cache != of:
		return fmt.Sprintf("%s (replaced: attach to %s#%s)", name, s.o.Address, name)
	case t.Index != index: // a table whose name is a number
		return name
	}
	return t.Name
}

// reserve counts a client that is about to attach, unless there are too many. The error for a cache that has left the list wraps errUnlisted: Detach may have been called already.
func (s *Server) reserve(c *connection, of *cache.Cache, owner sharing.Owner) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	clients := 0
	for other := range s.mu.all {
		if other.attaching {
			clients++
		}
	}
	switch {
	case c.attaching:
		return errors.New("serve: connection is attached already")
	case s.mu.draining:
		return errors.New("serve: no further clients: the owner is about to end")
	case !s.listed(of):
		return errUnlisted
	case clients >= s.o.MaxClients:
		return fmt.Errorf("serve: clients (%d) must be at most %d", clients+1, s.o.MaxClients)
	}
	// A client that attaches again after it has lost its connection has two attachments for a moment.
	if disconnected := owner.Disconnected(); disconnected > s.o.MaxClients {
		return fmt.Errorf("serve: attachments whose connections have ended (%d) must be at most %d: their processes must end", disconnected, s.o.MaxClients)
	}
	c.attaching, c.cache = true, of
	return nil
}

func (s *Server) release(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.attaching, c.cache = false, nil
}

// ready lets batches of the client begin.
func (c *connection) ready(m wire.Mapped) (wire.Readiness, error) {
	g := c.server.client(m.Client)
	if g == nil {
		return wire.Readiness{}, fmt.Errorf("serve: attachment (%d) must be one of this owner", m.Client)
	}
	return wire.Readiness{Live: g.Ready()}, nil
}

// leave forgets an attachment of the client's process, none of whose batches runs.
func (c *connection) leave(r wire.LeaveRequest) error {
	if g := c.server.client(r.Client); g != nil {
		g.Leave()
	}
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.client != nil && c.number == r.Client { // another client may take its place before this connection ends
		c.attaching, c.cache, c.client = false, nil, nil
		s.changedLocked()
	}
	return nil
}

// freeCaptures has places of the client's captured batches used again.
func (c *connection) freeCaptures(r wire.FreeCapturesRequest) error {
	s := c.server
	s.mu.Lock()
	g := c.client
	s.mu.Unlock()
	if g == nil {
		return errors.New("serve: connection must be attached to free places")
	}
	return g.FreeCaptures(r.Device, r.From, r.Count)
}

// client returns the client of a number, nil if there is none.
func (s *Server) client(number uint64) sharing.Client {
	for _, owner := range s.owners() {
		if c := owner.Client(number); c != nil {
			return c
		}
	}
	return nil
}
