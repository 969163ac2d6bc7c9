package cache_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/pages"
)

// runPagesModel compares tables of page files with the model while rows of all tiers are read, updated, prefetched and moved, logs are merged and compacted, and
// the cache is closed and opened again. One table is a directory whose log is durable; the second one's pages are not merged, so its log is compacted; the third
// one's are a store that is rewritten whole, as a cluster is. An operation is one row that is looked up or updated.
func runPagesModel(t *testing.T, operations int64, rounds int) {
	const rows, rowBytes = 600, 120
	cache.MergeUpdatesFrom(t, 4<<10, time.Millisecond)
	models, dirs := []*model{newModel(rows, rows, rowBytes), newModel(rows, rows, rowBytes), newModel(rows, rows, rowBytes)}, make([]string, 2)
	for i := range dirs {
		dirs[i] = packedFiles(t, models[i].source(), rowBytes)
	}
	store := pages.Rewritable(packed(t, models[2].source(), rowBytes, "ibp4", nil).Stores()[0].(*pages.MemoryStore))
	first := store.Manifest().Generation
	log, storeLog := filepath.Join(t.TempDir(), "log"), filepath.Join(t.TempDir(), "store")
	var sum cache.TierStats
	var done, updated int64
	for round := range rounds {
		merged, err := cache.Open(dirs[0])
		if err != nil {
			t.Fatal(err)
		}
		files, err := pages.Open(dirs[1], pages.FileOptions{})
		if err != nil {
			t.Fatal(err)
		}
		apart, err := cache.FromPages(files)
		if err != nil {
			t.Fatal(err)
		}
		current, err := store.Reopen(ctx)
		if err != nil {
			t.Fatal(err)
		}
		p, err := pages.OpenStores(ctx, current)
		if err != nil {
			t.Fatal(err)
		}
		rewritten, err := cache.FromPages(p)
		if err != nil {
			t.Fatal(err)
		}
		c := newCache(t, cache.Options{
			Tables: []cache.Table{merged.WithLog(filepath.Join(dirs[0], "delta"), true), apart.WithLog(log, false), rewritten.WithLog(storeLog, false)}, Budget: 90_000, Devices: cache.DeviceOptions{Backend: pagesBackend},
			Host: cache.HostOptions{Memory: 90_000, Overlay: 1 << 20, ColdRow: time.Microsecond}, Refresh: cache.RefreshOptions{Interval: 2 * time.Millisecond, MaxChurn: 0.3},
			Admission: cache.AdmissionOptions{Policy: &randomPolicy{}},
		})
		var left, updates atomic.Int64
		left.Store(operations / int64(rounds))
		half := left.Load() / 2
		var once sync.Once
		var beside sync.WaitGroup
		for g := range 6 {
			beside.Go(func() {
				r := rand.New(rand.NewPCG(uint64(g), uint64(round)))
				fail := func(what string, err error) bool {
					if err != nil {
						t.Errorf("round %d: %s: %v", round, what, err)
						left.Store(0)
					}
					return err != nil
				}
				for left.Load() > 0 {
					if left.Load() <= half {
						once.Do(func() { // at least once, however few operations there are
							updates.Add(1)
							fail("Update", models[0].update(c, 0, []int64{5}))
							fail("MergeUpdates", c.MergeUpdates(ctx, 0))
							fail("Update", models[2].update(c, 2, []int64{5}))
							fail("MergeUpdates", c.MergeUpdates(ctx, 2))
							fail("Refresh", c.Refresh(ctx))
						})
					}
					table := r.IntN(3)
					m := models[table]
					switch x := r.IntN(100); {
					case x < 75:
						ids := randomRows(r, 1+r.IntN(200), rows)
						left.Add(-int64(len(ids)))
						if fail("Gather", m.gather(func(rows []int64, out []byte) error {
							return c.Gather(ctx, cache.Request{Table: table, Rows: rows, Out: out})
						}, ids)) {
							return
						}
					case x < 90:
						from, n := r.Int64N(rows-10), 1+r.Int64N(10)
						left.Add(-n)
						updates.Add(n)
						if fail("Update", m.update(c, table, allOf(rows)[from:from+n])) {
							return
						}
					case x < 95:
						if fail("Prefetch", c.Prefetch(table, randomRows(r, r.IntN(60), rows))) {
							return
						}
					case x < 97:
						if fail("Invalidate", c.Invalidate(table, randomRows(r, r.IntN(20), rows))) {
							return
						}
					case x < 99:
						if fail("Refresh", c.Refresh(ctx)) {
							return
						}
					default:
						if fail("MergeUpdates", c.MergeUpdates(ctx, table)) {
							return
						}
					}
				}
			})
		}
		beside.Wait()
		for i, m := range models {
			if err := m.gather(func(rows []int64, out []byte) error {
				return c.Gather(ctx, cache.Request{Table: i, Rows: rows, Out: out})
			}, allOf(rows)); err != nil {
				t.Fatalf("round %d, table %d: %v", round, i, err)
			}
		}
		s := stats(t, c)
		if s.ChangeError != "" || t.Failed() {
			t.Fatalf("round %d: %q", round, s.ChangeError)
		}
		for _, table := range s.Tables {
			n := table.Tiers
			sum.AbsentRows, sum.LogRows, sum.PrefetchedRows = sum.AbsentRows+n.AbsentRows, sum.LogRows+n.LogRows, sum.PrefetchedRows+n.PrefetchedRows
			sum.PromotedRows, sum.DemotedRows, sum.FailedRows = sum.PromotedRows+n.PromotedRows, sum.DemotedRows+n.DemotedRows, sum.FailedRows+n.FailedRows
			done += table.Lookups
		}
		updated += updates.Load()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	last, err := store.Reopen(ctx)
	if err != nil {
		t.Fatal(err)
	}
	merges, rewrites := generation(t, dirs[0])-1, last.Manifest().Generation-first
	t.Logf("%d lookups, %d updated rows, %d merges into files and %d into the store, %+v", done, updated, merges, rewrites, sum)
	if merges < uint64(rounds) || rewrites < uint64(rounds) || generation(t, dirs[1]) != 1 || sum.AbsentRows == 0 || sum.LogRows == 0 || sum.PrefetchedRows == 0 || sum.PromotedRows == 0 || sum.DemotedRows == 0 || sum.FailedRows != 0 {
		t.Errorf("something never happened, or failed: %d and %d merges, %+v", merges, rewrites, sum)
	}
}

// TestPageFiles_EqualVersionedMap: of tables of page files a Gather returns for each row a version that was current during the call, in 250,000 operations or, with -short,
// 50,000.
func TestPageFiles_EqualVersionedMap(t *testing.T) {
	runPagesModel(t, int64(gputest.Few(250_000, 50_000)), gputest.Few(6, 3))
}

// TestGPU_PageFilesEqualVersionedMap is TestPageFiles_EqualVersionedMap on a GPU, with a million operations.
func TestGPU_PageFilesEqualVersionedMap(t *testing.T) {
	onGPU(t)
	runPagesModel(t, int64(gputest.Few(1_000_000, 150_000)), gputest.Few(6, 3))
}

// TestMergeUpdates_ChangedByOther: a cache does not update a directory whose pages another process has written since: its own merge would undo the other's.
func TestMergeUpdates_ChangedByOther(t *testing.T) {
	const rows = 3000
	m := newModel(rows, rows, 120)
	dir := packedFiles(t, m.source(), 120)
	late := openDirectory(t, dir, false) // it has no log yet
	other := openDirectory(t, dir, false)
	if err := errors.Join(m.update(other, 0, []int64{7}), other.MergeUpdates(ctx, 0), other.Close()); err != nil {
		t.Fatal(err)
	}
	err := late.Update(ctx, 0, []int64{8}, make([]byte, 120))
	if want := fmt.Sprintf("another process has written generation 2 of %s since generation 1 was opened: open it again", dir); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v", err)
	}
	if err := late.Close(); err != nil {
		t.Fatal(err)
	}
	again := openDirectory(t, dir, false)
	if err := m.update(again, 0, []int64{8}); err != nil {
		t.Fatal(err)
	}
	if err := m.gather(func(rows []int64, out []byte) error { return again.Gather(ctx, cache.Request{Rows: rows, Out: out}) }, allOf(rows)); err != nil {
		t.Fatal(err)
	}
}

// TestWithLog_Compacts: the log of a table whose pages are not merged keeps the newest versions only, also when the same rows are updated again and again.
func TestWithLog_Compacts(t *testing.T) {
	const rows, rowBytes, few = 3000, 120, 20
	m := newModel(rows, rows, rowBytes)
	dir := packedFiles(t, m.source(), rowBytes)
	cache.MergeUpdatesFrom(t, 50_000, time.Millisecond)
	log := filepath.Join(t.TempDir(), "log")
	open := func() *cache.Cache {
		t.Helper()
		files, err := pages.Open(dir, pages.FileOptions{})
		if err != nil {
			t.Fatal(err)
		}
		table, err := cache.FromPages(files)
		if err != nil {
			t.Fatal(err)
		}
		return newCache(t, cache.Options{
			Tables: []cache.Table{table.WithLog(log, false)}, Budget: 100 << 10, Devices: cache.DeviceOptions{Backend: cache.BackendHost}, Host: cache.HostOptions{Memory: 200 << 10},
		})
	}
	c := open()
	for range 300 {
		if err := m.update(c, 0, allOf(rows)[100:100+few]); err != nil {
			t.Fatal(err)
		}
	}
	length := func() int64 { return logBytes(t, log) }
	for begun := time.Now(); length() > 100_000; time.Sleep(time.Millisecond) {
		if time.Since(begun) > time.Minute {
			t.Fatalf("the log has %d bytes for %d rows", length(), few)
		}
	}
	if err := c.MergeUpdates(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	if n := length(); n > 10_000 {
		t.Errorf("the log has %d bytes for %d rows", n, few)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	c = open()
	if err := m.gather(func(rows []int64, out []byte) error { return c.Gather(ctx, cache.Request{Rows: rows, Out: out}) }, allOf(rows)); err != nil {
		t.Fatal(err)
	}
	if generation(t, dir) != 1 {
		t.Error("the pages were written")
	}
}
