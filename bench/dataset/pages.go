package dataset

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/pages"
)

// pageTable is a table whose rows lie in pages.
type pageTable struct {
	open func() (*pages.Table, error)
	read *pages.Table // for ReadRows; caches get tables of their own, which they close
}

// FromPages returns a table whose rows lie in the pages that open opens, once for the table and once for each cache made of it.
func FromPages(open func() (*pages.Table, error)) (*Table, error) {
	p, err := open()
	if err != nil {
		return nil, err
	}
	m := p.Manifest()
	return &Table{Name: m.Name, DType: m.DType, Rows: int(m.Rows), RowBytes: m.RowBytes, pages: &pageTable{open, p}}, nil
}

// Paged returns how the table's rows lie in pages, nil if they do not.
func (t *Table) Paged() *pages.Manifest {
	if t.pages == nil {
		return nil
	}
	return t.pages.read.Manifest()
}

// InMemory returns an error, for what reads all rows of a table at once, if the table is Paged.
func (t *Table) InMemory() error {
	if t.pages == nil {
		return nil
	}
	return fmt.Errorf("--features: table %s must be a file of rows, not pages", t.Name)
}

func (p *pageTable) forCache() (cache.Table, error) {
	table, err := p.open()
	if err != nil {
		return cache.Table{}, err
	}
	t, err := cache.FromPages(table)
	if err != nil {
		return t, errors.Join(err, table.Close())
	}
	return t, nil
}

// ReadRows reads rows of a Paged table into dst, one after the other.
func (t *Table) ReadRows(ctx context.Context, rows []int64, dst []byte) error {
	var mu sync.Mutex
	var first error
	t.pages.read.ReadRows(ctx, rows, func(i int, stored []byte, compressed bool, err error) {
		if err == nil {
			err = t.pages.read.Decode(dst[i*t.RowBytes:][:t.RowBytes], stored, compressed)
		}
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			first = err
		}
	})
	return first
}
