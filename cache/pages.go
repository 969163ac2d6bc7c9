package cache

import (
	"context"
	"errors"

	"github.com/tensorcache/tensorcache/pages"
	"github.com/tensorcache/tensorcache/pages/delta"
	"github.com/tensorcache/tensorcache/pages/live"
)

// FromPages returns the table that lies in pages: in files, in a cluster, or both. New reads as many of its rows as slabs and host tier hold, and
// encodes nothing. The other rows are absent there and are read from the pages when batches, [Cache.Prefetch] or refresh cycles ask for them.
// The pages are the cache's once New has succeeded: Cache.Close closes them, and before that Table.Close.
//
// Updated rows are kept in memory, in up to HostOptions.Overlay bytes beside the overlay, and are gone when the cache is closed; further updates return
// an error. WithLog keeps them in files. If the table's only store is a pages.Rewritable, such as a cluster, they are merged into its pages.
func FromPages(t *pages.Table) (Table, error) {
	return fromPages(t, false)
}

// fromPages is FromPages. With merged, updates are merged into the page files of a directory.
func fromPages(of *pages.Table, merged bool) (Table, error) {
	p, m := live.New(of, merged), of.Manifest()
	t, err := FromReader(m.Name, m.DType, m.Rows, m.RowBytes, func(int64, []byte) error { return errors.ErrUnsupported }, nil)
	if err != nil {
		return Table{}, err
	}
	t.kind = inPages{table: p, codec: of.Codec(), mean: int((m.StoredBytes + m.Rows - 1) / max(1, m.Rows)), finding: of.MemoryBytes(), buffers: of.BufferBytes()}
	t.close = func() error {
		if t.used.Load() { // by a cache, which closes it
			return nil
		}
		return p.Close()
	}
	return t, nil
}

// openPages opens a directory of page files. Its log of updates is in the folder delta.
func openPages(dir string) (Table, error) {
	p, err := pages.Open(dir, pages.FileOptions{Incomplete: true})
	if err != nil {
		return Table{}, err
	}
	t, err := fromPages(p, true)
	if err != nil {
		return Table{}, errors.Join(err, p.Close())
	}
	return t.WithLog(delta.Folder(dir), false), nil
}

// WithLog returns a table of pages whose updated rows are kept in a folder of files, a delta log, which is read when the table is opened again. It
// is made by the first update. With durable, Update returns when the rows are on the drive; without, a machine that fails may lose the latest
// updates, a process that ends does not. For other tables it changes nothing. Open has a log in the folder delta of the directory of pages, not durable.
//
// The log is merged into the pages of [Open], and into pages of FromPages if their only store is a pages.Rewritable. For other stores only its newest
// versions are kept. See [Cache.MergeUpdates].
func (t Table) WithLog(dir string, durable bool) Table {
	if p, ok := t.kind.(inPages); ok {
		p.logDir, p.durable = dir, durable
		t.kind = p
	}
	return t
}

// MergeUpdates writes the updated rows of a table's log into the next generation of its pages, reads that from then on, and removes the rows from the
// log. Gathers and updates go on meanwhile. The pages must lie in a directory that was opened by [Open], or in one store that is a pages.Rewritable,
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
	return c.owner.merge(ctx, table)
}
