package resp

import (
	"fmt"
	"math"
	"path"
	"strconv"
	"strings"
)

func (c *conn) exists(args [][]byte) error {
	n := int64(0)
	for _, key := range args {
		e, err := c.gather.keyAmong(key)
		if err != nil {
			return err
		}
		if e.row >= 0 {
			n++
		}
	}
	c.integer(n)
	return nil
}

func (c *conn) dbsize([][]byte) error {
	n := int64(0)
	for t := range c.gather.names {
		if c.gather.rights[t].read {
			n += c.gather.cache.Rows(t)
		}
	}
	c.integer(n)
	return nil
}

func (c *conn) typeOf(args [][]byte) error {
	e, err := c.gather.key(args[0])
	if err != nil {
		return err
	}
	if e.row < 0 {
		c.simple("none")
	} else {
		c.simple("string")
	}
	return nil
}

// ttl is TTL and PTTL.
func (c *conn) ttl(args [][]byte) error {
	e, err := c.gather.key(args[0])
	if err != nil {
		return err
	}
	c.integer(int64(-1 - (e.row>>63)&1))
	return nil
}

func (c *conn) strlen(args [][]byte) error {
	e, err := c.gather.key(args[0])
	if err != nil {
		return err
	}
	if e.row < 0 {
		c.integer(0)
	} else {
		c.integer(int64(c.gather.rowBytes[e.table]))
	}
	return nil
}

// ofRow replies if there is a row, else with null: OBJECT.
func (c *conn) ofRow(args [][]byte, answer func()) error {
	e, err := c.gather.key(args[0])
	if err != nil {
		return err
	}
	if e.row < 0 {
		c.null()
	} else {
		answer()
	}
	return nil
}

func (c *conn) getRange(args [][]byte) error {
	e, err := c.gather.key(args[0])
	if err != nil {
		return err
	}
	begin, err1 := strconv.ParseInt(cut(args[1]), 10, 64)
	end, err2 := strconv.ParseInt(cut(args[2]), 10, 64)
	if err1 != nil || err2 != nil {
		return errInteger
	}
	if e.row < 0 {
		c.text("")
		return nil
	}
	n := int64(c.gather.rowBytes[e.table])
	none := begin < 0 && end < begin
	if begin < 0 {
		begin = max(0, begin+n)
	}
	if end < 0 {
		end = max(0, end+n)
	}
	end = min(end, n-1) + 1
	c.gather.part = c.server.partBytes()
	c.gather.read([]entry{e}, func(row []byte, readErr error) {
		if err = readErr; err == nil && begin < end && !none {
			c.bulk(row[begin:end])
		} else if err == nil {
			c.text("")
		}
	})
	return tagged(err)
}

// wrongType is the reply of commands for hashes.
func (c *conn) wrongType(args [][]byte) error {
	if _, err := c.gather.key(args[0]); err != nil {
		return err
	}
	return failure("WRONGTYPE Operation against a key holding the wrong kind of value: rows are strings. GETRANGE key start end reads elements of a row")
}

// tagged is an error of the cache, as Redis begins errors.
func tagged(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := err.(errNoRight); ok || strings.HasPrefix(err.Error(), "ERR ") {
		return err
	}
	return fmt.Errorf("ERR %w", err)
}

// glob is a pattern of Redis: *, ?, [a-z], [^a], and \ before a character that stands for itself.
type glob struct {
	text   string
	prefix string // what it begins with before the first special character
	exact  bool   // it has none
}

// globOf returns a pattern. One is as long as a key at most: matching takes time for each of its characters.
func globOf(pattern []byte) (glob, error) {
	if len(pattern) > maxKey {
		return glob{}, fmt.Errorf("ERR pattern (%q, %d bytes) must be at most %d bytes", cut(pattern), len(pattern), maxKey)
	}
	g := glob{text: strings.ReplaceAll(string(pattern), "/", "\x00")} // package path keeps * from matching slashes
	i := strings.IndexAny(g.text, `*?[\`)
	if g.exact = i < 0; g.exact {
		i = len(g.text)
	}
	g.prefix = g.text[:i]
	return g, nil
}

func (g glob) matches(text string) bool {
	if g.text == "*" {
		return true
	}
	ok, err := path.Match(g.text, strings.ReplaceAll(text, "/", "\x00"))
	return ok && err == nil
}

// mayBe reports whether keys of a table can match.
func (g glob) mayBe(table string) bool {
	table = strings.ReplaceAll(table, "/", "\x00") + ":"
	n := min(len(table), len(g.prefix))
	return table[:n] == g.prefix[:n] && (!g.exact || len(g.prefix) > n)
}

const (
	// maxScan is the most keys that one SCAN looks at.
	maxScan = 100_000
	// maxKeys is the most keys that KEYS looks at: other commands of the connection wait for it, and it holds what it lists.
	maxKeys = 1 << 20
	// scanTable is where the table's number lies in a cursor, above the row.
	scanTable = 44
)

// scan is SCAN. A cursor is the next table and row, so rows that are appended meanwhile are found, and nothing is kept between calls. Tables are in the order of their
// numbers, which they keep while others are dropped.
func (c *conn) scan(args [][]byte) error {
	cursor, ok := number(args[0])
	if !ok {
		return failure("ERR invalid cursor")
	}
	pattern, count, wanted := glob{text: "*"}, int64(10), true
	for rest := args[1:]; len(rest) > 0; rest = rest[2:] {
		if len(rest) < 2 {
			return errSyntax
		}
		switch strings.ToUpper(cut(rest[0])) {
		case "MATCH":
			var err error
			if pattern, err = globOf(rest[1]); err != nil {
				return err
			}
		case "COUNT":
			if count, ok = number(rest[1]); !ok {
				return errInteger
			}
			if count == 0 {
				return errSyntax
			}
		case "TYPE":
			wanted = strings.EqualFold(cut(rest[1]), "string")
		default:
			return errSyntax
		}
	}
	var found []string
	tables := c.gather.cache.view.Tables
	table, row, left := 0, cursor&(1<<scanTable-1), min(count, maxScan)
	for ; table < len(tables) && int64(tables[table].Number) < cursor>>scanTable; table++ {
	}
	if table < len(tables) && int64(tables[table].Number) != cursor>>scanTable {
		row = 0 // the table has been dropped
	}
	for ; table < len(tables) && left > 0 && wanted; table, row = table+1, 0 {
		if !c.gather.rights[table].read || !pattern.mayBe(c.gather.names[table]) {
			continue
		}
		end := c.gather.cache.Rows(table)
		for ; row < end && left > 0; row, left = row+1, left-1 {
			if left%4096 == 0 && c.stopped() {
				return nil
			}
			if key := c.keyOf(table, row); pattern.matches(key) {
				found = append(found, key)
			}
		}
		if row < end {
			break
		}
	}
	next := int64(0)
	if table < len(tables) && wanted {
		next = int64(tables[table].Number)<<scanTable | row
	}
	c.array(2)
	c.text(strconv.FormatInt(next, 10))
	c.array(len(found))
	for _, key := range found {
		c.text(key)
	}
	return nil
}

// stopped reports whether a long command must end, because the connection or the server does.
func (c *conn) stopped() bool {
	if c.killed.Load() {
		c.failed = errKilled
	} else if err := c.server.life.Err(); err != nil {
		c.failed = err
	}
	return c.failed != nil
}

// keys is KEYS. It marks the rows that match before it names them, because the reply begins with their number: a list of names would be long.
func (c *conn) keys(args [][]byte) error {
	pattern, err := globOf(args[0])
	if err != nil {
		return err
	}
	if pattern.exact {
		if e, err := c.gather.key(args[0]); err == nil && e.row >= 0 && c.keyOf(e.table, e.row) == string(args[0]) {
			c.array(1)
			c.bulk(args[0])
		} else {
			c.array(0)
		}
		return nil
	}
	looks, rows := int64(0), make([]int64, len(c.gather.names)) // of each table
	for t, name := range c.gather.names {
		if c.gather.rights[t].read && pattern.mayBe(name) {
			rows[t] = c.gather.cache.Rows(t)
			looks += min(rows[t], math.MaxInt64/2-looks)
		}
	}
	if looks > maxKeys {
		return fmt.Errorf("ERR KEYS would look at %d keys, at most %d: use SCAN, or a pattern that names a smaller table", looks, maxKeys)
	}
	found, n, at := make([]uint64, (looks+63)/64), 0, 0
	for t := range rows {
		for row := range rows[t] {
			if at%4096 == 0 && c.stopped() {
				return nil
			}
			if pattern.matches(c.keyOf(t, row)) {
				found[at/64] |= 1 << (at % 64)
				n++
			}
			at++
		}
	}
	c.array(n)
	at = 0
	for t := range rows {
		for row := range rows[t] {
			if found[at/64]>>(at%64)&1 == 1 {
				if c.text(c.keyOf(t, row)); !c.goesOn() {
					return nil
				}
			}
			at++
		}
	}
	return nil
}

// keyOf returns the key of a row.
func (c *conn) keyOf(table int, row int64) string {
	return c.gather.names[table] + ":" + strconv.FormatInt(row, 10)
}
