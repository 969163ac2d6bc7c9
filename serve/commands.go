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

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/sharing"
	"github.com/tensorcache/tensorcache/internal/statjson"
	"github.com/tensorcache/tensorcache/internal/wire"
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
	case wire.Update, wire.Invalidate, wire.Refresh, wire.SetBudget, wire.Retarget, wire.Merge, wire.Snapshot:
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
		return s.cache.Stats()
	case wire.Explain:
		return statjson.Explain(s.cache, rows.Table, rows.Rows)
	case wire.Explanations:
		return s.cache.Explain(rows.Table, rows.Rows)
	case wire.Missed:
		if s.owner == nil {
			return nil, sharing.ErrNotShared
		}
		return s.owner.Misses(rows.Table, rows.Rows)
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
		return s.cache.Cached(rows.Table, rows.Rows, nil)
	case wire.Update:
		return nil, s.cache.Update(ctx, rows.Table, rows.Rows, m.Payload)
	case wire.Invalidate:
		return nil, s.cache.Invalidate(rows.Table, rows.Rows)
	case wire.Absent:
		if s.owner == nil {
			return nil, sharing.ErrNotShared
		}
		return s.owner.ReadAbsent(ctx, rows.Table, rows.Rows)
	case wire.Prefetch:
		return nil, s.cache.Prefetch(rows.Table, rows.Rows)
	case wire.Refresh:
		return nil, s.o.Commands.Refresh(ctx)
	case wire.SetBudget:
		var b wire.BudgetRequest
		if err := wire.Decode(m.Body, &b); err != nil {
			return nil, err
		}
		return nil, s.o.Commands.SetBudget(ctx, b.Bytes)
	case wire.Retarget:
		var r wire.RetargetRequest
		if err := wire.Decode(m.Body, &r); err != nil {
			return nil, err
		}
		return nil, s.cache.Retarget(ctx, r.Table, r.Target)
	case wire.Merge:
		var r wire.MergeRequest
		if err := wire.Decode(m.Body, &r); err != nil {
			return nil, err
		}
		return nil, s.cache.MergeUpdates(ctx, r.Table)
	case wire.Snapshot:
		var p wire.SnapshotRequest
		if err := wire.Decode(m.Body, &p); err != nil {
			return nil, err
		}
		return nil, s.o.Commands.Snapshot(p.Path)
	case wire.Drain:
		return nil, s.o.Commands.Drain(ctx)
	}
	return nil, fmt.Errorf("serve: unknown request (%q)", m.Method)
}

// Status returns the cache's statistics and its clients.
func (s *Server) Status() (*Status, error) {
	stats, err := statjson.Of(s.cache)
	if err != nil {
		return nil, err
	}
	status := &Status{Attached: s.clients(), Process: os.Getpid(), Stats: *stats}
	status.Clients = len(status.Attached)
	if s.o.Commands.Errors != nil {
		maps.Copy(status.Errors, s.o.Commands.Errors())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	status.Draining = s.mu.draining
	return status, nil
}

// clients describes the attached processes.
func (s *Server) clients() []Client {
	all, counted := []Client{}, map[uint64]sharing.Description{}
	if s.owner != nil {
		for _, d := range s.owner.Describe() {
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
