// Package catalog is the list of the tables of a service: which caches hold them, by name. Tables come, go and change while they are read.
//
// The list is published by one pointer, as a [View] that does not change. A [Table] is one generation of a table's contents. When another generation is
// published under its name, or none, it is retired: calls of [Catalog.Do] that have begun end, and later ones go to what is listed then. So once
// [Catalog.Publish] has returned, nobody reads what it has replaced.
//
// A Catalog is safe for concurrent use.
package catalog

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/statjson"
)

// Table is one generation of a table. Its fields do not change.
type Table struct {
	Name string
	// Number is another name of the table. The first tables have 0, 1 and so on; one that is added has the next number, which no other gets later.
	Number int
	Cache  *cache.Cache
	// Index is the table's number in Cache.
	Index    int
	RowBytes int

	reads   sync.RWMutex // held for reading by calls of Do
	retired bool
}

// Rows returns the number of rows.
func (t *Table) Rows() int64 { return t.Cache.Rows(t.Index) }

// View is what is listed at a time.
type View struct {
	// Tables are in the order of their numbers.
	Tables []*Table
	// Caches hold the tables, the oldest first. One that has replaced another one has its place.
	Caches []*cache.Cache
	byName map[string]*Table
}

// Catalog lists tables.
type Catalog struct {
	view atomic.Pointer[View]
	mu   struct {
		sync.Mutex
		next int // number of the next table
	}
}

// New returns a catalog of the tables of some caches.
func New(caches ...*cache.Cache) (*Catalog, error) {
	c := new(Catalog)
	c.view.Store(&View{})
	_, err := c.Publish(caches, nil)
	return c, err
}

// View returns what is listed now.
func (c *Catalog) View() *View { return c.view.Load() }

// Publish lists the tables of further caches, in place of those of the same names, and no longer those in drop. It returns when nobody reads a table that
// is no longer listed. unused are the caches none of whose tables is listed any more, for the caller to close. After an error nothing has changed.
func (c *Catalog) Publish(add []*cache.Cache, drop []string) (unused []*cache.Cache, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.View()
	next := &View{Tables: slices.Clone(now.Tables), Caches: slices.Clone(now.Caches), byName: map[string]*Table{}}
	var old []*Table
	for _, name := range drop {
		i := slices.IndexFunc(next.Tables, func(t *Table) bool { return t.Name == name })
		if i < 0 {
			return nil, now.unknown(name)
		}
		old = append(old, next.Tables[i])
		next.Tables = slices.Delete(next.Tables, i, i+1)
	}
	number := c.mu.next
	for _, one := range add {
		s, err := one.Stats()
		if err != nil {
			return nil, err
		}
		place := len(next.Caches)
		for i := range s.Tables {
			t := &Table{Name: s.Tables[i].Name, Number: number, Cache: one, Index: i, RowBytes: s.Tables[i].RowBytes}
			at := slices.IndexFunc(next.Tables, func(o *Table) bool { return o.Name == t.Name && o.Cache != one })
			if at < 0 {
				next.Tables = append(next.Tables, t)
				number++
				continue
			}
			before := next.Tables[at]
			t.Number, next.Tables[at] = before.Number, t
			old = append(old, before)
			if p := slices.Index(next.Caches, before.Cache); len(s.Tables) == 1 && p >= 0 && !next.holds(before.Cache) {
				place = p
			}
		}
		next.Caches = slices.Insert(next.Caches, place, one)
	}
	next.Caches = slices.DeleteFunc(next.Caches, func(of *cache.Cache) bool {
		if next.holds(of) {
			return false
		}
		unused = append(unused, of)
		return true
	})
	for _, t := range next.Tables {
		next.byName[t.Name] = t
	}
	c.mu.next = number
	c.view.Store(next)
	for _, t := range old {
		t.reads.Lock()
		t.retired = true
		t.reads.Unlock()
	}
	return unused, nil
}

// holds says whether a cache has a table that is listed.
func (v *View) holds(of *cache.Cache) bool {
	return slices.ContainsFunc(v.Tables, func(t *Table) bool { return t.Cache == of })
}

// Do calls f with the table that is listed under the name of t, usually t. No generation is retired while f reads it. It returns f's error, or one that wraps
// cache.ErrTable if the name is not listed any more. f must not call Publish.
func (c *Catalog) Do(t *Table, f func(*Table) error) error {
	for {
		done, err := t.do(f)
		if done {
			return err
		}
		v := c.View()
		next := v.byName[t.Name]
		if next == nil {
			return v.unknown(t.Name)
		}
		t = next
	}
}

func (t *Table) do(f func(*Table) error) (done bool, err error) {
	t.reads.RLock()
	defer t.reads.RUnlock()
	if t.retired {
		return false, nil
	}
	return true, f(t)
}

// Find returns the table of a name, or else of a number.
func (v *View) Find(name string) (*Table, error) {
	if t, err := v.Named(name); err == nil {
		return t, nil
	}
	if n, err := strconv.Atoi(name); err == nil && name == strconv.Itoa(n) {
		if t, err := v.Numbered(n); err == nil {
			return t, nil
		}
	}
	return nil, v.unknown(name)
}

// Named returns the table of a name.
func (v *View) Named(name string) (*Table, error) {
	if t := v.byName[name]; t != nil {
		return t, nil
	}
	return nil, v.unknown(name)
}

// Numbered returns the table of a number.
func (v *View) Numbered(n int) (*Table, error) {
	for _, t := range v.Tables {
		if t.Number == n {
			return t, nil
		}
	}
	return nil, v.unknown(strconv.Itoa(n))
}

// Names returns the names of the tables.
func (v *View) Names() (all []string) {
	for _, t := range v.Tables {
		all = append(all, t.Name)
	}
	return all
}

// mostNames is the most names that an error lists.
const mostNames = 20

func (v *View) unknown(name string) error {
	if most := 64; len(name) > most { // clients of any kind send it
		name = name[:most] + "…"
	}
	return unknownError(fmt.Sprintf("table (%q) must be one of %d: %s", name, len(v.Tables), listed(v.Names())))
}

// unknownError is the error for a name that is not listed. The text lists those that are.
type unknownError string

func (e unknownError) Error() string { return string(e) }
func (e unknownError) Unwrap() error { return cache.ErrTable }

func listed(names []string) string {
	if len(names) == 0 {
		return "there is none"
	}
	more := ""
	if n := len(names); n > mostNames {
		names, more = names[:mostNames], fmt.Sprintf(" and %d more", n-mostNames)
	}
	return strings.Join(names, ", ") + more
}

// Stats returns the statistics of the tables that are listed and of their caches, as those of one cache.
func (c *Catalog) Stats() (*statjson.Stats, error) {
	for {
		v := c.View()
		s, err := v.stats()
		if err == nil || !errors.Is(err, cache.ErrClosed) || v == c.View() {
			return s, err
		}
	}
}

func (v *View) stats() (*statjson.Stats, error) {
	var all []*statjson.Stats
	for _, of := range v.Caches {
		s, err := statjson.Of(of)
		if err != nil {
			return nil, err
		}
		var listed []statjson.Table
		for _, t := range v.Tables {
			if t.Cache == of {
				s.Tables[t.Index].Number = t.Number
				listed = append(listed, s.Tables[t.Index])
			}
		}
		s.Tables = listed
		all = append(all, s)
	}
	return statjson.Merge(all), nil
}
