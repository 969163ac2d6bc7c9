//go:build linux

package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/sharing"
	"github.com/tensorcache/tensorcache/internal/statjson"
	"github.com/tensorcache/tensorcache/internal/wire"
	"github.com/tensorcache/tensorcache/serve/catalog"
)

// handle carries out a request.
func (c *connection) handle(ctx context.Context, m *wire.Message) (result any, err error) {
	s := c.server
	defer func() {
		if p := recover(); p != nil { // a table index out of range must not end the owner, whoever sent it
			s.o.Logger.Error("request failed", slog.String("request", m.Method), slog.String("client", c.String()), slog.Any("panic", p))
			result, err = nil, fmt.Errorf("serve: request %s: panic: %v", m.Method, p)
		}
	}()
	var rows wire.RowsRequest
	switch m.Method {
	case wire.Explain, wire.Explanations, wire.Missed, wire.Cached, wire.Update, wire.Invalidate, wire.Absent, wire.Prefetch:
		if err := wire.Decode(m.Body, &rows); err != nil {
			return nil, err
		}
	}
	switch m.Method {
	case wire.Update, wire.Invalidate, wire.Refresh, wire.SetBudget, wire.Retarget, wire.Merge, wire.Snapshot, wire.ChangeTable:
		end, err := s.beginChange()
		if err != nil {
			return nil, err
		}
		defer end()
	}
	switch m.Method {
	case wire.Status:
		return s.Status()
	case wire.Stats:
		return c.stats()
	case wire.Explain:
		return on(c, rows.Table, func(of *cache.Cache, table int) ([]statjson.Explanation, error) {
			return statjson.Explain(of, table, rows.Rows)
		})
	case wire.Explanations:
		return on(c, rows.Table, func(of *cache.Cache, table int) ([]cache.Explanation, error) { return of.Explain(table, rows.Rows) })
	case wire.Missed:
		return on(c, rows.Table, func(of *cache.Cache, table int) (*wire.Misses, error) {
			owner, err := s.ownerOf(of)
			if err != nil {
				return nil, err
			}
			return owner.Misses(table, rows.Rows)
		})
	case wire.Attach:
		var r wire.AttachRequest
		if err := wire.Decode(m.Body, &r); err != nil {
			return nil, err
		}
		return c.attach(ctx, r)
	case wire.Ready:
		var r wire.Mapped
		if err := wire.Decode(m.Body, &r); err != nil {
			return nil, err
		}
		return c.ready(r)
	case wire.Leave:
		var r wire.LeaveRequest
		if err := wire.Decode(m.Body, &r); err != nil {
			return nil, err
		}
		return nil, c.leave(r)
	case wire.FreeCaptures:
		var r wire.FreeCapturesRequest
		if err := wire.Decode(m.Body, &r); err != nil {
			return nil, err
		}
		return nil, c.freeCaptures(r)
	case wire.Cached:
		return on(c, rows.Table, func(of *cache.Cache, table int) ([]bool, error) { return of.Cached(table, rows.Rows, nil) })
	case wire.Update:
		return nil, c.change(rows.Table, func(of *cache.Cache, table int) error {
			err := of.Update(ctx, table, rows.Rows, m.Payload)
			c.audit("rows changed", m.Method, c.server.nameIn(of, table, strconv.Itoa(table)), err, slog.Int("rows", len(rows.Rows)))
			return err
		})
	case wire.Invalidate:
		return nil, c.change(rows.Table, func(of *cache.Cache, table int) error {
			err := of.Invalidate(table, rows.Rows)
			c.audit("rows changed", m.Method, c.server.nameIn(of, table, strconv.Itoa(table)), err, slog.Int("rows", len(rows.Rows)))
			return err
		})
	case wire.Absent:
		return on(c, rows.Table, func(of *cache.Cache, table int) (*wire.AbsentRows, error) {
			owner, err := s.ownerOf(of)
			if err != nil {
				return nil, err
			}
			return owner.ReadAbsent(ctx, table, rows.Rows)
		})
	case wire.Prefetch:
		return nil, c.change(rows.Table, func(of *cache.Cache, table int) error { return of.Prefetch(table, rows.Rows) })
	case wire.Refresh:
		if f := s.o.Commands.Refresh; f != nil {
			return nil, f(ctx)
		}
		var errs []error
		for _, of := range c.caches() {
			errs = append(errs, of.Refresh(ctx))
		}
		return nil, errors.Join(errs...)
	case wire.SetBudget:
		var b wire.BudgetRequest
		if err := wire.Decode(m.Body, &b); err != nil {
			return nil, err
		}
		if f := s.o.Commands.SetBudget; f != nil && !c.attached() {
			return nil, f(ctx, b.Bytes)
		}
		return nil, c.caches()[0].SetBudget(ctx, b.Bytes)
	case wire.Retarget:
		var r wire.RetargetRequest
		if err := wire.Decode(m.Body, &r); err != nil {
			return nil, err
		}
		return nil, c.change(r.Table, func(of *cache.Cache, table int) error { return of.Retarget(ctx, table, r.Target) })
	case wire.Merge:
		var r wire.MergeRequest
		if err := wire.Decode(m.Body, &r); err != nil {
			return nil, err
		}
		return nil, c.change(r.Table, func(of *cache.Cache, table int) error { return of.MergeUpdates(ctx, table) })
	case wire.Snapshot:
		var p wire.SnapshotRequest
		if err := wire.Decode(m.Body, &p); err != nil {
			return nil, err
		}
		if f := s.o.Commands.Snapshot; f != nil {
			return nil, f(p.Path)
		}
		return nil, c.caches()[0].Snapshot(p.Path)
	case wire.Drain:
		if f := s.o.Commands.Drain; f != nil {
			return nil, f(ctx)
		}
		return nil, s.Drain(ctx)
	case wire.ChangeTable:
		var r wire.TableRequest
		if err := wire.Decode(m.Body, &r); err != nil {
			return nil, err
		}
		if s.o.Commands.ChangeTable == nil {
			return nil, errors.New("serve: this owner's tables cannot be changed")
		}
		text, err := s.o.Commands.ChangeTable(ctx, r)
		c.audit("tables changed", r.Change, r.Table, err)
		return wire.TableAnswer{Text: text}, err
	}
	return nil, fmt.Errorf("serve: unknown request (%q)", m.Method)
}

// attached says whether the client is attached to a cache.
func (c *connection) attached() bool {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return c.cache != nil
}

// caches returns the cache that the client is attached to, or else all.
func (c *connection) caches() []*cache.Cache {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if c.cache != nil {
		return []*cache.Cache{c.cache}
	}
	return c.server.tables.View().Caches
}

// stats returns the statistics of the first of them.
func (c *connection) stats() (cache.Stats, error) {
	of := c.caches()[0]
	s, err := of.Stats()
	for i := range s.Tables {
		s.Tables[i].Name = c.server.nameIn(of, i, s.Tables[i].Name)
	}
	return s, err
}

// on calls f for a table: of the cache that the client is attached to, or else one of the catalog, by number.
func on[T any](c *connection, table int, f func(of *cache.Cache, table int) (T, error)) (result T, err error) {
	s := c.server
	s.mu.Lock()
	of := c.cache
	s.mu.Unlock()
	if of != nil {
		return f(of, table)
	}
	t, err := s.tables.View().Numbered(table)
	if err != nil {
		return result, fmt.Errorf("serve: %w", err)
	}
	err = s.tables.Do(t, func(t *catalog.Table) error {
		result, err = f(t.Cache, t.Index)
		return err
	})
	return result, err
}

// change is on for what has no result.
func (c *connection) change(table int, f func(of *cache.Cache, table int) error) error {
	_, err := on(c, table, func(of *cache.Cache, table int) (struct{}, error) { return struct{}{}, f(of, table) })
	return err
}

// audit records a change that the client has asked for.
func (c *connection) audit(what, request, table string, err error, more ...slog.Attr) {
	if c.server.o.Audit == nil {
		return
	}
	attrs := append([]slog.Attr{slog.String("request", request), slog.String("process", c.String()), slog.String("table", table)}, more...)
	if err != nil {
		attrs = append(attrs, slog.Any("error", err))
	}
	c.server.o.Audit.LogAttrs(context.Background(), slog.LevelInfo, what, attrs...)
}

// Status returns the statistics of the tables, and the clients.
func (s *Server) Status() (*Status, error) {
	stats, err := s.tables.Stats()
	if err != nil {
		return nil, err
	}
	status := &Status{Attached: s.Clients(), Process: os.Getpid(), Stats: *stats}
	status.Clients = len(status.Attached)
	if s.o.Commands.Errors != nil {
		maps.Copy(status.Errors, s.o.Commands.Errors())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	status.Draining = s.mu.draining
	return status, nil
}

// Clients describes the attached processes, the oldest first.
func (s *Server) Clients() []Client {
	all, counted := []Client{}, map[uint64]sharing.Description{}
	for _, owner := range s.owners() {
		for _, d := range owner.Describe() {
			counted[d.Number] = d
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.mu.all {
		if c.client != nil {
			d := counted[c.number]
			all = append(all, Client{c.name, c.process.PID, c.since, d.Gathers, d.Lookups, d.Hits, c.scratch, d.HoldsFor.Seconds()})
		}
	}
	slices.SortFunc(all, func(a, b Client) int { return a.Since.Compare(b.Since) })
	return all
}

// kinds are the sentinels of package cache that cross the socket.
var kinds = map[string]error{
	"closed": cache.ErrClosed, "options": cache.ErrOptions, "policy": cache.ErrPolicy, "budget": cache.ErrBudget, "table": cache.ErrTable,
	"rows": cache.ErrRows, "output": cache.ErrOutput, "device": cache.ErrDevice, "corrupt": cache.ErrCorrupt, "held": cache.ErrHeld,
	"canceled": context.Canceled, "deadline": context.DeadlineExceeded,
}

// errorOf returns an error as it crosses the socket.
func errorOf(err error) *wire.Error {
	e := &wire.Error{Text: err.Error()}
	var partial interface {
		error
		Updated() int
		Unwrap() error
	}
	if errors.As(err, &partial) {
		done := partial.Updated()
		e.Text, e.Done = partial.Unwrap().Error(), &done
	}
	for kind, sentinel := range kinds {
		if errors.Is(err, sentinel) {
			e.Kind = kind
		}
	}
	return e
}
