package cache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/cold"
	"github.com/tensorcache/tensorcache/pages"
	"github.com/tensorcache/tensorcache/pages/delta"
)

// FromPages returns the table that lies in pages: in files, in a cluster, or both. New reads as many of its rows as slabs and host tier hold, and
// encodes nothing. The other rows are absent there and are read from the pages when batches, [Cache.Prefetch] or refresh cycles ask for them.
// The pages are the cache's from New on: Cache.Close closes them, and Table.Close those of a table that is not given to New.
//
// Pages are not changed. Updated rows are kept in memory, in up to HostOptions.Overlay bytes beside the overlay, and are gone when the cache is
// closed; further updates return an error. WithLog keeps them in files.
func FromPages(t *pages.Table) (Table, error) {
	m := t.Manifest()
	p := &paged{manifest: m, current: &generation{table: t}}
	return fromBelow(m.Name, m.DType, m.Rows, m.RowBytes, below{
		source: p, name: Codec(m.Codec), codec: t.Codec(), mean: int((m.StoredBytes + m.Rows - 1) / max(1, m.Rows)), memory: t.MemoryBytes(),
		pageOf: p.pageOf, paged: p, close: p.close,
	})
}

// openPages opens a directory of page files. Its log of updates is in the folder delta.
func openPages(dir string) (Table, error) {
	p, err := pages.Open(dir, pages.FileOptions{})
	if err != nil {
		return Table{}, err
	}
	t, err := FromPages(p)
	if err != nil {
		return Table{}, errors.Join(err, p.Close())
	}
	t.below.paged.dir = dir
	return t.WithLog(filepath.Join(dir, "delta"), false), nil
}

// WithLog returns a table of pages whose updated rows are kept in a folder of files, a delta log, which is read when the table is opened again. It
// is made by the first update. With durable, Update returns when the rows are on the drive; without, a machine that fails may lose the latest
// updates, a process that ends does not. For other tables it changes nothing. Open has a log in the folder delta of the directory of pages, not durable.
func (t Table) WithLog(dir string, durable bool) Table {
	if t.below != nil {
		b := *t.below
		b.logDir, b.durable = dir, durable
		t.below = &b
	}
	return t
}

// MergeUpdates writes a new generation of the page files of a table that was opened from a directory, with the updated rows of its log in their
// places, reads it from then on, and removes them from the log. Gathers and updates go on meanwhile. The cache does so by itself when the log has more than
// an eighth of the table's stored bytes, and more than 64 MiB. Other tables have nothing to merge. A table index out of range is an error that wraps ErrTable.
func (c *Cache) MergeUpdates(ctx context.Context, table int) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	if err := c.checkTable(table); err != nil {
		return err
	}
	t := c.set.Tables[table]
	if c.remote != nil || t.Cold == nil {
		return nil
	}
	l, ok := t.Cold.Log().(*updates)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(t.Cold.Life(), func() { cancel(ErrClosed) })()
	return l.merge(ctx)
}

// paged reads the pages of a table: those of one generation after the other.
type paged struct {
	manifest *pages.Manifest
	dir      string // of page files; "" for pages that are not merged with updates
	mu       sync.Mutex
	current  *generation
}

// generation is one generation of pages, with the reads that are under way.
type generation struct {
	table   *pages.Table
	reads   int
	retired bool // it is closed when nothing reads it any more
}

func (p *paged) begin() *generation {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current.reads++
	return p.current
}

func (p *paged) end(g *generation) error {
	p.mu.Lock()
	g.reads--
	last := g.retired && g.reads == 0
	p.mu.Unlock()
	if last {
		return g.table.Close()
	}
	return nil
}

// replace puts another generation in the place of the current one, which is closed when the reads that have begun on it end.
func (p *paged) replace(t *pages.Table) error {
	p.mu.Lock()
	old := p.current
	old.retired, p.current = true, &generation{table: t}
	last := old.reads == 0
	p.mu.Unlock()
	if last {
		return old.table.Close()
	}
	return nil
}

func (p *paged) close() error { return p.current.table.Close() }

func (p *paged) pageOf(row int64) uint32 {
	g := p.begin()
	defer p.end(g)
	return g.table.PageOf(row)
}

// ReadRows implements cold.Source.
func (p *paged) ReadRows(ctx context.Context, rows []int64, visit func(i int, stored []byte, compressed bool, err error)) (all cold.Reads) {
	g := p.begin()
	defer p.end(g)
	for _, one := range g.table.ReadRows(ctx, rows, visit).Stores {
		all.Pages += one.Pages
		all.Bytes += one.Bytes
	}
	return all
}

// updates is a delta log as a cold.Log.
type updates struct {
	paged   *paged
	dir     string
	durable bool

	opening sync.Mutex
	log     atomic.Pointer[delta.Log] // nil until there is one

	merging sync.Mutex
	merged  atomic.Int64 // bytes written to pages
	ahead   atomic.Bool  // a merge is under way in the background, or is to be tried again
	logger  *slog.Logger
	life    context.Context
	end     context.CancelFunc
	tasks   sync.WaitGroup
}

// The log is merged when its files have more than mergeBytes, and more than one byte in mergeShare of the table's stored bytes. A merge that failed is
// tried again after mergeWait, and then after twice the time before, at most maxMergeWait. Tests set mergeBytes and mergeWait.
var (
	mergeBytes int64 = 64 << 20
	mergeWait        = time.Second
)

const (
	mergeShare   = 8
	maxMergeWait = 5 * time.Minute
)

// openUpdates opens a log if its folder is there.
func openUpdates(p *paged, dir string, durable bool, logger *slog.Logger) (*updates, error) {
	u := &updates{paged: p, dir: dir, durable: durable, logger: logger}
	u.life, u.end = context.WithCancel(context.Background())
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return u, nil
	}
	_, err := u.open()
	return u, err
}

func (u *updates) open() (*delta.Log, error) {
	if l := u.log.Load(); l != nil {
		return l, nil
	}
	u.opening.Lock()
	defer u.opening.Unlock()
	if l := u.log.Load(); l != nil {
		return l, nil
	}
	l, err := delta.Open(u.dir, u.paged.manifest, delta.Options{Durable: u.durable})
	if err != nil {
		return nil, err
	}
	u.log.Store(l)
	return l, nil
}

// Append implements cold.Log.
func (u *updates) Append(rows []int64, stored [][]byte, compressed []bool) error {
	l, err := u.open()
	if err != nil {
		return err
	}
	all := make([]delta.Row, len(rows))
	for i, row := range rows {
		all[i] = delta.Row{Row: row, Stored: stored[i], Compressed: compressed[i]}
	}
	if err := l.Append(all); err != nil {
		return err
	}
	if s := l.Stats(); u.paged.dir != "" && s.SegmentBytes > max(mergeBytes, u.paged.manifest.StoredBytes/mergeShare) && u.ahead.CompareAndSwap(false, true) {
		u.tasks.Go(u.mergeAhead)
	}
	return nil
}

// mergeAhead merges the log in the background, until that succeeds or the cache closes.
func (u *updates) mergeAhead() {
	defer u.ahead.Store(false)
	for wait := mergeWait; ; wait = min(2*wait, maxMergeWait) {
		err := u.merge(u.life)
		if err == nil || u.life.Err() != nil {
			return
		}
		u.logger.Warn("updates are not merged into the pages yet: the log of updates grows until that succeeds", slog.Any("error", err), slog.Duration("again_in", wait))
		select {
		case <-time.After(wait):
		case <-u.life.Done():
			return
		}
	}
}

// Find implements cold.Log.
func (u *updates) Find(row int64) (stored int, compressed, ok bool) {
	l := u.log.Load()
	if l == nil {
		return 0, false, false
	}
	return l.Find(row)
}

// Get implements cold.Log.
func (u *updates) Get(row int64) (stored []byte, compressed, ok bool, err error) {
	l := u.log.Load()
	if l == nil {
		return nil, false, false, nil
	}
	r, ok, err := l.Read(row, nil)
	return r.Stored, r.Compressed, ok, err
}

// Bytes implements cold.Log.
func (u *updates) Bytes() (taken, written int64) {
	l := u.log.Load()
	if l == nil {
		return 0, 0
	}
	s := l.Stats()
	return s.AppendedBytes, s.LogBytes + u.merged.Load()
}

// Close implements cold.Log.
func (u *updates) Close() error {
	u.end()
	u.tasks.Wait()
	if l := u.log.Load(); l != nil {
		return l.Close()
	}
	return nil
}

// merge merges the log into the page files.
func (u *updates) merge(ctx context.Context) error {
	u.merging.Lock()
	defer u.merging.Unlock()
	l := u.log.Load()
	if l == nil || u.paged.dir == "" {
		return nil
	}
	fail := func(err error) error {
		return fmt.Errorf("cache: merging updates of table %s: %w", u.paged.manifest.Name, err)
	}
	sealed, err := l.Seal()
	if err != nil {
		return fail(err)
	}
	if len(sealed.Rows()) == 0 {
		return nil
	}
	w, err := pages.CreateFiles(u.paged.dir)
	if err != nil {
		return fail(err)
	}
	g := u.paged.begin()
	_, done, err := pages.Rewrite(ctx, g.table.Stores()[0], w, sealed, nil)
	if err = errors.Join(err, u.paged.end(g)); err != nil {
		return fail(err)
	}
	u.merged.Add(done.Bytes)
	fresh, err := pages.Open(u.paged.dir, pages.FileOptions{})
	if err != nil {
		return fail(err)
	}
	// From here on reads find the merged rows in the pages, or still in the log.
	if err := errors.Join(u.paged.replace(fresh), l.Drop(sealed)); err != nil {
		return fail(err)
	}
	return nil
}
