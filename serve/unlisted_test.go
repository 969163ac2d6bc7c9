//go:build linux

package serve

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/serve/catalog"
)

// TestServer_AttachDuringReplace: a process that has found a cache before another one takes its place attaches to the new one, or is waited for; and what was forgotten stays so.
func TestServer_AttachDuringReplace(t *testing.T) {
	open := func() *cache.Cache {
		table, err := cache.FromBytes("x", dtype.Int32, make([]byte, 100*64), 64)
		if err != nil {
			t.Fatal(err)
		}
		c, err := cache.New(cache.Options{Tables: []cache.Table{table}, Budget: 16 << 10, Codec: cache.CodecNone, Shared: true, Devices: cache.DeviceOptions{Backend: cache.BackendHost}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	old, next := open(), open()
	tables, err := catalog.New(old)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Listen(old, Options{Address: "unix:" + filepath.Join(t.TempDir(), "s"), Tables: tables})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	early, late := &connection{server: s}, &connection{server: s}
	connected := func(c *connection) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mu.all[c] = struct{}{}
	}
	gone := func(c *connection) {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.mu.all, c)
	}
	connected(early)
	defer gone(early)
	of, _, err := s.place(early, "x")
	if err != nil || of != old {
		t.Fatal(err)
	}
	found, err := s.cacheOf("x")
	if err != nil {
		t.Fatal(err)
	}
	owner, err := s.ownerOf(found)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tables.Publish([]*cache.Cache{next}, nil); err != nil {
		t.Fatal(err)
	}
	some, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := s.Left(some, old); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a process that is about to attach is not waited for: %v", err)
	}
	gone(early)
	s.Detach(old)
	if err := s.Left(context.Background(), old); err != nil {
		t.Fatal(err)
	}
	connected(late)
	defer gone(late)
	if err := s.reserve(late, found, owner); !errors.Is(err, errUnlisted) {
		t.Errorf("a place on the cache of before: %v", err)
	}
	s.Forget(old)
	if _, err := s.ownerOf(old); !errors.Is(err, errUnlisted) || slices.Contains(s.owners(), owner) {
		t.Errorf("the cache of before has an owner again: %v", err)
	}
	if of, _, err := s.place(late, "x"); err != nil || of != next {
		t.Errorf("a place on another cache than the new one: %v", err)
	}
}
