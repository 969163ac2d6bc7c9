package pages

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
)

// Verified is what Verify found in one store.
type Verified struct {
	Store string
	Rows  int64
	Pages uint32
	// Bytes are those of the pages.
	Bytes int64
	// StagedPages went through the second stage.
	StagedPages uint32
}

// Verify reads all pages of a store, checks them, and decodes every row. Its error lists what is wrong, page by page, at most 100 of them.
// Progress, if not nil, is told how many pages have been read.
func Verify(ctx context.Context, s Store, progress func(pages uint32)) (*Verified, error) {
	m := s.Manifest()
	t, err := OpenStores(ctx, unclosed{s})
	if err != nil {
		return nil, err
	}
	if err := checkPositions(t.order, m.Rows); err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name(), err)
	}
	v := &Verified{Store: s.Name(), Rows: m.Rows, Pages: m.Pages, Bytes: m.PageTotal}
	var faults []error
	var raw, stored atomic.Int64
	err = scan(ctx, s, t.index, func(first uint32, bytes [][]byte, pages []parsedPage) error {
		found := make([]error, len(pages))
		parallel(len(pages), func(i int) {
			row := make([]byte, m.RowBytes)
			for r := range pages[i].Rows() {
				b, compressed, err := pages[i].Row(r)
				switch {
				case err != nil:
				case !compressed:
					raw.Add(1)
				case t.codec == nil:
					err = fmt.Errorf("%w: row %d of the page is encoded, of a table of raw rows", ErrCorrupt, r)
				default:
					var n int
					if n, err = t.codec.Decode(row, b); err == nil && n != len(b) {
						err = fmt.Errorf("%w: row %d of the page: %d of %d bytes decoded", ErrCorrupt, r, n, len(b))
					}
				}
				if err != nil {
					found[i] = err
					return
				}
				stored.Add(int64(len(b)))
			}
		})
		for i, err := range found {
			if bytes[i] != nil && Stage(bytes[i][5]) != StageNone {
				v.StagedPages++
			}
			if err != nil && len(faults) < maxFaults {
				faults = append(faults, &PageError{Store: s.Name(), Table: m.Name, Page: first + uint32(i), Err: err})
			}
		}
		if progress != nil {
			progress(first + uint32(len(pages)))
		}
		return nil
	}, false)
	if err := errors.Join(append([]error{err}, faults...)...); err != nil {
		return v, err
	}
	if raw.Load() != m.RawRows || stored.Load() != m.StoredBytes {
		return v, fmt.Errorf("pages: %s: table %s: %d raw rows and %d stored bytes, the manifest has %d and %d",
			s.Name(), m.Name, raw.Load(), stored.Load(), m.RawRows, m.StoredBytes)
	}
	return v, nil
}

// unclosed is a store that a table does not close.
type unclosed struct{ Store }

func (unclosed) Close() error { return nil }

// checkPositions returns an error if the positions of an ordered table are not each of a row of its own.
func checkPositions(order []byte, rows int64) error {
	if len(order) == 0 {
		return nil
	}
	seen := make([]uint64, (rows+63)/64)
	for row := range rows {
		p := binary.LittleEndian.Uint32(order[4*row:])
		bit := uint64(1) << (p % 64)
		if int64(p) >= rows || seen[p/64]&bit != 0 {
			return fmt.Errorf("pages: order: position (%d) of row %d must be below %d, and no other row's", p, row, rows)
		}
		seen[p/64] |= bit
	}
	return nil
}
