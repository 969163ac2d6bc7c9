package resp

import (
	"context"
	"fmt"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/statjson"
	"github.com/tensorcache/tensorcache/serve/catalog"
)

// served are the tables of a view of the catalog, which are named by their position in it. They are read where the catalog has them at the time of the call, so
// that a table which has been replaced since is read in its new generation.
type served struct {
	catalog *catalog.Catalog
	view    *catalog.View
}

// Rows returns the number of a table's rows.
func (s *served) Rows(table int) int64 { return s.view.Tables[table].Rows() }

// Gather is Cache.Gather of a table of the view.
func (s *served) Gather(ctx context.Context, r cache.Request) error {
	return s.do(r.Table, func(t *catalog.Table) error {
		r.Table = t.Index
		return t.Cache.Gather(ctx, r)
	})
}

// Update is Cache.Update of a table of the view.
func (s *served) Update(ctx context.Context, table int, rows []int64, values []byte) error {
	return s.do(table, func(t *catalog.Table) error { return t.Cache.Update(ctx, t.Index, rows, values) })
}

// explain is statjson.Explain of a table of the view.
func (s *served) explain(table int, rows []int64) (all []statjson.Explanation, err error) {
	err = s.do(table, func(t *catalog.Table) error {
		all, err = statjson.Explain(t.Cache, t.Index, rows)
		return err
	})
	return all, err
}

func (s *served) do(table int, f func(*catalog.Table) error) error {
	of := s.view.Tables[table]
	return s.catalog.Do(of, func(t *catalog.Table) error {
		if t.RowBytes != of.RowBytes {
			return fmt.Errorf("table %s has been replaced: its rows have %d bytes now, not %d", t.Name, t.RowBytes, of.RowBytes)
		}
		return f(t)
	})
}
