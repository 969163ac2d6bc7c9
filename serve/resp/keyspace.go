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
	if begin < 0 {
		begin = max(0, begin+n)
	}
	if end < 0 {
		end += n
	}
	end = min(end+1, n)
	c.gather.part = c.server.partBytes()
	c.gather.read([]entry{e}, func(row []byte, readErr error) {
		if err = readErr; err == nil && begin < end {
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

func globOf(pattern []byte) glob {
	g := glob{text: strings.ReplaceAll(string(pattern), "/", "\x00")} // package path keeps * from matching slashes
	i := strings.IndexAny(g.text, `*?[\`)
	if g.exact = i < 0; g.exact {
		i = len(g.text)
	}
	g.prefix = g.text[:i]
	return g
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
	// scanTable is where the table lies in a cursor, above the row.
	scanTable = 44
)

// scan is SCAN. A cursor is the next table and row, so rows that are appended meanwhile are found, and nothing is kept between calls.
func (c *conn) scan(args [][]byte) error {
	cursor, ok := number(args[0])
	if !ok {
		return failure("ERR invalid cursor")
	}
	pattern, count, strings_ := globOf([]byte("*")), int64(10), true
	for rest := args[1:]; len(rest) > 0; rest = rest[2:] {
		if len(rest) < 2 {
			return errSyntax
		}
		switch strings.ToUpper(cut(rest[0])) {
		case "MATCH":
			pattern = globOf(rest[1])
		case "COUNT":
			if count, ok = number(rest[1]); !ok {
				return errInteger
			}
			if count == 0 {
				return errSyntax
			}
		case "TYPE":
			strings_ = strings.EqualFold(cut(rest[1]), "string")
		default:
			return errSyntax
		}
	}
	var found []string
	table, row, left := int(cursor>>scanTable), cursor&(1<<scanTable-1), min(count, maxScan)
	for ; table < len(c.gather.names) && left > 0 && strings_; table, row = table+1, 0 {
		if !c.gather.rights[table].read || !pattern.mayBe(c.gather.names[table]) {
			continue
		}
		end := c.gather.cache.Rows(table)
		for ; row < end && left > 0; row, left = row+1, left-1 {
			if key := c.gather.names[table] + ":" + strconv.FormatInt(row, 10); pattern.matches(key) {
				found = append(found, key)
			}
		}
		if row < end {
			break
		}
	}
	next := int64(0)
	if table < len(c.gather.names) && strings_ {
		next = int64(table)<<scanTable | row
	}
	c.array(2)
	c.text(strconv.FormatInt(next, 10))
	c.array(len(found))
	for _, key := range found {
		c.text(key)
	}
	return nil
}

// keys is KEYS.
func (c *conn) keys(args [][]byte) error {
	pattern := globOf(args[0])
	var found []string
	if e, err := c.gather.key(args[0]); pattern.exact && err == nil && e.row >= 0 {
		if key := c.gather.names[e.table] + ":" + strconv.FormatInt(e.row, 10); key == string(args[0]) {
			found = append(found, key)
		}
	} else if !pattern.exact {
		looks := int64(0)
		for t, name := range c.gather.names {
			if c.gather.rights[t].read && pattern.mayBe(name) {
				looks += min(c.gather.cache.Rows(t), math.MaxInt64/2-looks)
			}
		}
		if looks > maxKeys {
			return fmt.Errorf("ERR KEYS would look at %d keys, at most %d: use SCAN, or a pattern that names a smaller table", looks, maxKeys)
		}
		for t, name := range c.gather.names {
			if !c.gather.rights[t].read || !pattern.mayBe(name) {
				continue
			}
			for row := range c.gather.cache.Rows(t) {
				if key := name + ":" + strconv.FormatInt(row, 10); pattern.matches(key) {
					found = append(found, key)
				}
			}
		}
	}
	c.array(len(found))
	for _, key := range found {
		if c.text(key); len(c.out) >= flushBytes {
			c.flush()
		}
	}
	return nil
}
