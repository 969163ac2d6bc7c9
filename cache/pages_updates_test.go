package cache_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/pages"
)

// packedFiles returns a directory of page files with rows.
func packedFiles(t testing.TB, data []byte, rowBytes int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "features.tc")
	w, err := pages.CreateFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	source := func() (pages.Source, error) { return &rowsSource{data: data, rowBytes: rowBytes}, nil }
	o := pages.PackOptions{Name: "features", DType: dtype.Uint8, Codec: "ibp4", PageBytes: 64 << 10, Stage: "none", Workers: 1}
	if _, err := pages.Pack(ctx, source, w, o); err != nil {
		t.Fatal(err)
	}
	return dir
}

// openDirectory returns a cache of a directory of pages.
func openDirectory(t testing.TB, dir string, durable bool) *cache.Cache {
	t.Helper()
	table, err := cache.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if durable {
		table = table.WithLog(filepath.Join(dir, "delta"), true)
	}
	return newCache(t, cache.Options{
		Tables: []cache.Table{table}, Budget: 100 << 10, Devices: cache.DeviceOptions{Backend: pagesBackend}, Host: cache.HostOptions{Memory: 200 << 10},
		Refresh: cache.RefreshOptions{Accesses: 1},
	})
}

// TestOpen_UpdatesOfPagesSurvive: updates of a table of page files are there when the directory is opened again, before and after they are merged into the
// pages, and while they are.
func TestOpen_UpdatesOfPagesSurvive(t *testing.T) {
	const rows, rowBytes = 6000, 120
	m := newModel(rows, rows, rowBytes)
	dir := packedFiles(t, m.source(), rowBytes)
	r := rand.New(rand.NewPCG(4, 4))
	for round := range 4 {
		c := openDirectory(t, dir, round%2 == 1)
		gather := func(rows []int64, out []byte) error { return c.Gather(ctx, cache.Request{Rows: rows, Out: out}) }
		if err := m.gather(gather, allOf(rows)); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for range 10 {
			from := r.Int64N(rows - 50)
			if err := m.update(c, 0, allOf(rows)[from:from+50]); err != nil {
				t.Fatal(err)
			}
		}
		if round >= 2 {
			var stop atomic.Bool
			var beside sync.WaitGroup
			for g := range 2 {
				beside.Go(func() {
					r := rand.New(rand.NewPCG(uint64(g), 6))
					for !stop.Load() {
						if err := m.update(c, 0, []int64{r.Int64N(rows)}); err != nil {
							t.Error(err)
						}
						if err := m.gather(gather, randomRows(r, 50, rows)); err != nil {
							t.Error(err)
						}
					}
				})
			}
			for range 3 {
				if err := c.MergeUpdates(ctx, 0); err != nil {
					t.Error(err)
				}
			}
			stop.Store(true)
			beside.Wait()
		}
		if err := m.gather(gather, allOf(rows)); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		s := stats(t, c).Tables[0].Tiers
		if s.UpdateBytes == 0 || s.UpdateBytesWritten < s.UpdateBytes || (round < 2) != (s.UpdateBytesWritten < 10*s.UpdateBytes) {
			t.Errorf("round %d: %+v", round, s)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	manifest, err := pages.ReadManifest(dir)
	if err != nil || manifest.Generation < 4 {
		t.Errorf("generation %d: %v", manifest.Generation, err)
	}
}

// TestOpen_UpdatesAtOnce: of updates of one row at the same time, the one that is served last is the one that the log keeps.
func TestOpen_UpdatesAtOnce(t *testing.T) {
	const rows, rowBytes, writers = 6000, 120, 4
	dir := packedFiles(t, newModel(rows, rows, rowBytes).source(), rowBytes)
	c := openDirectory(t, dir, true)
	updated := allOf(200)
	var all sync.WaitGroup
	for g := range writers {
		all.Go(func() {
			row := bytes.Repeat([]byte{byte(g + 1)}, rowBytes)
			for _, r := range updated {
				if err := c.Update(ctx, 0, []int64{r}, row); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	read := func(c *cache.Cache) []byte {
		out := make([]byte, len(updated)*rowBytes)
		if err := c.Gather(ctx, cache.Request{Rows: updated, Out: out}); err != nil {
			t.Fatal(err)
		}
		return out
	}
	before := read(c)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, read(openDirectory(t, dir, true))) {
		t.Error("another version of a row is served when the table is opened again")
	}
}

// TestOpen_LogOfTwoCaches: a directory whose log of updates another cache has is refused, and can be opened when that is closed.
func TestOpen_LogOfTwoCaches(t *testing.T) {
	m := newModel(1000, 1000, 120)
	dir := packedFiles(t, m.source(), 120)
	c := openDirectory(t, dir, false)
	if err := m.update(c, 0, []int64{7}); err != nil {
		t.Fatal(err)
	}
	table, err := cache.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = cache.New(cache.Options{Tables: []cache.Table{table}, Budget: 100 << 10, Devices: cache.DeviceOptions{Backend: pagesBackend}})
	if err == nil || !strings.Contains(err.Error(), "another process has the log") {
		t.Fatalf("error %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	again := openDirectory(t, dir, false)
	if err := m.gather(func(rows []int64, out []byte) error { return again.Gather(ctx, cache.Request{Rows: rows, Out: out}) }, []int64{6, 7, 8}); err != nil {
		t.Fatal(err)
	}
	if e, err := again.Explain(0, []int64{7}); err != nil || e[0].Tier != "log" && e[0].Tier != "host" && e[0].Tier != "slab" {
		t.Errorf("%+v, %v", e, err)
	}
}

// TestOpen_EmptyLog: caches that update nothing share a directory whose log was merged, and write nothing there; the first update takes the log.
func TestOpen_EmptyLog(t *testing.T) {
	m := newModel(1000, 1000, 120)
	dir := packedFiles(t, m.source(), 120)
	first := openDirectory(t, dir, false)
	if err := errors.Join(m.update(first, 0, []int64{7}), first.MergeUpdates(ctx, 0), first.Close()); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadDir(filepath.Join(dir, "delta"))
	if err != nil || len(before) == 0 {
		t.Fatalf("log %v, %v", before, err)
	}
	a, b := openDirectory(t, dir, false), openDirectory(t, dir, false)
	for _, c := range []*cache.Cache{a, b} {
		if err := m.gather(func(rows []int64, out []byte) error { return c.Gather(ctx, cache.Request{Rows: rows, Out: out}) }, allOf(1000)); err != nil {
			t.Fatal(err)
		}
	}
	if after, err := os.ReadDir(filepath.Join(dir, "delta")); err != nil || len(after) != len(before) {
		t.Errorf("log %v, before %v, %v", after, before, err)
	}
	if err := m.update(a, 0, []int64{8}); err != nil {
		t.Fatal(err)
	}
	if err := b.Update(ctx, 0, []int64{9}, make([]byte, 120)); err == nil || !strings.Contains(err.Error(), "another process has the log") {
		t.Errorf("error %v", err)
	}
	// What it has in memory may be older than the rows of the log.
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Update(ctx, 0, []int64{9}, make([]byte, 120)); err == nil || !strings.Contains(err.Error(), "another process has updated 1 rows since the table was opened: open it again") {
		t.Errorf("error %v", err)
	}
	again := openDirectory(t, dir, false)
	if err := m.gather(func(rows []int64, out []byte) error { return again.Gather(ctx, cache.Request{Rows: rows, Out: out}) }, allOf(1000)); err != nil {
		t.Error(err)
	}
}

// TestNew_MergedMeanwhile: a table whose log another process has merged, and left empty, between Open and New is not served as it was.
func TestNew_MergedMeanwhile(t *testing.T) {
	const rows, rowBytes = 1000, 120
	m := newModel(rows, rows, rowBytes)
	dir := packedFiles(t, m.source(), rowBytes)
	place, log := pages.NewMemory(), t.TempDir()
	source := func() (pages.Source, error) { return &rowsSource{data: m.source(), rowBytes: rowBytes}, nil }
	if _, err := pages.Pack(ctx, source, place.Writer(), pages.PackOptions{Name: "features", DType: dtype.Uint8, Codec: "none", PageBytes: 64 << 10, Stage: "none", Workers: 1}); err != nil {
		t.Fatal(err)
	}
	for name, open := range map[string]func() (cache.Table, error){
		"files": func() (cache.Table, error) { return cache.Open(dir) },
		"store": func() (table cache.Table, err error) {
			store, err := place.Open()
			if err != nil {
				return table, err
			}
			of, err := pages.OpenStores(ctx, store)
			if err != nil {
				return table, err
			}
			table, err = cache.FromPages(of)
			return table.WithLog(log, false), err
		},
	} {
		t.Run(name, func(t *testing.T) {
			table, err := open()
			if err != nil {
				t.Fatal(err)
			}
			other, err := open()
			if err != nil {
				t.Fatal(err)
			}
			o := cache.Options{Tables: []cache.Table{other}, Budget: 100 << 10, Devices: cache.DeviceOptions{Backend: cache.BackendHost}, Host: cache.HostOptions{Memory: 200 << 10}}
			c := newCache(t, o)
			if err := errors.Join(m.update(c, 0, []int64{7}), c.MergeUpdates(ctx, 0), c.Close()); err != nil {
				t.Fatal(err)
			}
			o.Tables = []cache.Table{table}
			if _, err := cache.New(o); err == nil || !strings.Contains(err.Error(), "another process has written generation 2 of ") {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestMergeUpdates_Canceled: a merge that ends early leaves the updates in the log.
func TestMergeUpdates_Canceled(t *testing.T) {
	const rows = 3000
	m := newModel(rows, rows, 120)
	c := openDirectory(t, packedFiles(t, m.source(), 120), false)
	if err := m.update(c, 0, allOf(rows)[:500]); err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if err := c.MergeUpdates(canceled, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	gather := func(rows []int64, out []byte) error { return c.Gather(ctx, cache.Request{Rows: rows, Out: out}) }
	if err := m.gather(gather, allOf(rows)); err != nil {
		t.Fatal(err)
	}
	if err := c.MergeUpdates(ctx, 0); err != nil {
		t.Fatal(err)
	}
	if err := m.gather(gather, allOf(rows)); err != nil {
		t.Fatal(err)
	}
	if err := c.MergeUpdates(ctx, 1); !errors.Is(err, cache.ErrTable) {
		t.Errorf("table 1: %v", err)
	}
}

// generation returns the number of a directory's generation.
func generation(t *testing.T, dir string) uint64 {
	t.Helper()
	m, err := pages.ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	return m.Generation
}

// TestMerge_ByTheLengthOfTheLog: updates of the same few rows, again and again, are merged in the background, because the log's files grow.
func TestMerge_ByTheLengthOfTheLog(t *testing.T) {
	const rows, rowBytes, few = 3000, 120, 20
	m := newModel(rows, rows, rowBytes)
	dir := packedFiles(t, m.source(), rowBytes)
	manifest, err := pages.ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	cache.MergeUpdatesFrom(t, manifest.StoredBytes/4, time.Millisecond)
	c := openDirectory(t, dir, false)
	for i := 0; generation(t, dir) < 3; i++ {
		if i > 60_000 {
			t.Fatalf("no merge after %d updates: %+v", i*few, stats(t, c).Tables[0].Tiers)
		}
		if err := m.update(c, 0, allOf(rows)[100:100+few]); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.gather(func(rows []int64, out []byte) error { return c.Gather(ctx, cache.Request{Rows: rows, Out: out}) }, allOf(rows)); err != nil {
		t.Fatal(err)
	}
}

// TestMerge_TriedAgain: a merge in the background that fails is logged, and succeeds later without further updates.
func TestMerge_TriedAgain(t *testing.T) {
	const rows, rowBytes = 3000, 120
	m := newModel(rows, rows, rowBytes)
	dir := packedFiles(t, m.source(), rowBytes)
	cache.MergeUpdatesFrom(t, 1, time.Millisecond)
	other, err := pages.CreateFiles(dir) // holds the directory's lock
	if err != nil {
		t.Fatal(err)
	}
	table, err := cache.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	var logged lockedBuffer
	c := newCache(t, cache.Options{
		Tables: []cache.Table{table}, Budget: 100 << 10, Devices: cache.DeviceOptions{Backend: cache.BackendHost}, Host: cache.HostOptions{Memory: 200 << 10},
		Telemetry: cache.TelemetryOptions{Logger: slog.New(slog.NewTextHandler(&logged, nil))},
	})
	for from := int64(0); from < rows; from += 500 {
		if err := m.update(c, 0, allOf(rows)[from:from+500]); err != nil {
			t.Fatal(err)
		}
	}
	const says = "another process is writing to it"
	for i := 0; strings.Count(logged.String(), says) < 2; i++ {
		if i > 60_000 {
			t.Fatalf("the log has no second failure: %s", logged.String())
		}
		time.Sleep(time.Millisecond)
	}
	if err := other.Abort(); err != nil {
		t.Fatal(err)
	}
	for i := 0; generation(t, dir) < 2; i++ {
		if i > 60_000 {
			t.Fatalf("no merge after the failed ones: %s", logged.String())
		}
		time.Sleep(time.Millisecond)
	}
	if err := m.gather(func(rows []int64, out []byte) error { return c.Gather(ctx, cache.Request{Rows: rows, Out: out}) }, allOf(rows)); err != nil {
		t.Fatal(err)
	}
}

// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// TestOpen_PagesGone: a directory that is none of pages is an error that says so.
func TestOpen_PagesGone(t *testing.T) {
	dir := t.TempDir()
	if _, err := cache.Open(dir); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("an empty directory: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "manifest"), []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := cache.Open(dir); err == nil || !strings.Contains(err.Error(), "manifest") {
		t.Errorf("no manifest: %v", err)
	}
}

// TestExplain_SinceWhen: a row that an Update or Invalidate moves to the log or the pages lies there since then, whether no memory had it or a slab.
func TestExplain_SinceWhen(t *testing.T) {
	race.SkipSequential(t)
	const rows, rowBytes = 10_000, 120
	m := newModel(rows, rows, rowBytes)
	c := openDirectory(t, packedFiles(t, m.source(), rowBytes), false)
	all, err := c.Explain(0, allOf(rows))
	if err != nil {
		t.Fatal(err)
	}
	of := map[string][]int64{}
	for _, e := range all {
		of[e.Tier] = append(of[e.Tier], e.Row)
	}
	if len(of["slab"]) == 0 || len(of["pages"]) < 2 {
		t.Fatalf("rows lie in %v", of)
	}
	moved := []int64{of["pages"][0], of["slab"][0], of["pages"][1]}
	time.Sleep(2100 * time.Millisecond) // times have a second's resolution
	begun := time.Now()
	if err := errors.Join(m.update(c, 0, moved[:1]), c.Invalidate(0, moved[1:2])); err != nil {
		t.Fatal(err)
	}
	for {
		e, err := c.Explain(0, moved)
		if err != nil {
			t.Fatal(err)
		}
		if e[0].Tier == "overlay" {
			if time.Since(begun) > time.Minute {
				t.Fatalf("still in the overlay: %+v", e)
			}
			time.Sleep(time.Millisecond)
			continue
		}
		for i, want := range []string{"log", "pages", "pages"} {
			if recent := e[i].Since.After(begun.Add(-time.Second)); e[i].Tier != want || recent != (i < 2) {
				t.Errorf("row %d: %s since %v, moved at %v", e[i].Row, e[i].Tier, e[i].Since, begun)
			}
		}
		return
	}
}
