package daemon

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/sharing"
	"github.com/tensorcache/tensorcache/internal/tablefile"
)

// rewrite updates the rows of a table that differ from those of a file, and appends those that the table does not have. It reads the whole file before it changes
// anything.
func (r *running) rewrite(ctx context.Context, p *prepared) (changed, rows int64, err error) {
	if _, err := r.compare(ctx, p, nil); err != nil {
		return 0, 0, err
	}
	source, err := p.spec.source(ctx)
	if err != nil {
		return 0, 0, err
	}
	again, err := tablefile.Open(p.spec.File)
	if err != nil {
		return 0, 0, err
	}
	p.rows.Close()
	p.rows = again
	// A start takes the rows for neither file's until they are those of the new one.
	if err := sharing.SetSource(p.was.Cache, p.was.Index, "partly replaced in place"); err != nil {
		return 0, 0, err
	}
	changed, err = r.compare(ctx, p, func(numbers []int64, data []byte) error { return p.was.Cache.Update(ctx, p.was.Index, numbers, data) })
	if err == nil {
		err = sharing.SetSource(p.was.Cache, p.was.Index, source)
	}
	return changed, int64(again.Rows()), err
}

// compare reads a file of rows and hands those that differ from the table's to update, if that is not nil. It returns how many do.
func (r *running) compare(ctx context.Context, p *prepared, update func(numbers []int64, data []byte) error) (differ int64, err error) {
	n := p.was.RowBytes
	part := max(1, 1<<20/n)
	given, held := make([]byte, part*n), make([]byte, part*n)
	numbers, changed, data := make([]int64, 0, part), make([]int64, 0, part), make([]byte, 0, part*n)
	for row, all := int64(0), int64(p.rows.Rows()); row < all; {
		if err := ctx.Err(); err != nil {
			return differ, err
		}
		got, err := p.rows.Read(given[:min(int64(part), all-row)*int64(n)])
		if err != nil && !errors.Is(err, io.EOF) {
			return differ, err
		}
		if got == 0 {
			return differ, io.ErrUnexpectedEOF
		}
		if update == nil {
			row += int64(got)
			continue
		}
		numbers, changed, data = numbers[:0], changed[:0], data[:0]
		for i := row; i < min(row+int64(got), p.was.Rows()); i++ {
			numbers = append(numbers, i)
		}
		if len(numbers) > 0 {
			if err := p.was.Cache.Gather(ctx, cache.Request{Table: p.was.Index, Rows: numbers, Out: held[:len(numbers)*n]}); err != nil {
				return differ, err
			}
		}
		for i := range got {
			if one := given[i*n:][:n]; i >= len(numbers) || !bytes.Equal(one, held[i*n:][:n]) {
				changed, data = append(changed, row+int64(i)), append(data, one...)
			}
		}
		if len(changed) > 0 {
			if err := update(changed, data); err != nil {
				return differ, err
			}
		}
		differ, row = differ+int64(len(changed)), row+int64(got)
	}
	return differ, nil
}
