package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/tensorcache/tensorcache/pages"
)

// pageLayout says in which pages the rows lie that are looked up.
type pageLayout struct {
	of       []uint32 // of each row, pages numbered as they occur
	distinct int      // pages in of
	count    int64    // pages of the table
	bytes    float64  // that reading a page takes
	ordered  bool     // positions are not row numbers
}

// blockBytes is what pages begin at multiples of, and what reads past the page cache are multiples of.
const blockBytes = 4096

// pageLayout returns that of the table's pages, or of those that `cachebench pack` would make.
func (p *planner) pageLayout(ctx context.Context, s *sizes) (l pageLayout, err error) {
	t, o := p.base.table, &p.cfg.Tiers
	var page func(row int64) int64
	if m := t.Paged(); m != nil {
		if o.Page != "" || o.Order != "" {
			return l, fmt.Errorf("--page and --order mean nothing for table %s, which lies in pages", m.Name)
		}
		l.count, l.ordered = int64(m.Pages), m.Ordered
		l.bytes = float64(m.PageTotal) / float64(max(1, m.Pages))
		page = func(row int64) int64 { return int64(t.PageOf(row)) }
	} else {
		most, _ := o.pageBytes()
		lengths := s.lengths
		if lengths == nil {
			lengths = make([]int32, min(len(s.stored), groupSample))
			for i := range lengths {
				lengths[i] = int32(s.stored[i*len(s.stored)/len(lengths)])
			}
		}
		rows, mean := pages.PageRows(lengths, s.rows, t.RowBytes, most)
		l.count, l.bytes = (s.rows+int64(rows)-1)/int64(rows), mean
		position, err := p.positions(ctx)
		if err != nil {
			return l, err
		}
		l.ordered = o.Order != ""
		page = func(row int64) int64 { return position(row) / int64(rows) }
	}
	l.bytes = math.Ceil(l.bytes/blockBytes) * blockBytes
	l.of = make([]uint32, len(s.slot))
	all := make([]int64, len(s.slot))
	if s.looked == nil {
		for row := range all {
			all[row] = page(int64(row))
		}
	} else {
		for i, row := range s.looked.rows {
			all[i] = page(row)
		}
	}
	numbers := slices.Clone(all)
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	l.distinct = len(numbers)
	for i, n := range all {
		at, _ := slices.BinarySearch(numbers, n)
		l.of[i] = uint32(at)
	}
	return l, nil
}

// groupSample is how many rows say how many rows a page has, where all rows are encoded.
const groupSample = 1 << 16

// positions returns where rows lie in the order of the pages.
func (p *planner) positions(ctx context.Context) (func(row int64) int64, error) {
	r, text := p.base, p.cfg.Tiers.Order
	rows := int64(r.table.Rows)
	switch {
	case text == "":
		return func(row int64) int64 { return row }, nil
	case rows > math.MaxUint32:
		return nil, fmt.Errorf("--order takes a table of at most %d rows (%d)", uint32(math.MaxUint32), rows)
	case text == "degree" && r.graph == nil:
		return nil, errors.New("--order degree needs a graph")
	case text == "degree":
		counts := make([]uint32, rows)
		copy(counts, r.graph.InDegrees())
		return inFront(rowsOf(pages.OrderByCount(counts)))
	case text == "frequency":
		listed, err := p.trained(ctx)
		if err != nil {
			return nil, err
		}
		return inFront(listed)
	}
	listed, err := readIDs(text, int(rows), p.cfg.Force)
	if err != nil {
		return nil, fmt.Errorf("--order (degree, frequency or a file): %w", err)
	}
	at, err := inFront(listed)
	if err != nil {
		return nil, fmt.Errorf("--order (%s): %w", text, err)
	}
	return at, nil
}

func rowsOf(order []uint32) []int64 {
	rows := make([]int64, len(order))
	for i, row := range order {
		rows[i] = int64(row)
	}
	return rows
}

// inFront returns where rows lie if the listed ones come first, and the others follow in the order of their numbers.
func inFront(listed []int64) (func(row int64) int64, error) {
	places := make([]int, len(listed)) // in the order of their rows
	for i := range places {
		places[i] = i
	}
	slices.SortFunc(places, func(a, b int) int { return cmp.Compare(listed[a], listed[b]) })
	for i := range places[min(1, len(places)):] {
		if row := listed[places[i]]; row == listed[places[i+1]] {
			return nil, fmt.Errorf("row %d must be there once only", row)
		}
	}
	return func(row int64) int64 {
		i, found := slices.BinarySearchFunc(places, row, func(place int, row int64) int { return cmp.Compare(listed[place], row) })
		if found {
			return int64(places[i])
		}
		return int64(len(listed)) + row - int64(i)
	}, nil
}

// trained returns the rows that the training batches look up, those that are looked up most first.
func (p *planner) trained(ctx context.Context) ([]int64, error) {
	counts := make([]uint32, len(p.counts))
	for _, rows := range learnFrom(ctx, p.base.training, p.base.trainFirst, p.base.trainLast) {
		for _, row := range rows {
			counts[row]++
		}
	}
	var listed []int64
	var times []uint32 // of listed
	add := func(row int64, n uint32) {
		if n > 0 {
			listed, times = append(listed, row), append(times, n)
		}
	}
	if p.looked == nil {
		for row, n := range counts {
			add(int64(row), n)
		}
	} else {
		for i, row := range p.looked.rows {
			add(row, counts[i])
		}
	}
	sorted := make([]int64, len(listed))
	for position, i := range pages.OrderByCount(times) {
		sorted[position] = listed[i]
	}
	return sorted, ctx.Err()
}
