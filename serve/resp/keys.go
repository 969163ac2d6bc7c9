package resp

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tensorcache/tensorcache/serve/catalog"
)

// CheckNames returns an error unless clients can tell tables of these names apart: none is empty, made of digits only, or given twice.
func CheckNames(names []string) error {
	var errs []error
	seen := map[string]bool{}
	for i, name := range names {
		_, digits := number([]byte(name))
		switch {
		case name == "":
			errs = append(errs, fmt.Errorf("resp: name of table %d must not be empty", i))
		case digits || len(bytes.Trim([]byte(name), "0123456789")) == 0:
			errs = append(errs, fmt.Errorf("resp: name of table %d (%q) must not be a number: a key would name another table by it", i, name))
		case seen[name]:
			errs = append(errs, fmt.Errorf("resp: name of table %d (%q) must not be given twice", i, name))
		}
		seen[name] = true
	}
	return errors.Join(errs...)
}

// tables finds tables by name or number. It does not change once it is made.
type tables struct {
	cache    *served
	names    []string
	byName   map[string]int
	rowBytes []int
}

func newTables(c *catalog.Catalog) *tables {
	v := c.View()
	t := &tables{cache: &served{c, v}, names: v.Names(), byName: map[string]int{}}
	for i, one := range v.Tables {
		t.rowBytes = append(t.rowBytes, one.RowBytes)
		t.byName[one.Name] = i
		t.byName[strconv.Itoa(one.Number)] = i // no name is a number
	}
	return t
}

// find returns the table of a name or number.
func (t *tables) find(name []byte) (int, bool) {
	if i, ok := t.byName[string(name)]; ok {
		return i, true
	}
	return 0, false
}

// rights are a user's, to the tables by number.
type rights []struct{ read, write bool }

func (t *tables) rights(u *user) rights {
	all := make(rights, len(t.names))
	for i, name := range t.names {
		if u != nil {
			all[i].read, all[i].write = u.may(readRows, name), u.may(writeRows, name)
		}
	}
	return all
}

// errNoTable is the error of a name or number that no table has. It lists what the user may read.
func (g *gatherer) errNoTable(name []byte) error {
	const most = 20 // names
	var known []string
	for i, table := range g.names {
		if g.rights[i].read || g.rights[i].write {
			known = append(known, table)
		}
	}
	n := len(known)
	if n > most {
		known = append(known[:most], "…")
	}
	return fmt.Errorf("ERR table (%q) must be one of %d: %s", cut(name), n, strings.Join(known, ", "))
}

// find returns the table of a name or number, if the connection's user has the right to it.
func (g *gatherer) find(name []byte, to right) (int, error) {
	i, ok := g.tables.find(name)
	switch {
	case !ok:
		return 0, g.errNoTable(name)
	case to == writeRows && !g.rights[i].write, to == readRows && !g.rights[i].read:
		return 0, errNoRight{to, g.names[i]}
	}
	return i, nil
}

// errNoRight is the error of a user without a right to a table. The connection says who that is.
type errNoRight struct {
	to    right
	table string
}

func (e errNoRight) Error() string { return "no right to table " + e.table }

// entry is a row that a client asked for. row is -1 if the table has none of that number.
type entry struct {
	table int
	row   int64
}

// maxKey is the longest key, in bytes.
const maxKey = 1 << 10

// parse returns the table and the row number of a key.
func (g *gatherer) parse(key []byte) (table int, row int64, err error) {
	if len(key) > maxKey {
		return 0, 0, fmt.Errorf("ERR key (%q, %d bytes) must be at most %d bytes", cut(key), len(key), maxKey)
	}
	colon := bytes.LastIndexByte(key, ':')
	if colon < 0 {
		return 0, 0, fmt.Errorf("ERR key (%q) must be table:row", cut(key))
	}
	if table, err = g.find(key[:colon], readRows); err != nil {
		return 0, 0, err
	}
	row, ok := number(key[colon+1:])
	if !ok {
		return 0, 0, fmt.Errorf("ERR key (%q) must be table:row, the row in decimal digits", cut(key))
	}
	return table, row, nil
}

// key returns the row that a key names.
func (g *gatherer) key(key []byte) (entry, error) {
	table, row, err := g.parse(key)
	if err != nil {
		return entry{}, err
	}
	return g.entry(table, row), nil
}

// entry returns a row as commands read it.
func (g *gatherer) entry(table int, row int64) entry {
	if row >= g.cache.Rows(table) {
		row = -1
	}
	return entry{table, row}
}

// keyAmong is key for a command of several keys: one that is malformed, or of no table, is that of a row that does not exist. Only a missing right is an
// error, as in Redis.
func (g *gatherer) keyAmong(key []byte) (entry, error) {
	e, err := g.key(key)
	if _, ok := err.(errNoRight); err != nil && !ok {
		return entry{row: -1}, nil
	}
	return e, err
}

// rowsOf returns the table and the row numbers of a command's arguments "table row row …".
func (g *gatherer) rowsOf(args [][]byte) (table int, rows []int64, err error) {
	if table, err = g.find(args[0], readRows); err != nil {
		return 0, nil, err
	}
	rows = make([]int64, len(args)-1)
	for i, a := range args[1:] {
		var ok bool
		if rows[i], ok = number(a); !ok {
			return 0, nil, fmt.Errorf("ERR row (%q) must be decimal digits", cut(a))
		}
	}
	return table, rows, nil
}

// cut shortens what a client has sent, for errors.
func cut(b []byte) string {
	const most = 64
	if len(b) > most {
		return string(b[:most]) + "…"
	}
	return string(b)
}
