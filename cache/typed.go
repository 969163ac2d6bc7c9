package cache

import (
	"context"
	"fmt"
	"reflect"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/reduce"
)

// Typed is a table whose rows are read as Go values. It is safe for concurrent use.
type Typed[T Element] struct {
	cache *Cache
	table int
}

// Of returns a table of the cache whose rows Gather reads as values of type T. With float32 it reads tables of float16, bfloat16 and float8 too.
func Of[T Element](c *Cache, table int) Typed[T] { return Typed[T]{c, table} }

// Gather is Cache.Gather of rows to values: len(rows) × columns of them. The error wraps ErrOutput if the table's elements are not of type T and cannot be
// converted to it.
func (t Typed[T]) Gather(ctx context.Context, rows []int64, out []T) error {
	r := Request{Table: t.table, Rows: rows, Out: AsBytes(out)}
	if t.table >= 0 && t.table < len(t.cache.set.Tables) {
		of, as := t.cache.set.Tables[t.table].DType, dtypes[reflect.TypeFor[T]().Kind()]
		switch {
		case of == as:
		case as == dtype.Float32 && (reduce.Float(of) || of == dtype.Float8E4M3FN || of == dtype.Float8E5M2 || of.IsRow()):
			r.As = as
		default:
			return t.cache.watch.Refused(fmt.Errorf("%w: values of %v cannot be read of table %s, which has %v", ErrOutput, as, t.cache.set.Tables[t.table].Name, of))
		}
	}
	return t.cache.Gather(ctx, r)
}
