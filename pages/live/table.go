// Package live reads tables of pages that change while they are open. A [Log] has the rows that were updated, and merges them into further generations of the
// pages; a [Table] reads the newest generation. Both are safe for concurrent use.
package live

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tensorcache/tensorcache/pages"
)

// Table reads a table of pages: one generation after the other.
type Table struct {
	manifest *pages.Manifest // of the generation that was opened
	files    string          // directory that the pages are of, or some of them; "": none
	merged   bool            // updates are merged into the page files of that directory
	restored bool            // the directory's manifest was restored when it was opened
	// rewritable is set if the only store is a pages.Rewritable: updates are merged into its next generation.
	rewritable bool
	mu         sync.Mutex
	current    *generation
}

// New returns the table of pages that are open. Close closes them. With merged, a [Log] merges updates into the page files of the table's directory.
func New(t *pages.Table, merged bool) *Table {
	p := &Table{manifest: t.Manifest(), current: newGeneration(t)}
	if stores := t.Stores(); len(stores) == 1 {
		_, p.rewritable = stores[0].(pages.Rewritable)
	}
	for _, s := range t.Stores() {
		if f, ok := s.(*pages.Files); ok {
			p.files, p.merged, p.restored = f.Dir(), merged, f.Restored()
		}
	}
	return p
}

// Manifest returns the manifest of the generation that was opened.
func (p *Table) Manifest() *pages.Manifest { return p.manifest }

// Restored says that the manifest of the table's directory was missing or damaged when it was opened, and was restored from the store behind it.
func (p *Table) Restored() bool { return p.restored }

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

func (p *Table) begin() *generation {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current.reads++
	return p.current
}

func (p *Table) end(g *generation) error {
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
func (p *Table) replace(t *pages.Table) error {
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

// Close closes the generation that is read. REQUIRES: no read is under way.
func (p *Table) Close() error { return p.current.close() }

// PageOf returns the page of a row.
func (p *Table) PageOf(row int64) uint32 {
	g := p.begin()
	defer p.end(g)
	return g.table.PageOf(row)
}

// ReadRows is pages.Table.ReadRows of the current generation.
func (p *Table) ReadRows(ctx context.Context, rows []int64, visit func(i int, stored []byte, compressed bool, err error)) pages.ReadStats {
	g := p.begin()
	defer p.end(g)
	return g.table.ReadRows(ctx, rows, visit)
}

// unchanged returns an error if another generation of the pages has been committed since they were opened: it may have updates of another process, which this one
// would not see, and which its own updates, merged into the generation that is open, would undo.
func (p *Table) unchanged(ctx context.Context) error {
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
