package cache_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/pages"
)

// faultyStore is a store in memory whose table can be rewritten. It fails in the ways that are set.
type faultyStore struct {
	pages.Rewritable
	reopen, lose error // of Reopen; of Commit, once it has been done
	delay        error // of Commit, which is done when the next Rewriter has begun
	revert       bool  // Commit has no effect, as after the loss of a master
	late         func() error
	unsettled    atomic.Int64 // how often Settle still fails
}

func (s *faultyStore) Settle(context.Context) error {
	if s.unsettled.Add(-1) >= 0 {
		return fmt.Errorf("a slot moves: %w", pages.ErrUnsettled)
	}
	return nil
}

func (s *faultyStore) Reopen(ctx context.Context) (pages.Store, error) {
	if s.reopen != nil {
		return nil, s.reopen
	}
	return s.Rewritable.Reopen(ctx)
}

func (s *faultyStore) Rewriter(ctx context.Context) (pages.Writer, error) {
	w, err := s.Rewritable.Rewriter(ctx)
	if s.late != nil {
		err = errors.Join(err, s.late())
		s.late = nil
	}
	return faultyWriter{w, s}, err
}

type faultyWriter struct {
	pages.Writer
	s *faultyStore
}

func (w faultyWriter) Commit(ctx context.Context, m *pages.Manifest, parts *pages.Parts) error {
	if w.s.revert {
		return nil
	}
	if w.s.delay != nil {
		w.s.late = func() error { return w.Writer.Commit(context.Background(), m, parts) }
		return w.s.delay
	}
	return errors.Join(w.Writer.Commit(ctx, m, parts), w.s.lose)
}

// overStore returns a cache of a table that lies in a store, with a log in a folder.
func overStore(t *testing.T, s pages.Store, log string) *cache.Cache {
	t.Helper()
	p, err := pages.OpenStores(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	table, err := cache.FromPages(p)
	if err != nil {
		t.Fatal(err)
	}
	return newCache(t, cache.Options{
		Tables: []cache.Table{table.WithLog(log, false)}, Budget: 100 << 10, Devices: cache.DeviceOptions{Backend: cache.BackendHost}, Host: cache.HostOptions{Memory: 200 << 10},
	})
}

// logBytes returns how long the files of a log are.
func logBytes(t *testing.T, folder string) (bytes int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err == nil { // else it was removed just now
			bytes += info.Size()
		}
	}
	return bytes
}

// TestMergeUpdates_StoreFails: a merge into a store that fails, also after the new generation has become the current one, leaves all updates in the log. The next
// merge goes on from what there is.
func TestMergeUpdates_StoreFails(t *testing.T) {
	const rows, rowBytes = 3000, 120
	fault := errors.New("the answer was lost")
	for _, one := range []struct {
		name string
		set  func(s *faultyStore)
	}{
		{"after the commit", func(s *faultyStore) { s.lose = fault }},
		{"at opening again", func(s *faultyStore) { s.reopen = fault }},
	} {
		t.Run(one.name, func(t *testing.T) {
			m, log := newModel(rows, rows, rowBytes), t.TempDir()
			store := &faultyStore{Rewritable: packed(t, m.source(), rowBytes, "ibp4", nil).Stores()[0].(*pages.MemoryStore)}
			c := overStore(t, store, log)
			gather := func(rows []int64, out []byte) error { return c.Gather(ctx, cache.Request{Rows: rows, Out: out}) }
			if err := m.update(c, 0, allOf(rows)[:500]); err != nil {
				t.Fatal(err)
			}
			before := logBytes(t, log)
			one.set(store)
			if err := c.MergeUpdates(ctx, 0); !errors.Is(err, fault) || !strings.Contains(err.Error(), "cache: merging updates of table features: ") {
				t.Fatalf("error %v", err)
			}
			if n := logBytes(t, log); n < before {
				t.Errorf("the log has %d bytes after the failed merge, had %d", n, before)
			}
			if err := m.gather(gather, allOf(rows)); err != nil {
				t.Fatal(err)
			}
			store.lose, store.reopen = nil, nil
			if err := errors.Join(m.update(c, 0, allOf(rows)[400:600]), c.MergeUpdates(ctx, 0), m.gather(gather, allOf(rows))); err != nil {
				t.Fatal(err)
			}
			if n := logBytes(t, log); n > 1000 {
				t.Errorf("the log has %d bytes after the merge", n)
			}
			// The pages alone have all updates.
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			last, err := store.Reopen(ctx)
			if err != nil {
				t.Fatal(err)
			}
			c = overStore(t, last, t.TempDir())
			if err := m.gather(gather, allOf(rows)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestMergeUpdates_StoreCommitsLate: a merge that had no answer is committed while the next one is under way, which therefore fails. The one after that goes on from the
// late generation, which is this process's own.
func TestMergeUpdates_StoreCommitsLate(t *testing.T) {
	const rows, rowBytes = 3000, 120
	m, log := newModel(rows, rows, rowBytes), t.TempDir()
	store := &faultyStore{Rewritable: packed(t, m.source(), rowBytes, "ibp4", nil).Stores()[0].(*pages.MemoryStore)}
	c := overStore(t, store, log)
	gather := func(rows []int64, out []byte) error { return c.Gather(ctx, cache.Request{Rows: rows, Out: out}) }
	if err := m.update(c, 0, allOf(rows)[:500]); err != nil {
		t.Fatal(err)
	}
	store.delay = errors.New("no answer")
	if err := c.MergeUpdates(ctx, 0); !errors.Is(err, store.delay) {
		t.Fatalf("error %v", err)
	}
	store.delay = nil
	if err := m.update(c, 0, allOf(rows)[400:600]); err != nil {
		t.Fatal(err)
	}
	if err := c.MergeUpdates(ctx, 0); err == nil || !strings.Contains(err.Error(), "another generation was committed meanwhile") {
		t.Fatalf("error %v", err)
	}
	if now, err := store.Current(ctx); err != nil || now != 2 {
		t.Fatalf("generation %d, %v", now, err)
	}
	if err := errors.Join(m.gather(gather, allOf(rows)), c.MergeUpdates(ctx, 0), m.gather(gather, allOf(rows))); err != nil {
		t.Fatal(err)
	}
	if n := logBytes(t, log); n > 1000 {
		t.Errorf("the log has %d bytes after the merge", n)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	last, err := store.Reopen(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c = overStore(t, last, t.TempDir())
	if err := m.gather(gather, allOf(rows)); err != nil {
		t.Fatal(err)
	}
}

// TestMergeUpdates_StoreReverts: updates stay in the log if the store has the generation before again after a commit.
func TestMergeUpdates_StoreReverts(t *testing.T) {
	const rows, rowBytes = 3000, 120
	m := newModel(rows, rows, rowBytes)
	store := &faultyStore{Rewritable: packed(t, m.source(), rowBytes, "ibp4", nil).Stores()[0].(*pages.MemoryStore), revert: true}
	c := overStore(t, store, t.TempDir())
	if err := m.update(c, 0, allOf(rows)[:500]); err != nil {
		t.Fatal(err)
	}
	if err := c.MergeUpdates(ctx, 0); err == nil || !strings.Contains(err.Error(), "generation 2 was committed, and the current one is still 1") {
		t.Errorf("error %v", err)
	}
	gather := func(rows []int64, out []byte) error { return c.Gather(ctx, cache.Request{Rows: rows, Out: out}) }
	store.revert = false
	if err := errors.Join(m.gather(gather, allOf(rows)), c.MergeUpdates(ctx, 0), m.gather(gather, allOf(rows))); err != nil {
		t.Fatal(err)
	}
}

// TestMerge_StoreUnsettled: a merge in the background that a store cannot take yet is tried again at short intervals, however often that was in vain, and statistics count it.
func TestMerge_StoreUnsettled(t *testing.T) {
	const rows, rowBytes, failures = 3000, 120, 20 // with twice the time after each, the last wait would be nine minutes
	m := newModel(rows, rows, rowBytes)
	cache.MergeUpdatesFrom(t, 1, time.Millisecond)
	store := &faultyStore{Rewritable: packed(t, m.source(), rowBytes, "ibp4", nil).Stores()[0].(*pages.MemoryStore)}
	store.unsettled.Store(failures)
	c := overStore(t, store, t.TempDir())
	if err := m.update(c, 0, allOf(rows)[:2000]); err != nil {
		t.Fatal(err)
	}
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		if now, err := store.Current(ctx); err != nil || now > 1 {
			if err != nil {
				t.Error(err)
			}
			break
		}
		if time.Since(begun) > time.Minute {
			t.Fatalf("not merged; %d failures to come", store.unsettled.Load())
		}
	}
	if s := stats(t, c).Tables[0].Tiers; s.FailedMerges != failures {
		t.Errorf("%d failed merges", s.FailedMerges)
	}
	if err := m.gather(func(rows []int64, out []byte) error { return c.Gather(ctx, cache.Request{Rows: rows, Out: out}) }, allOf(rows)); err != nil {
		t.Fatal(err)
	}
}

// TestUpdates_NotMerged: the log of a directory with another store behind it is not merged. It keeps the newest versions only, and a warning and statistics say how many.
func TestUpdates_NotMerged(t *testing.T) {
	const rows, rowBytes, few = 3000, 120, 500
	m := newModel(rows, rows, rowBytes)
	dir := packedFiles(t, m.source(), rowBytes)
	cache.MergeUpdatesFrom(t, 10_000, time.Millisecond)
	files, err := pages.OpenFiles(dir, pages.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := pages.OpenStores(ctx, files, packed(t, m.source(), rowBytes, "ibp4", nil).Stores()[0])
	if err != nil {
		t.Fatal(err)
	}
	table, err := cache.FromPages(p)
	if err != nil {
		t.Fatal(err)
	}
	var logged lockedBuffer
	log := filepath.Join(dir, "delta")
	c := newCache(t, cache.Options{
		Tables: []cache.Table{table.WithLog(log, false)}, Budget: 100 << 10, Devices: cache.DeviceOptions{Backend: cache.BackendHost}, Host: cache.HostOptions{Memory: 200 << 10},
		Telemetry: cache.TelemetryOptions{Logger: slog.New(slog.NewTextHandler(&logged, nil))},
	})
	warnings := func() int { return strings.Count(logged.String(), "updates are not merged into the pages") }
	if err := m.update(c, 0, allOf(rows)[:10]); err != nil {
		t.Fatal(err)
	}
	if n := warnings(); n != 0 {
		t.Errorf("%d warnings of a short log", n)
	}
	for range 50 {
		if err := m.update(c, 0, allOf(rows)[:few]); err != nil {
			t.Fatal(err)
		}
	}
	if n := warnings(); n != 1 || !strings.Contains(logged.String(), log) {
		t.Errorf("%d warnings: %s", n, logged.String())
	}
	if err := c.MergeUpdates(ctx, 0); err != nil { // compacts
		t.Fatal(err)
	}
	if s := stats(t, c).Tables[0].Tiers; s.HeldRows != few || s.HeldBytes < few*8 || s.HeldBytes > 2*few*(rowBytes+16) || s.HeldBytes != logBytes(t, log) {
		t.Errorf("%d rows in %d bytes, the files have %d", s.HeldRows, s.HeldBytes, logBytes(t, log))
	}
	if err := m.update(c, 0, allOf(rows)); err != nil {
		t.Fatal(err)
	}
	if n := warnings(); n < 2 {
		t.Errorf("%d warnings of a log of twice the bytes", n)
	}
	if g := generation(t, dir); g != 1 {
		t.Errorf("generation %d", g)
	}
}

// TestMergeUpdates_StoreReplaced: a generation that another process has committed is not replaced. Updates stay in the log, which keeps the newest versions only.
func TestMergeUpdates_StoreReplaced(t *testing.T) {
	race.SkipSequential(t)
	const rows, rowBytes, few = 3000, 120, 20
	cache.MergeUpdatesFrom(t, 50_000, time.Millisecond)
	m, log := newModel(rows, rows, rowBytes), t.TempDir()
	place := pages.NewMemory()
	pack := func() {
		t.Helper()
		source := func() (pages.Source, error) { return &rowsSource{data: m.source(), rowBytes: rowBytes}, nil }
		o := pages.PackOptions{Name: "features", DType: dtype.Uint8, Codec: "ibp4", PageBytes: 64 << 10, Stage: "none", Workers: 1}
		if _, err := pages.Pack(ctx, source, place.Writer(), o); err != nil {
			t.Fatal(err)
		}
	}
	pack()
	store, err := place.Open()
	if err != nil {
		t.Fatal(err)
	}
	c := overStore(t, store, log)
	if err := m.update(c, 0, []int64{100}); err != nil { // it has the log
		t.Fatal(err)
	}
	pack()
	for range 300 {
		if err := m.update(c, 0, allOf(rows)[100:100+few]); err != nil {
			t.Fatal(err)
		}
	}
	for begun := time.Now(); logBytes(t, log) > 100_000; time.Sleep(time.Millisecond) {
		if time.Since(begun) > time.Minute {
			t.Fatalf("the log has %d bytes for %d rows", logBytes(t, log), few)
		}
	}
	// Too many rows for compaction: merging is tried, in vain, and compaction goes on meanwhile.
	for range 20 {
		if err := m.update(c, 0, allOf(rows)); err != nil {
			t.Fatal(err)
		}
	}
	most := int64(3 * rows * (rowBytes + 16))
	for begun := time.Now(); logBytes(t, log) > most; time.Sleep(time.Millisecond) {
		if time.Since(begun) > time.Minute {
			t.Fatalf("the log has %d bytes for %d rows", logBytes(t, log), rows)
		}
	}
	if err := c.MergeUpdates(ctx, 0); err == nil || !strings.Contains(err.Error(), "another generation was committed meanwhile") {
		t.Errorf("error %v", err)
	}
	if err := m.gather(func(rows []int64, out []byte) error { return c.Gather(ctx, cache.Request{Rows: rows, Out: out}) }, allOf(rows)); err != nil {
		t.Fatal(err)
	}
	if now, err := place.Open(); err != nil || now.Manifest().Generation != 2 {
		t.Errorf("generation %d, %v", now.Manifest().Generation, err)
	}
}
