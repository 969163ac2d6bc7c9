package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/cold"
	"github.com/tensorcache/tensorcache/pages"
	"github.com/tensorcache/tensorcache/pages/delta"
)

// FromPages returns the table that lies in pages: in files, in a cluster, or both. New reads as many of its rows as slabs and host tier hold, and
// encodes nothing. The other rows are absent there and are read from the pages when batches, [Cache.Prefetch] or refresh cycles ask for them.
// The pages are the cache's once New has succeeded: Cache.Close closes them, and before that Table.Close.
//
// Updated rows are kept in memory, in up to HostOptions.Overlay bytes beside the overlay, and are gone when the cache is closed; further updates return
// an error. WithLog keeps them in files, from which those of a table whose only store is a pages.Rewritable, such as a cluster, are merged into its pages.
func FromPages(t *pages.Table) (Table, error) {
	m := t.Manifest()
	p := &paged{manifest: m, current: newGeneration(t)}
	if stores := t.Stores(); len(stores) == 1 {
		_, p.rewritable = stores[0].(pages.Rewritable)
	}
	for _, s := range t.Stores() {
		if f, ok := s.(*pages.Files); ok {
			p.files, p.restored = f.Dir(), f.Restored()
		}
	}
	return fromBelow(m.Name, m.DType, m.Rows, m.RowBytes, below{
		source: p, name: Codec(m.Codec), codec: t.Codec(), mean: int((m.StoredBytes + m.Rows - 1) / max(1, m.Rows)), memory: t.MemoryBytes(), buffers: t.BufferBytes(),
		pageOf: p.pageOf, paged: p, close: p.close,
	})
}

// openPages opens a directory of page files. Its log of updates is in the folder delta.
func openPages(dir string) (Table, error) {
	p, err := pages.Open(dir, pages.FileOptions{Incomplete: true})
	if err != nil {
		return Table{}, err
	}
	t, err := FromPages(p)
	if err != nil {
		return Table{}, errors.Join(err, p.Close())
	}
	t.below.paged.dir = dir
	return t.WithLog(delta.Folder(dir), false), nil
}

// WithLog returns a table of pages whose updated rows are kept in a folder of files, a delta log, which is read when the table is opened again. It
// is made by the first update. With durable, Update returns when the rows are on the drive; without, a machine that fails may lose the latest
// updates, a process that ends does not. For other tables it changes nothing. Open has a log in the folder delta of the directory of pages, not durable.
//
// The log is merged into the pages of [Open], and into those of FromPages if their only store is a pages.Rewritable. For other stores only its newest
// versions are kept. See [Cache.MergeUpdates].
func (t Table) WithLog(dir string, durable bool) Table {
	if t.below != nil {
		b := *t.below
		b.logDir, b.durable = dir, durable
		t.below = &b
	}
	return t
}

// MergeUpdates writes the updated rows of a table's log into the next generation of its pages, reads that from then on, and removes the rows from the
// log. Gathers and updates go on meanwhile. The pages are those of a directory that was opened by [Open], or lie in one store that is a pages.Rewritable,
// such as a cluster: there it fails if another generation was committed since the pages were opened, and waits up to 30 s for reads of the old
// generation, which is then deleted. The cache merges by itself when the log has more than an eighth of the table's stored bytes, and more than 64 MiB.
//
// The log of other pages is written anew without versions that were replaced. The cache does so by itself, also for a pages.Rewritable, when half of more
// than 64 MiB are such versions. Other tables have nothing to merge. A table index out of range is an error that wraps ErrTable. An error leaves
// all updates in the log.
func (c *Cache) MergeUpdates(ctx context.Context, table int) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	if err := c.checkTable(table); err != nil {
		return err
	}
	if c.set.Tables[table].Absent == nil {
		return nil
	}
	return c.owner.merge(ctx, table)
}

// paged reads the pages of a table: those of one generation after the other.
type paged struct {
	manifest *pages.Manifest // of the generation that was opened
	files    string          // directory that the pages are of, or some of them; "": none
	dir      string          // files, if the pages are merged with updates; else ""
	restored bool            // the directory's manifest was restored when it was opened
	// rewritable is set if the only store is a pages.Rewritable: updates are merged into its next generation.
	rewritable bool
	mu         sync.Mutex
	current    *generation
}

// generation is one generation of pages, with the reads that are under way.
type generation struct {
	table   *pages.Table
	reads   int
	retired bool // it is closed when nothing reads it any more
	once    sync.Once
	closed  chan struct{} // closed when the table is
}

func newGeneration(t *pages.Table) *generation {
	return &generation{table: t, closed: make(chan struct{})}
}

func (g *generation) close() error {
	defer g.once.Do(func() { close(g.closed) })
	return g.table.Close()
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
		return g.close()
	}
	return nil
}

// replace puts another generation in the place of the current one, which is closed when the reads that have begun on it end.
func (p *paged) replace(t *pages.Table) error {
	p.mu.Lock()
	old := p.current
	old.retired, p.current = true, newGeneration(t)
	last := old.reads == 0
	p.mu.Unlock()
	if last {
		return old.close()
	}
	return nil
}

func (p *paged) close() error { return p.current.close() }

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
		if one.Pages+one.Failed > 0 {
			all.Stores = append(all.Stores, cold.StoreReads{
				Name: one.Name, Reads: 1, Pages: one.Pages, Bytes: one.Bytes, Failed: one.Failed, Took: time.Duration(one.Seconds * float64(time.Second)), Fault: one.Fault,
			})
		}
	}
	return all
}

// unchanged returns an error if another generation of the pages has been committed since they were opened: it may have updates of another process, which this one
// would not see, and which its own updates, merged into the generation that is open, would undo.
func (p *paged) unchanged(ctx context.Context) error {
	var now uint64
	where := p.files
	switch {
	case p.files != "":
		m, err := pages.ReadManifest(p.files)
		if err != nil {
			return err
		}
		now = m.Generation
	case p.rewritable:
		g := p.begin()
		store := g.table.Stores()[0].(pages.Rewritable)
		current, err := store.Current(ctx)
		if err = errors.Join(err, p.end(g)); err != nil {
			return err
		}
		now, where = current, store.Name()
	default:
		return nil
	}
	if now != p.manifest.Generation {
		return fmt.Errorf("cache: table %s: another process has written generation %d of %s since generation %d was opened: open it again", p.manifest.Name, now, where, p.manifest.Generation)
	}
	return nil
}

// updates is a delta log as a cold.Log.
type updates struct {
	tuning  *tuning
	paged   *paged
	dir     string
	durable bool

	opening sync.Mutex
	log     atomic.Pointer[delta.Log] // nil until there is one

	merging sync.Mutex
	written []uint64      // generations that this process has written to a store and does not read, committed or not, ascending; guarded by merging
	merged  atomic.Int64  // bytes written to pages
	failed  atomic.Int64  // merges that failed
	waiting atomic.Bool   // a merge waits for the store
	warned  atomic.Int64  // bytes of a log that is not merged when that was logged last
	ahead   atomic.Bool   // the log is being shortened in the background, or that is to be tried again
	replace chan struct{} // has room for one: while a merge is to be tried again, the log is to be compacted
	logger  *slog.Logger
	life    context.Context
	end     context.CancelFunc
	tasks   sync.WaitGroup
}

// openUpdates opens a log if it has rows. Otherwise the first update does, so that processes which update nothing share a table.
func openUpdates(t *tuning, p *paged, dir string, durable bool, logger *slog.Logger) (*updates, error) {
	u := &updates{tuning: t, paged: p, dir: dir, durable: durable, logger: logger, replace: make(chan struct{}, 1)}
	u.life, u.end = context.WithCancel(context.Background())
	switch empty, err := delta.Empty(dir); {
	case err != nil:
		return u, err
	case empty: // perhaps since another process has merged it
		return u, p.unchanged(u.life)
	}
	_, err := u.open(true)
	return u, err
}

// open opens the log. Rows in it are read from it if it is opened with the table. Otherwise they are an error: memory may have versions before them.
func (u *updates) open(withTable bool) (*delta.Log, error) {
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
	// From now on nobody else merges into the pages.
	err = u.paged.unchanged(u.life)
	if rows := l.Stats().Rows; err == nil && !withTable && rows > 0 {
		err = fmt.Errorf("cache: table %s: another process has updated %d rows since the table was opened: open it again", u.paged.manifest.Name, rows)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	u.log.Store(l)
	return l, nil
}

// Append implements cold.Log.
func (u *updates) Append(rows []int64, stored [][]byte, compressed []bool) (sync func() error, show func(), err error) {
	l, err := u.open(false)
	if err != nil {
		return nil, nil, belowError{err}
	}
	all := make([]delta.Row, len(rows))
	for i, row := range rows {
		all[i] = delta.Row{Row: row, Stored: stored[i], Compressed: compressed[i]}
	}
	sync, found, err := l.AppendAsync(all)
	if err != nil {
		return nil, nil, err
	}
	return sync, func() {
		found()
		u.appended(l.Stats())
	}, nil
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

// Merges implements cold.Log.
func (u *updates) Merges() (failed int64, waiting bool) { return u.failed.Load(), u.waiting.Load() }

// Held implements cold.Log.
func (u *updates) Held() (rows, bytes int64) {
	l := u.log.Load()
	if l == nil {
		return 0, 0
	}
	s := l.Stats()
	return s.Rows, s.SegmentBytes
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
