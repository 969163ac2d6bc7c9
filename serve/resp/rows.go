package resp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/tensorcache/tensorcache/cache"
)

const (
	// partBytes is how many bytes of rows one Gather of a reply reads: a reply is written in parts of about this size, whatever its length. With
	// many clients it is less, at least leastPart.
	partBytes = 1 << 20
	leastPart = 64 << 10
	// flushBytes is how many bytes of replies are kept while further commands of a pipeline are read.
	flushBytes = 64 << 10
	// maxBulk is the longest bulk string: what Redis allows, and what its clients expect.
	maxBulk = 512 << 20
)

// gatherer reads rows of several tables for one connection. It is not safe for concurrent use.
type gatherer struct {
	*tables
	rights rights
	ctx    context.Context // of the server
	part   int             // the bytes that one read has
	rows   [][]int64       // of each table, in the part under way
	used   []int           // tables of the part
	at     []int           // where in buf the next row of each table is
	errs   []error         // of each table
	buf    []byte
}

// use takes tables, and a user's rights to them.
func (g *gatherer) use(t *tables, u *user) {
	if n := len(t.names); t != g.tables {
		g.tables, g.rows, g.at, g.errs = t, make([][]int64, n), make([]int, n), make([]error, n)
	}
	g.rights = t.rights(u)
}

// read calls row for each of the entries, in order, with the row's bytes, nil if there is no such row, or an error. It reads as many entries as
// g.part holds, at least one, and returns the number.
func (g *gatherer) read(entries []entry, row func([]byte, error)) int {
	n, bytes := 0, 0
	for ; n < len(entries) && bytes < g.part; n++ {
		e := entries[n]
		if e.row < 0 {
			continue
		}
		if len(g.rows[e.table]) == 0 {
			g.used = append(g.used, e.table)
		}
		g.rows[e.table] = append(g.rows[e.table], e.row)
		bytes += g.rowBytes[e.table]
	}
	if cap(g.buf) < bytes {
		g.buf = make([]byte, bytes)
	}
	begin := 0
	for _, t := range g.used {
		end := begin + len(g.rows[t])*g.rowBytes[t]
		g.errs[t] = g.cache.Gather(g.ctx, cache.Request{Table: t, Rows: g.rows[t], Out: g.buf[begin:end]})
		g.at[t], begin = begin, end
	}
	for _, e := range entries[:n] {
		if e.row < 0 {
			row(nil, nil)
			continue
		}
		at := g.at[e.table]
		g.at[e.table] += g.rowBytes[e.table]
		row(g.buf[at:g.at[e.table]], g.errs[e.table])
	}
	for _, t := range g.used {
		g.rows[t] = g.rows[t][:0]
	}
	g.used = g.used[:0]
	return n
}

// rows replies with each of the entries.
func (c *conn) rows(entries []entry) {
	c.gather.part = c.server.partBytes()
	for len(entries) > 0 && c.failed == nil {
		n := c.direct(entries)
		if n == 0 {
			n = c.gather.read(entries, func(row []byte, err error) {
				switch {
				case err != nil:
					c.fail("ERR " + err.Error())
				case row == nil:
					c.null()
				default:
					c.bulk(row)
				}
			})
		}
		entries = entries[n:]
		if len(c.out) >= flushBytes {
			c.flush()
		}
	}
}

// direct replies with as many entries as read would, if they are all rows of one table: these are gathered to where the replies are, without a copy in
// between. Otherwise it does nothing and returns 0.
func (c *conn) direct(entries []entry) int {
	g, table := c.gather, entries[0].table
	rowBytes := g.rowBytes[table]
	n := min(len(entries), max(1, (g.part+rowBytes-1)/rowBytes))
	rows := g.rows[table][:0]
	for _, e := range entries[:n] {
		if e.row < 0 || e.table != table {
			return 0
		}
		rows = append(rows, e.row)
	}
	g.rows[table] = rows[:0]
	begin := len(c.out)
	c.head('$', int64(rowBytes))
	head := len(c.out) - begin
	each := head + rowBytes + 2
	c.grow(n*each - head)
	out := c.out[begin:]
	if err := g.cache.Gather(g.ctx, cache.Request{Table: table, Rows: rows, Out: out[head : len(out)-2], Stride: int64(each)}); err != nil {
		c.out = c.out[:begin]
		for range n {
			c.fail("ERR " + err.Error())
		}
		return n
	}
	for at := 0; at < len(out); at += each {
		copy(out[at:], out[:head])
		out[at+each-2], out[at+each-1] = '\r', '\n'
	}
	return n
}

// settle replies to the GETs that are waiting.
func (c *conn) settle() {
	if len(c.waiting) > 0 {
		begun := time.Now()
		c.rows(c.waiting)
		c.tookGets(begun, c.waiting)
		c.waiting = c.waiting[:0]
	}
}

// get has a GET wait for those that the client has sent behind it: they become one Gather.
func (c *conn) get(args [][]byte) error {
	e, err := c.gather.key(args[0])
	if err != nil {
		return err
	}
	if c.waiting = append(c.waiting, e); len(c.waiting) >= 4096 {
		c.settle()
	}
	return nil
}

func (c *conn) mget(args [][]byte) error {
	c.entries = c.entries[:0]
	for _, key := range args {
		e, err := c.gather.keyAmong(key)
		if err != nil {
			return err
		}
		c.entries = append(c.entries, e)
	}
	c.array(len(c.entries))
	c.rows(c.entries)
	return nil
}

// gatherRows is TC.GATHER: the rows go straight to where replies are.
func (c *conn) gatherRows(args [][]byte) error {
	table, rows, err := c.gather.rowsOf(args)
	if err != nil {
		return err
	}
	rowBytes := c.gather.rowBytes[table]
	if len(rows) > maxBulk/rowBytes {
		return fmt.Errorf("ERR rows (%d of %d bytes) must be at most %d: a bulk string has at most 512 MiB", len(rows), rowBytes, maxBulk/rowBytes)
	}
	for i, row := range rows {
		if limit := c.gather.cache.Rows(table); row >= limit {
			return fmt.Errorf("ERR row (%d) at position %d must be 0 to %d, the last row of table %s", row, i, limit-1, c.gather.names[table])
		}
	}
	begun, partRows := len(c.out), max(1, c.server.partBytes()/rowBytes)
	c.head('$', int64(len(rows)*rowBytes))
	for first := true; len(rows) > 0 && c.failed == nil; first = false {
		part := rows[:min(len(rows), partRows)]
		rows = rows[len(part):]
		at := len(c.out)
		c.grow(len(part) * rowBytes)
		if err := c.gather.cache.Gather(c.gather.ctx, cache.Request{Table: table, Rows: part, Out: c.out[at:]}); err != nil {
			if first {
				c.out = c.out[:begun]
				return fmt.Errorf("ERR %w", err)
			}
			c.failed = fmt.Errorf("%w: %w", errIncomplete, err)
			return nil
		}
		if len(c.out) >= flushBytes {
			c.flush()
		}
	}
	c.out = append(c.out, '\r', '\n')
	return nil
}

// set is TC.SET.
func (c *conn) set(args [][]byte) error {
	if len(args)%2 == 0 {
		return fmt.Errorf("ERR wrong number of arguments for 'tc.set' command: a table, then rows and values in turn")
	}
	table, err := c.gather.find(args[0], writeRows)
	if err != nil {
		return err
	}
	var rows []int64
	var values []byte
	for i := 1; i < len(args); i += 2 {
		row, ok := number(args[i])
		if !ok {
			return fmt.Errorf("ERR row (%q) must be decimal digits", cut(args[i]))
		}
		if value := args[i+1]; len(value) != c.gather.rowBytes[table] {
			return fmt.Errorf("ERR value of row %d (%d bytes) must be %d bytes, a row of table %s", row, len(value), c.gather.rowBytes[table], c.gather.names[table])
		}
		rows, values = append(rows, row), append(values, args[i+1]...)
	}
	if err := c.update(table, rows, values); err != nil {
		return fmt.Errorf("ERR %w", err)
	}
	c.ok()
	return nil
}

// update changes rows, and says so to the audit log and to clients that keep rows.
func (c *conn) update(table int, rows []int64, values []byte) error {
	s := c.server
	if !c.writes {
		s.writing.RLock()
		defer s.writing.RUnlock()
	}
	err := c.gather.cache.Update(c.gather.ctx, table, rows, values)
	changed := len(rows)
	if partial, ok := errors.AsType[interface {
		error
		Updated() int
	}](err); ok {
		changed = partial.Updated()
	} else if err != nil {
		changed = 0
	}
	if changed > 0 {
		s.counters.changed.Add(int64(changed))
		s.invalidation.tell()
	}
	attrs := []slog.Attr{slog.String("user", c.user.name()), c.from(), slog.String("table", c.gather.names[table]), slog.Int("rows", changed), slog.Int64("first", slices.Min(rows)),
		slog.Int64("last", slices.Max(rows))}
	if err != nil {
		attrs = append(attrs, slog.Any("error", err))
	}
	s.o.Audit.LogAttrs(c.gather.ctx, slog.LevelInfo, "resp: rows changed", attrs...)
	return err
}
