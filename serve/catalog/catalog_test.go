package catalog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/dtype"
)

const rowBytes = 32

// open returns a cache of tables of 100 rows, every element of which is the version.
func open(t testing.TB, version uint32, names ...string) *cache.Cache {
	t.Helper()
	var tables []cache.Table
	for _, name := range names {
		data := make([]byte, 100*rowBytes)
		for i := 0; i < len(data); i += 4 {
			binary.LittleEndian.PutUint32(data[i:], version)
		}
		table, err := cache.FromBytes(name, dtype.Int32, data, rowBytes)
		if err != nil {
			t.Fatal(err)
		}
		tables = append(tables, table)
	}
	c, err := cache.New(cache.Options{Tables: tables, Budget: 16 << 10, Codec: cache.CodecNone, Devices: cache.DeviceOptions{Backend: cache.BackendHost}, Host: cache.HostOptions{Workers: 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func (v *View) describe() string {
	var all []string
	for _, t := range v.Tables {
		all = append(all, fmt.Sprintf("%d %s in %d at %d", t.Number, t.Name, slices.Index(v.Caches, t.Cache), t.Index))
	}
	return strings.Join(all, ", ")
}

func TestCatalog_Publish(t *testing.T) {
	t.Parallel()
	shared, x, next := open(t, 1, "a", "b"), open(t, 1, "x"), open(t, 2, "x")
	c, err := New(shared)
	if err != nil {
		t.Fatal(err)
	}
	publish := func(add []*cache.Cache, drop []string, want string, unused ...*cache.Cache) {
		t.Helper()
		got, err := c.Publish(add, drop)
		if err != nil || c.View().describe() != want || !slices.Equal(got, unused) {
			t.Errorf("%v; %s, want %s; %d unused", err, c.View().describe(), want, len(got))
		}
	}
	publish([]*cache.Cache{x}, nil, "0 a in 0 at 0, 1 b in 0 at 1, 2 x in 1 at 0")
	publish([]*cache.Cache{next}, nil, "0 a in 0 at 0, 1 b in 0 at 1, 2 x in 1 at 0", x)
	if c.View().Caches[1] != next {
		t.Error("the next cache has not taken the place of the first")
	}
	publish(nil, []string{"a"}, "1 b in 0 at 1, 2 x in 1 at 0")
	publish([]*cache.Cache{open(t, 3, "y")}, nil, "1 b in 0 at 1, 2 x in 1 at 0, 3 y in 2 at 0")
	publish([]*cache.Cache{open(t, 3, "b")}, nil, "1 b in 0 at 0, 2 x in 1 at 0, 3 y in 2 at 0", shared)
	for name, want := range map[string]string{"x": "x", "2": "x", "3": "y"} {
		if found, err := c.View().Find(name); err != nil || found.Name != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"a", "0", "02", "-1", ""} {
		if _, err := c.View().Find(name); !errors.Is(err, cache.ErrTable) || err.Error() != fmt.Sprintf("table (%q) must be one of 3: b, x, y", name) {
			t.Errorf("%q: %v", name, err)
		}
	}
	closed := open(t, 1, "z")
	closed.Close()
	before := c.View()
	for _, err := range []error{
		func() error { _, err := c.Publish(nil, []string{"b", "a"}); return err }(),
		func() error { _, err := c.Publish([]*cache.Cache{closed}, []string{"b"}); return err }(),
	} {
		if err == nil || c.View() != before {
			t.Errorf("%v; %s", err, c.View().describe())
		}
	}
}

// TestCatalog_Do: once Publish has returned, nobody reads what it has replaced, and no read fails, also of those who have looked the table up before.
func TestCatalog_Do(t *testing.T) {
	t.Parallel()
	c, err := New(open(t, 1, "a", "b"))
	if err != nil {
		t.Fatal(err)
	}
	old, err := c.View().Find("b")
	if err != nil {
		t.Fatal(err)
	}
	var least atomic.Uint32
	var stop atomic.Bool
	var all sync.WaitGroup
	least.Store(1)
	for range 4 {
		all.Go(func() {
			out := make([]byte, 2*rowBytes)
			for !stop.Load() {
				want := least.Load()
				err := c.Do(old, func(t *Table) error {
					return t.Cache.Gather(context.Background(), cache.Request{Table: t.Index, Rows: []int64{7, 99}, Out: out})
				})
				first, second := binary.LittleEndian.Uint32(out), binary.LittleEndian.Uint32(out[rowBytes:])
				if err != nil || first < want || first != second {
					t.Errorf("%v: versions %d and %d after %d was published", err, first, second, want)
					return
				}
			}
		})
	}
	for version := uint32(2); version < 12; version++ {
		unused, err := c.Publish([]*cache.Cache{open(t, version, "b")}, nil)
		if err != nil {
			t.Error(err)
		}
		least.Store(version)
		for _, u := range unused {
			if err := u.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	stop.Store(true)
	all.Wait()
	if _, err := c.Publish(nil, []string{"b"}); err != nil {
		t.Error(err)
	}
	if err := c.Do(old, func(*Table) error { return nil }); !errors.Is(err, cache.ErrTable) || err.Error() != `table ("b") must be one of 1: a` {
		t.Errorf("of a table that is dropped: %v", err)
	}
}

// TestCatalog_Stats: numbers are of the tables that are listed and of their caches, each device once.
func TestCatalog_Stats(t *testing.T) {
	t.Parallel()
	shared, x := open(t, 1, "a", "b"), open(t, 1, "x")
	c, err := New(shared, x)
	if err != nil {
		t.Fatal(err)
	}
	for table, of := range []*cache.Cache{shared, shared, x} {
		rows := make([]int64, 10*(table+1))
		if err := of.Gather(context.Background(), cache.Request{Table: table % 2, Rows: rows, Out: make([]byte, len(rows)*rowBytes)}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := c.Stats()
	if err != nil || s.Lookups != 60 || s.Rows != 300 || s.BudgetBytes != 32<<10 || len(s.Devices) != 1 || s.Devices[0].Lookups != 60 || len(s.Tables) != 3 {
		t.Errorf("%v, %+v", err, s)
	}
	if _, err := c.Publish(nil, []string{"a"}); err != nil {
		t.Fatal(err)
	}
	if s, err = c.Stats(); err != nil || s.Lookups != 50 || len(s.Tables) != 2 || s.Tables[0].Number != 1 || s.Tables[1].Name != "x" {
		t.Errorf("%v, %+v", err, s)
	}
}
