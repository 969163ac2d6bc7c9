package pages

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/internal/race"
)

// filesOf bounds the length of page files during a test.
func filesOf(t testing.TB, bytes int64) {
	old := fileBytes
	fileBytes = bytes
	t.Cleanup(func() { fileBytes = old })
}

// packFiles packs rows to a directory.
func packFiles(t testing.TB, dir string, data []byte, rowBytes int, o PackOptions) *Manifest {
	t.Helper()
	w, err := CreateFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Pack(t.Context(), func() (Source, error) { return &rowsSource{data: data, rowBytes: rowBytes}, nil }, w, defaults(o))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func openDir(t testing.TB, dir string, o FileOptions) *Table {
	t.Helper()
	table, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { table.Close() })
	return table
}

// engines are those of this build and kernel.
func engines(t testing.TB) []string {
	e, err := newUring(4, 1)
	if err != nil {
		t.Log(err)
		return []string{"pread"}
	}
	e.close()
	return []string{"pread", "uring"}
}

func TestFiles_GiveBackWhatWasPacked(t *testing.T) {
	filesOf(t, 1<<20)
	data := floats(20_000, 32, 1)
	for _, o := range []PackOptions{
		{Codec: "ibp4", PageBytes: 64 << 10},
		{Codec: "none", Stage: "zstd"},
		{Codec: "none", Stage: "none", PageBytes: MaxPageBytes}, // each page has a file
	} {
		dir := filepath.Join(t.TempDir(), "table.tc")
		m := packFiles(t, dir, data, 128, o)
		for _, engine := range engines(t) {
			for _, o := range []FileOptions{{Engine: engine}, {Engine: engine, Depth: 1}, {Engine: engine, Buffered: true}} {
				table := openDir(t, dir, o)
				stats := expectRows(t, table, data, all(20_000))
				if s := stats.Stores[0]; s.Pages != int64(m.Pages) || s.Bytes != m.PageTotal {
					t.Errorf("%+v", stats)
				}
				if f := table.stores[0].(*Files); f.Engine() != engine || o.Buffered && f.Direct() {
					t.Errorf("engine %s, direct %v of %+v", f.Engine(), f.Direct(), o)
				}
			}
		}
		if files, _ := filepath.Glob(filepath.Join(dir, "g1", "*")); len(files) < 3 || slicesHave(files, checkpointFile) {
			t.Errorf("%v", files)
		}
		table := openDir(t, dir, FileOptions{})
		if v, err := Verify(t.Context(), table.stores[0], nil); err != nil || v.Rows != 20_000 {
			t.Errorf("%+v, %v", v, err)
		}
	}
}

func slicesHave(files []string, name string) bool {
	for _, f := range files {
		if filepath.Base(f) == name {
			return true
		}
	}
	return false
}

// TestFiles_NoRows: a table without rows is packed, verified and unpacked.
func TestFiles_NoRows(t *testing.T) {
	dir := t.TempDir()
	packFiles(t, dir, nil, 8, PackOptions{})
	table := openDir(t, dir, FileOptions{})
	expectRows(t, table, nil, nil)
	if _, err := Verify(t.Context(), table.stores[0], nil); err != nil {
		t.Error(err)
	}
	if err := Unpack(t.Context(), table.stores[0], filepath.Join(dir, "out.npy"), nil); err != nil {
		t.Error(err)
	}
}

// countingEngine counts requests.
type countingEngine struct {
	engine
	requests, pages atomic.Int64
}

func (e *countingEngine) submit(r []*request, stop <-chan struct{}) {
	for _, r := range r {
		e.requests.Add(1)
		e.pages.Add(int64(len(r.into)))
	}
	e.engine.submit(r, stop)
}

// TestFiles_NeighboursMerged: neighbouring pages are one read, of at most mergeBytes, and not across files.
func TestFiles_NeighboursMerged(t *testing.T) {
	filesOf(t, 1<<20)
	dir := t.TempDir()
	data := floats(10_000, 100, 2)
	m := packFiles(t, dir, data, 400, PackOptions{Codec: "none", Stage: "none", PageBytes: 64 << 10})
	table := openDir(t, dir, FileOptions{})
	f := table.stores[0].(*Files)
	counting := &countingEngine{engine: f.engine}
	f.engine = counting
	expectRows(t, table, data, all(10_000))
	if n := counting.pages.Load(); n != int64(m.Pages) {
		t.Errorf("%d pages were read of %d", n, m.Pages)
	}
	if n, files := counting.requests.Load(), int64(len(f.files)); n < files || n > files+1 {
		t.Errorf("%d reads of %d files of 1 MiB", n, files)
	}
	counting.requests.Store(0)
	from0, _ := f.index.positions(0)
	from1, _ := f.index.positions(1)
	from3, _ := f.index.positions(3)
	expectRows(t, table, data, []int64{from3, from1, from0})
	if n := counting.requests.Load(); n != 2 {
		t.Errorf("pages 0, 1 and 3 took %d reads", n)
	}
}

// TestFiles_Damaged: truncated, corrupt and missing files fail the rows of the pages at fault, and no others, or come from the next store.
func TestFiles_Damaged(t *testing.T) {
	filesOf(t, 1<<20)
	data := floats(10_000, 100, 3)
	for _, engine := range engines(t) {
		for name, damage := range map[string]func(dir string) error{
			"corrupt": func(dir string) error {
				f, err := os.OpenFile(filepath.Join(dir, "g1", "pages-00001"), os.O_RDWR, 0)
				if err != nil {
					return err
				}
				defer f.Close()
				_, err = f.WriteAt([]byte("xyz"), 200_000)
				return err
			},
			"truncated":      func(dir string) error { return os.Truncate(filepath.Join(dir, "g1", "pages-00001"), 300_000) },
			"truncated_page": func(dir string) error { return os.Truncate(filepath.Join(dir, "g1", "pages-00001"), 300_000&^4095) },
			"empty":          func(dir string) error { return os.Truncate(filepath.Join(dir, "g1", "pages-00001"), 0) },
		} {
			t.Run(engine+"_"+name, func(t *testing.T) {
				dir := t.TempDir()
				o := PackOptions{Name: "x", Codec: "none", Stage: "none", PageBytes: 64 << 10}
				packFiles(t, dir, data, 400, o)
				if err := damage(dir); err != nil {
					t.Fatal(err)
				}
				table := openDir(t, dir, FileOptions{Engine: engine})
				f := table.stores[0].(*Files)
				got, errs, stats := readAll(t, t.Context(), table, all(10_000))
				bad := 0
				for i, row := range all(10_000) {
					if errs[i] == nil {
						if !bytes.Equal(got[i], data[row*400:][:400]) {
							t.Fatalf("row %d is wrong", row)
						}
						continue
					}
					bad++
					if f.places[table.PageOf(row)].file != 1 {
						t.Fatalf("row %d, which lies in a sound file: %v", row, errs[i])
					}
					if !errors.Is(errs[i], ErrCorrupt) && !errors.Is(errs[i], io.ErrUnexpectedEOF) {
						t.Fatalf("row %d: %v", row, errs[i])
					}
				}
				if bad == 0 || name == "corrupt" && bad > 200 || stats.Failed != int64(bad) {
					t.Errorf("%d rows failed: %+v", bad, stats)
				}
				if _, err := Verify(t.Context(), f, nil); err == nil || !strings.Contains(err.Error(), "table x page ") {
					t.Errorf("verified: %v", err)
				}
				if err := Unpack(t.Context(), f, filepath.Join(dir, "out.npy"), nil); err == nil {
					t.Error("unpacked")
				}
				if left, _ := filepath.Glob(filepath.Join(dir, "*out*")); len(left) > 0 {
					t.Errorf("left behind: %v", left)
				}
				both := openStores(t, f, packMemory(t, data, 400, o))
				if stats := expectRows(t, both, data, all(10_000)); stats.Stores[1].Pages == 0 || stats.Stores[1].Pages != stats.Stores[0].Failed {
					t.Errorf("%+v", stats)
				}
			})
		}
	}
}

// TestFiles_Incomplete: a directory without one of its page files is opened if so wanted. Its pages are read from the next store, and fail if there is none.
func TestFiles_Incomplete(t *testing.T) {
	filesOf(t, 1<<20)
	data := floats(10_000, 100, 3)
	dir := t.TempDir()
	o := PackOptions{Name: "x", Codec: "none", Stage: "none", PageBytes: 64 << 10}
	packFiles(t, dir, data, 400, o)
	if err := os.Remove(filepath.Join(dir, "g1", "pages-00001")); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFiles(dir, FileOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("opened as a whole: %v", err)
	}
	f, err := OpenFiles(dir, FileOptions{Incomplete: true})
	if err != nil {
		t.Fatal(err)
	}
	table := openStores(t, f, packMemory(t, data, 400, o))
	missing := 0
	for _, p := range f.places {
		if p.file == 1 {
			missing++
		}
	}
	if stats := expectRows(t, table, data, all(10_000)); missing == 0 || stats.Stores[1].Pages != int64(missing) || stats.Stores[0].Failed != int64(missing) {
		t.Errorf("%+v, with %d pages in the missing file", stats, missing)
	}
	alone := openDir(t, dir, FileOptions{Incomplete: true})
	_, errs, _ := readAll(t, t.Context(), alone, all(10_000))
	for i, row := range all(10_000) {
		err := errs[i]
		if lost := f.places[alone.PageOf(row)].file == 1; lost != errors.Is(err, os.ErrNotExist) || lost && !strings.Contains(err.Error(), "pages-00001") || !lost && err != nil {
			t.Fatalf("row %d: %v", row, err)
		}
	}
}

// TestFiles_IndexFromBehind: a directory whose index is missing or damaged is opened with a store of the same contents behind it, which has the index, and its
// own pages are read. A store of another table does not help.
func TestFiles_IndexFromBehind(t *testing.T) {
	race.SkipSequential(t)
	filesOf(t, 1<<20)
	data := floats(5_000, 100, 3)
	o := PackOptions{Name: "x", Codec: "ibp4", Stage: "none", PageBytes: 64 << 10}
	behind, foreign := packMemory(t, data, 400, o), packMemory(t, floats(5_000, 100, 4), 400, o)
	for name, damage := range map[string]func(index string) error{
		"missing": os.Remove,
		"short":   func(index string) error { return os.Truncate(index, 8) },
		"flipped": func(index string) error {
			b, err := os.ReadFile(index)
			if err != nil {
				return err
			}
			b[len(b)/2] ^= 1
			return os.WriteFile(index, b, 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			packFiles(t, dir, data, 400, o)
			if err := damage(filepath.Join(dir, "g1", "index")); err != nil {
				t.Fatal(err)
			}
			if _, err := OpenFiles(dir, FileOptions{}); err == nil {
				t.Error("opened alone")
			}
			if _, err := OpenFiles(dir, FileOptions{Behind: foreign}); err == nil || !strings.Contains(err.Error(), foreign.Name()) {
				t.Errorf("with another table behind it: %v", err)
			}
			f, err := OpenFiles(dir, FileOptions{Behind: behind})
			if err != nil {
				t.Fatal(err)
			}
			table := openStores(t, f, packMemory(t, data, 400, o))
			if stats := expectRows(t, table, data, all(5_000)); stats.Stores[0].Pages == 0 || stats.Stores[1].Pages != 0 || stats.Stores[0].Failed != 0 {
				t.Errorf("%+v", stats)
			}
		})
	}
}

// pipe puts a named pipe in the place of a file: opening it would wait for a writer.
func pipe(path string) error { return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)) }

// TestOpenFiles_Refuses: files of a generation that are missing or of another table.
func TestOpenFiles_Refuses(t *testing.T) {
	race.SkipSequential(t)
	filesOf(t, 1<<20)
	data, other := floats(10_000, 32, 4), floats(10_000, 32, 5)
	o := PackOptions{Name: "x", Codec: "rank"}
	foreign := t.TempDir()
	packFiles(t, foreign, other, 128, o)
	for name, c := range map[string]struct {
		change func(dir string) error
		want   string
	}{
		"no table":      {os.RemoveAll, "not a table of page files"},
		"missing pages": {func(dir string) error { return os.Remove(filepath.Join(dir, "g1", "pages-00000")) }, "no such file"},
		"missing index": {func(dir string) error { return os.Remove(filepath.Join(dir, "g1", "index")) }, "no such file"},
		"another manifest": {func(dir string) error {
			return os.Rename(filepath.Join(foreign, "manifest"), filepath.Join(dir, "manifest"))
		}, "index: wrong checksum"},
		"short manifest": {func(dir string) error { return os.Truncate(filepath.Join(dir, "manifest"), 100) }, "unexpected EOF"},
		"short index":    {func(dir string) error { return os.Truncate(filepath.Join(dir, "g1", "index"), 8) }, "index (8 bytes) must have"},
		"long metadata":  {func(dir string) error { return os.Truncate(filepath.Join(dir, "g1", "metadata"), 1<<20) }, "must be at most"},
		"a folder": {func(dir string) error {
			os.Remove(filepath.Join(dir, "manifest"))
			return os.Mkdir(filepath.Join(dir, "manifest"), 0o755)
		}, "must be a regular file"},
		"a pipe as manifest": {func(dir string) error { return pipe(filepath.Join(dir, "manifest")) }, "must be a regular file"},
		"a pipe as index":    {func(dir string) error { return pipe(filepath.Join(dir, "g1", "index")) }, "must be a regular file"},
		"a pipe as pages":    {func(dir string) error { return pipe(filepath.Join(dir, "g1", "pages-00000")) }, "must be a regular file"},
	} {
		dir := t.TempDir()
		packFiles(t, dir, data, 128, o)
		if err := c.change(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, FileOptions{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestFiles_NextGeneration: a reader keeps the generation that it opened; one that opens later has the new one; the old one's files are gone.
func TestFiles_NextGeneration(t *testing.T) {
	dir := t.TempDir()
	data, changed := floats(5000, 32, 6), floats(5000, 32, 7)
	packFiles(t, dir, data, 128, PackOptions{})
	before := openDir(t, dir, FileOptions{})
	if m := packFiles(t, dir, changed, 128, PackOptions{}); m.Generation != 2 {
		t.Errorf("generation %d", m.Generation)
	}
	expectRows(t, before, data, all(5000))
	expectRows(t, openDir(t, dir, FileOptions{}), changed, all(5000))
	if _, err := os.Stat(filepath.Join(dir, "g1")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the old generation is still there: %v", err)
	}
}

func TestCreateFiles_Refuses(t *testing.T) {
	dir := t.TempDir()
	w, err := CreateFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := CreateFiles(dir); err == nil || !strings.Contains(err.Error(), "another process is writing to it") {
		t.Errorf("%v", err)
	}
	w.Abort()
	if w, err = CreateFiles(dir); err != nil {
		t.Fatal(err)
	}
	w.Abort()
	full := t.TempDir()
	os.WriteFile(filepath.Join(full, "thesis.tex"), nil, 0o600)
	if _, err := CreateFiles(full); err == nil || !strings.Contains(err.Error(), "it has thesis.tex") {
		t.Errorf("%v", err)
	}
	damaged := t.TempDir()
	os.WriteFile(filepath.Join(damaged, "manifest"), []byte("x"), 0o600)
	if _, err := CreateFiles(damaged); err == nil {
		t.Error("a directory with a damaged manifest was taken")
	}
}

// stuckEngine never ends requests, until it is freed.
type stuckEngine struct{ held chan []*request }

func (e *stuckEngine) name() string                           { return "stuck" }
func (e *stuckEngine) submit(r []*request, _ <-chan struct{}) { e.held <- r }
func (e *stuckEngine) close()                                 {}

// TestFiles_StuckDrive: reads that never end fail when the context does, or when the table is closed; ends that come too late are ignored.
func TestFiles_StuckDrive(t *testing.T) {
	dir := t.TempDir()
	data := floats(5000, 32, 8)
	packFiles(t, dir, data, 128, PackOptions{})
	table := openDir(t, dir, FileOptions{})
	f := table.stores[0].(*Files)
	working := f.engine
	defer working.close()
	stuck := &stuckEngine{make(chan []*request, 10)}
	f.engine = stuck
	ctx, cancel := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	var errs []error
	reading.Go(func() { _, errs, _ = readAll(t, ctx, table, []int64{1, 4999}) })
	held := <-stuck.held
	cancel()
	reading.Wait()
	for _, err := range errs {
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	for _, r := range held {
		r.finish(r.bytes(), nil)
	}
	reading.Go(func() { _, errs, _ = readAll(t, t.Context(), table, []int64{1, 4999}) })
	held = <-stuck.held
	if err := table.Close(); err != nil {
		t.Error(err)
	}
	reading.Wait()
	for _, err := range errs {
		if !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	}
	for _, r := range held {
		r.finish(r.bytes(), nil)
	}
	if _, errs, _ = readAll(t, t.Context(), table, []int64{1}); !errors.Is(errs[0], os.ErrClosed) {
		t.Errorf("after Close: %v", errs[0])
	}
}

// badNeighbours fails reads of several pages, and holds those of one.
type badNeighbours struct {
	held chan *request
	more sync.WaitGroup
}

func (e *badNeighbours) name() string { return "bad" }
func (e *badNeighbours) submit(requests []*request, _ <-chan struct{}) {
	for _, r := range requests {
		if len(r.into) > 1 {
			e.more.Go(func() { r.finish(0, syscall.EIO) })
		} else {
			e.held <- r
		}
	}
}
func (e *badNeighbours) close() {}

// TestFiles_ReadsAgainByTheEngine: the pages of a read that failed are read again one by one, by the engine, so that no goroutine of the engine waits for
// the drive, and they fail when the context ends.
func TestFiles_ReadsAgainByTheEngine(t *testing.T) {
	dir := t.TempDir()
	data := floats(5000, 32, 8)
	packFiles(t, dir, data, 128, PackOptions{Codec: "none", Stage: "none", PageBytes: 64 << 10})
	table := openDir(t, dir, FileOptions{})
	f := table.stores[0].(*Files)
	working := f.engine
	defer working.close()
	bad := &badNeighbours{held: make(chan *request, 100)}
	f.engine = bad
	rows := []int64{1, 4999}
	for page := range f.manifest.Pages {
		from, _ := f.index.positions(page)
		rows = append(rows, from)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	late := make(chan *request, 1)
	go func() {
		first := <-bad.held
		first.finish(readFull(first.file, first.offset, first.into))
		for range f.manifest.Pages - 2 {
			<-bad.held
		}
		late <- <-bad.held
		cancel(io.ErrNoProgress)
	}()
	_, errs, stats := readAll(t, ctx, table, rows)
	bad.more.Wait()
	(<-late).finish(0, nil) // is ignored
	if stats.Stores[0].Pages != 1 || stats.Stores[0].Failed != int64(f.manifest.Pages)-1 {
		t.Errorf("%+v of %d pages", stats, f.manifest.Pages)
	}
	for i, err := range errs {
		if err != nil && !errors.Is(err, io.ErrNoProgress) {
			t.Errorf("row %d: %v", rows[i], err)
		}
	}
}

// TestFiles_CloseIsBounded: Close does not wait longer than closeWait for a reader that does not return.
func TestFiles_CloseIsBounded(t *testing.T) {
	defer func(was time.Duration) { closeWait = was }(closeWait)
	closeWait = 50 * time.Millisecond
	dir := t.TempDir()
	packFiles(t, dir, floats(500, 32, 8), 128, PackOptions{})
	f, err := OpenFiles(dir, FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	visited, goOn := make(chan struct{}), make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		f.ReadPages(t.Context(), []uint32{0}, [][]byte{nil}, func(int, []byte, error) { close(visited); <-goOn })
	})
	<-visited
	closed := make(chan error, 1)
	go func() { closed <- f.Close() }()
	select {
	case err := <-closed:
		if err == nil || !strings.Contains(err.Error(), "do not end") {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("Close waits for a reader that does not return")
	}
	close(goOn)
	reading.Wait()
}

// TestCopy: a copy has the same pages under a generation of its own; a corrupt page ends it, and nothing is committed.
func TestCopy(t *testing.T) {
	filesOf(t, 1<<20)
	dir := t.TempDir()
	data := floats(20_000, 32, 9)
	packFiles(t, dir, data, 128, PackOptions{Codec: "rank", PageBytes: 64 << 10})
	packFiles(t, dir, data, 128, PackOptions{Codec: "rank", PageBytes: 64 << 10})
	f := openDir(t, dir, FileOptions{}).stores[0].(*Files)
	place := NewMemory()
	told := uint32(0)
	m, err := Copy(t.Context(), f, place.Writer(), func(n uint32) { told = n })
	if err != nil || m.Generation != 1 || told != m.Pages {
		t.Fatal(m, err, told)
	}
	s, err := place.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Manifest().Same(f.Manifest()); err != nil {
		t.Error(err)
	}
	expectRows(t, openStores(t, s), data, all(20_000))
	s.Page(7)[77] ^= 1
	again := t.TempDir()
	w, err := CreateFiles(again)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Copy(t.Context(), s, w, nil); !errors.Is(err, ErrCorrupt) {
		t.Errorf("%v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(again, "[gm]*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
