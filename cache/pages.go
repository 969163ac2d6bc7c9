package cache

import (
	"context"
	"errors"

	"github.com/tensorcache/tensorcache/cache/internal/cold"
	"github.com/tensorcache/tensorcache/pages"
)

// FromPages returns the table that lies in pages: in files, in a cluster, or both. New reads as many of its rows as slabs and host tier hold, and
// encodes nothing. The other rows are absent there and are read from the pages when batches, [Cache.Prefetch] or refresh cycles ask for them.
// The pages are the cache's from New on: Cache.Close closes them, and Table.Close those of a table that is not given to New. The table needs the
// host backend.
//
// Pages are not changed. Updated rows are kept in memory, in up to HostOptions.Overlay bytes beside the overlay, and are gone when the cache is
// closed; further updates return an error.
func FromPages(t *pages.Table) (Table, error) {
	m := t.Manifest()
	return fromBelow(m.Name, m.DType, m.Rows, m.RowBytes, below{
		source: pagesSource{t}, name: Codec(m.Codec), codec: t.Codec(), mean: int((m.StoredBytes + m.Rows - 1) / max(1, m.Rows)), memory: t.MemoryBytes(),
		pageOf: t.PageOf, close: t.Close,
	})
}

// pagesSource is pages as a cold.Source.
type pagesSource struct{ table *pages.Table }

// ReadRows implements cold.Source.
func (s pagesSource) ReadRows(ctx context.Context, rows []int64, visit func(i int, stored []byte, compressed bool, err error)) (all cold.Reads) {
	stats := s.table.ReadRows(ctx, rows, visit)
	for _, one := range stats.Stores {
		all.Pages += one.Pages
		all.Bytes += one.Bytes
	}
	return all
}

// openPages opens a directory of page files.
func openPages(dir string) (Table, error) {
	p, err := pages.Open(dir, pages.FileOptions{})
	if err != nil {
		return Table{}, err
	}
	t, err := FromPages(p)
	if err != nil {
		return Table{}, errors.Join(err, p.Close())
	}
	return t, nil
}
