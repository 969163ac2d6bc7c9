package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/internal/directio"
	"github.com/tensorcache/tensorcache/pages"
)

// memoryOf returns a store in memory with these rows.
func memoryOf(t testing.TB, data []byte) *pages.MemoryStore {
	t.Helper()
	place := pages.NewMemory()
	if err := packTo(t.Context(), place.Writer(), "x", data); err != nil {
		t.Fatal(err)
	}
	s, err := place.Open()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// openLocal opens a table that is cached in a folder.
func openLocal(t testing.TB, s pages.Store, folder string, bytes int64) (*Local, *pages.Table) {
	t.Helper()
	l, err := NewLocal(s, folder, bytes, quiet(t))
	if err != nil {
		t.Fatal(err)
	}
	table, err := pages.OpenStores(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { table.Close() })
	return l, table
}

// settled waits until all pages that wait are written.
func settled(l *Local) {
	for len(l.fresh) < localQueue {
		time.Sleep(time.Millisecond)
	}
}

func TestLocal_KeepsPagesForTheNextProcess(t *testing.T) {
	t.Parallel()
	data, folder := rowsOf(2000, 41), t.TempDir()
	l, table := openLocal(t, memoryOf(t, data), folder, 1<<30)
	allRows(t, table, data)
	settled(l)
	if l.counts.hits.Load() != 0 || l.counts.written.Load() != int64(l.Manifest().Pages) {
		t.Errorf("%d hits, %d pages written", l.counts.hits.Load(), l.counts.written.Load())
	}
	allRows(t, table, data)
	if n := l.counts.hits.Load(); n != int64(l.Manifest().Pages) {
		t.Errorf("%d hits", n)
	}
	if _, err := NewLocal(memoryOf(t, data), folder, 1<<30, nil); err == nil || !strings.Contains(err.Error(), "another process has its pages there") {
		t.Errorf("got %v", err)
	}
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	// A process later the store behind is not asked.
	behind := memoryOf(t, data)
	behind.Fault = func(context.Context, uint32) error { return errors.New("asked") }
	_, table = openLocal(t, behind, folder, 1<<30)
	allRows(t, table, data)
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	// Other contents: nothing of the old ones is served.
	other := rowsOf(2000, 42)
	l, table = openLocal(t, memoryOf(t, other), folder, 1<<30)
	allRows(t, table, other)
	if n := l.counts.hits.Load(); n != 0 {
		t.Errorf("%d hits on pages of another table", n)
	}
}

func TestLocal_StaysWithinItsBytes(t *testing.T) {
	t.Parallel()
	data, folder := rowsOf(4000, 43), t.TempDir()
	const bytes = 10 * (64<<10 + localEntry)
	l, table := openLocal(t, memoryOf(t, data), folder, bytes)
	for i := range 30 {
		if failed, err := batch(t.Context(), table, data, 30, uint64(i)); failed > 0 || err != nil {
			t.Fatal(failed, err)
		}
	}
	settled(l)
	allRows(t, table, data)
	settled(l)
	total := int64(0)
	err := filepath.Walk(folder, func(_ string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			total += info.Size()
		}
		return err
	})
	if err != nil || total > bytes+localHeader || total < bytes/2 {
		t.Errorf("%d bytes in the folder, at most %d: %v", total, bytes, err)
	}
	if l.counts.hits.Load() == 0 {
		t.Error("no hits")
	}
	if _, err := NewLocal(memoryOf(t, data), t.TempDir(), 1000, nil); err == nil || !strings.Contains(err.Error(), "bytes (1000) must be at least two pages") {
		t.Errorf("got %v", err)
	}
}

func TestLocal_DamagedFilesAreNotServed(t *testing.T) {
	t.Parallel()
	data, folder := rowsOf(2000, 44), t.TempDir()
	l, table := openLocal(t, memoryOf(t, data), folder, 1<<30)
	allRows(t, table, data)
	settled(l)
	file := filepath.Join(folder, "x.pages")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b[100]++              // a byte of the first slot
	b = b[:len(b)-50_000] // and the end
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	allRows(t, table, data)
	if n := l.counts.damaged.Load(); n != 2 {
		t.Errorf("%d pages were damaged", n)
	}
	settled(l)
	allRows(t, table, data)
	if n := l.counts.damaged.Load(); n != 2 {
		t.Errorf("%d pages were damaged: they were not written anew", n)
	}
	if err := table.Close(); err != nil {
		t.Fatal(err)
	}
	// Any bytes may stand in the index.
	index := filepath.Join(folder, "x.index")
	if b, err = os.ReadFile(index); err != nil {
		t.Fatal(err)
	}
	for i := range b[localHeader:] {
		if i%7 == 0 {
			b[localHeader+i] ^= byte(i)
		}
	}
	if err := os.WriteFile(index, append(b, 1, 2, 3), 0o600); err != nil {
		t.Fatal(err)
	}
	_, table = openLocal(t, memoryOf(t, data), folder, 1<<30)
	allRows(t, table, data)
}

// Readers of a cache that is much too small: slots are written anew while they are read.
func TestLocal_ConcurrentReaders(t *testing.T) {
	t.Parallel()
	data := rowsOf(4000, 45)
	l, table := openLocal(t, memoryOf(t, data), t.TempDir(), 3*(64<<10+directio.Block))
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 50 {
				if failed, err := batch(t.Context(), table, data, 20, uint64(g*1000+i)); failed > 0 || err != nil {
					t.Errorf("%d rows failed: %v", failed, err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d hits, %d misses, %d written, %d passed over, %d written anew while they were read, %d damaged", l.counts.hits.Load(), l.counts.misses.Load(),
		l.counts.written.Load(), l.counts.skipped.Load(), l.counts.evicted.Load(), l.counts.damaged.Load())
	if n := l.counts.damaged.Load(); n != 0 {
		t.Errorf("%d pages of a sound drive are damaged", n)
	}
}

// TestLocal_EvictedWhileRead: a page whose place another one takes while it is read comes from the store behind, and is not counted as damaged.
func TestLocal_EvictedWhileRead(t *testing.T) {
	t.Parallel()
	data := rowsOf(2000, 46)
	l, table := openLocal(t, memoryOf(t, data), t.TempDir(), 1<<30)
	allRows(t, table, data)
	settled(l)
	read := l.files.readAt
	var once sync.Once
	l.files.readAt = func(b []byte, at int64) (int, error) {
		n, err := read(b, at)
		once.Do(func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			for _, page := range l.mu.slots.Keys() {
				if s, _ := l.mu.slots.Peek(page); int64(s.slot)*int64(l.files.slotBytes) == at {
					l.mu.slots.Remove(page)
				}
			}
			clear(b) // what the other page has there
		})
		return n, err
	}
	allRows(t, table, data)
	if l.counts.damaged.Load() != 0 || l.counts.evicted.Load() != 1 {
		t.Errorf("%d damaged, %d evicted while they were read", l.counts.damaged.Load(), l.counts.evicted.Load())
	}
}

// TestLocal_DriveHangs: pages that the drive does not deliver come from the store behind after a while, and the drive is then left alone; a context that
// ends sooner ends the call; Close does not wait.
func TestLocal_DriveHangs(t *testing.T) {
	t.Parallel()
	data := rowsOf(2000, 47)
	l, table := openLocal(t, memoryOf(t, data), t.TempDir(), 1<<30)
	allRows(t, table, data)
	settled(l)
	l.wait = time.Hour
	goOn := make(chan struct{})
	defer close(goOn)
	read := l.files.readAt
	l.files.readAt = func(b []byte, at int64) (int, error) {
		if at == 0 {
			<-goOn
		}
		return read(b, at)
	}
	ctx, cancel := context.WithCancel(t.Context())
	all := make([]int64, 2000)
	for i := range all {
		all[i] = int64(i)
	}
	stats := table.ReadRows(ctx, all, func(_ int, _ []byte, _ bool, err error) {
		if err == nil { // rows of other pages arrive
			cancel()
		} else if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	if stats.Failed == 0 || stats.Rows == 0 {
		t.Errorf("one page hangs: %+v", stats)
	}
	l.wait = 100 * time.Millisecond
	allRows(t, table, data)
	if l.counts.late.Load() < 1 { // more on a busy machine
		t.Errorf("%d pages were late", l.counts.late.Load())
	}
	hits, misses := l.counts.hits.Load(), l.counts.misses.Load()
	allRows(t, table, data)
	if l.counts.hits.Load() != hits || l.counts.misses.Load() != misses+int64(l.Manifest().Pages) {
		t.Errorf("the drive is not left alone: %d hits more", l.counts.hits.Load()-hits)
	}
	closed := make(chan error, 1)
	go func() { closed <- table.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("Close waits for the drive")
	}
}

func FuzzParseEntry(f *testing.F) {
	b := make([]byte, localEntry)
	entry{7, 65536, 0xabcdef}.put(b)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < localEntry {
			return
		}
		if e, ok := parseEntry(b); ok {
			again := make([]byte, localEntry)
			if e.put(again); string(again) != string(b[:localEntry]) {
				t.Errorf("%x became %x", b, again)
			}
		}
	})
}
