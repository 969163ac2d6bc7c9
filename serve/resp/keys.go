package resp

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

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

// tables finds tables by name or number.
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
func (t *tables) find(name []byte) (int, error) {
	if i, ok := t.byName[string(name)]; ok {
		return i, nil
	}
	_, err := t.cache.view.Find(string(name))
	return 0, fmt.Errorf("ERR %w", err)
}

// entry is a row that a client asked for. row is -1 if the table has none of that number.
type entry struct {
	table int
	row   int64
}

// key returns the row that a key names.
func (t *tables) key(key []byte) (entry, error) {
	colon := bytes.LastIndexByte(key, ':')
	if colon < 0 {
		return entry{}, fmt.Errorf("ERR key (%q) must be table:row", cut(key))
	}
	table, err := t.find(key[:colon])
	if err != nil {
		return entry{}, err
	}
	row, ok := number(key[colon+1:])
	if !ok {
		return entry{}, fmt.Errorf("ERR key (%q) must be table:row, the row in decimal digits", cut(key))
	}
	if row >= t.cache.Rows(table) {
		row = -1
	}
	return entry{table, row}, nil
}

// rows returns the table and the row numbers of a command's arguments "table row row …".
func (t *tables) rows(args [][]byte) (table int, rows []int64, err error) {
	if table, err = t.find(args[0]); err != nil {
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
