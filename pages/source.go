package pages

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Source yields the rows of a table once, in order. If it has the method ReadFrom of RangedSource, several goroutines read it in any order.
type Source interface {
	// Rows is the number of rows, and RowBytes the length of each.
	Rows() int
	RowBytes() int
	// Read writes the next rows to dst, whose length is a whole number of rows, and returns how many it wrote. It returns io.EOF when no row
	// is left.
	Read(dst []byte) (rows int, err error)
	Close() error
}

// RangedSource is a Source whose rows can be read in any order by several goroutines at once.
type RangedSource interface {
	Source
	// ReadFrom fills dst, a whole number of rows long, with the rows from number row on, all of which there are.
	ReadFrom(row int64, dst []byte) error
}

// readSample reads all of a source and copies the given rows, which ascend, to sample.
func readSample(src Source, numbers []int64, sample []byte) error {
	rowBytes := src.RowBytes()
	part := make([]byte, max(1, 4<<20/rowBytes)*rowBytes)
	done := int64(0)
	for i := 0; i < len(numbers); {
		n, err := readSome(src, part, done)
		if err != nil {
			return err
		}
		for ; i < len(numbers) && numbers[i] < done+int64(n); i++ {
			copy(sample[i*rowBytes:][:rowBytes], part[int(numbers[i]-done)*rowBytes:])
		}
		done += int64(n)
	}
	return nil
}

// readSome reads at least one row, of the rows from number row on.
func readSome(src Source, dst []byte, row int64) (int, error) {
	rows := int64(src.Rows())
	asked := min(len(dst)/src.RowBytes(), int(rows-row))
	n, err := src.Read(dst[:asked*src.RowBytes()])
	switch {
	case n < 0 || n > asked:
		return 0, fmt.Errorf("pages: source returned rows (%d) must be 0 to the %d asked for", n, asked)
	case n > 0 && (err == nil || errors.Is(err, io.EOF)):
		return n, nil
	case err == nil || errors.Is(err, io.EOF):
		return 0, fmt.Errorf("pages: source ended after %d of %d rows", row, rows)
	}
	return 0, fmt.Errorf("pages: source at row %d of %d: %w", row, rows, err)
}

// readGroup fills rows with those at positions from first on. A source without ReadFrom is read on; its reads must come in order.
func (p *packing) readGroup(r RangedSource, src Source, first int64, rows []byte) error {
	switch {
	case p.o.Order != nil:
		order := p.o.Order[first:][:len(rows)/p.rowBytes]
		for len(order) > 0 {
			n := 1 // neighbours are read at once
			for n < len(order) && order[n] == order[0]+uint32(n) {
				n++
			}
			if err := r.ReadFrom(int64(order[0]), rows[:n*p.rowBytes]); err != nil {
				return fmt.Errorf("pages: source at row %d of %d: %w", order[0], p.rows, err)
			}
			order, rows = order[n:], rows[n*p.rowBytes:]
		}
	case r != nil:
		if err := r.ReadFrom(first, rows); err != nil {
			return fmt.Errorf("pages: source at rows from %d of %d: %w", first, p.rows, err)
		}
	default:
		for len(rows) > 0 {
			n, err := readSome(src, rows, first)
			if err != nil {
				return err
			}
			first += int64(n)
			rows = rows[n*p.rowBytes:]
		}
	}
	return nil
}

// skip reads past the rows that an earlier run has packed.
func (p *packing) skip(ctx context.Context, src Source) error {
	part := make([]byte, max(1, 4<<20/p.rowBytes)*p.rowBytes)
	for done, want := int64(0), p.nextGroup*int64(p.group); done < want; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := readSome(src, part[:min(int64(len(part)), (want-done)*int64(p.rowBytes))], done)
		if err != nil {
			return err
		}
		done += int64(n)
	}
	return nil
}
