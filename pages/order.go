package pages

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// checkOrder returns an error if order is not a permutation of the table's row numbers.
func checkOrder(order []uint32, rows int64) error {
	if int64(len(order)) != rows {
		return fmt.Errorf("pages: order (%d rows) must have the table's %d", len(order), rows)
	}
	if rows > math.MaxUint32 {
		return fmt.Errorf("pages: rows of an ordered table (%d) must be at most %d", rows, uint32(math.MaxUint32))
	}
	seen := newRowSet(rows)
	for i, row := range order {
		if int64(row) >= rows {
			return fmt.Errorf("pages: order: row (%d) at position %d must be below %d", row, i, rows)
		}
		if !seen.add(int64(row)) {
			return fmt.Errorf("pages: order: row %d at position %d must be there once only", row, i)
		}
	}
	return nil
}

// positions returns PartOrder of a table of this order: the position of each row. It lies in memory of scratch.
func positions(order []uint32, scratch func(bytes int64) ([]byte, error)) ([]byte, error) {
	if order == nil {
		return nil, nil
	}
	b, err := scratch(4 * int64(len(order)))
	if err != nil {
		return nil, err
	}
	for position, row := range order {
		binary.LittleEndian.PutUint32(b[4*int(row):], uint32(position))
	}
	return b, nil
}

// RowCounts counts how often rows are used, to put those first in pages that are used most. It is 8 bytes a row, which the caller supplies.
type RowCounts struct {
	keys []uint64 // of each row: how many are missing to the highest count, and its number
}

// NewRowCounts returns counts of zero for len(keys) rows, at most 1<<32 - 1, which lie in keys.
func NewRowCounts(keys []uint64) RowCounts {
	for row := range keys {
		keys[row] = math.MaxUint32<<32 | uint64(row)
	}
	return RowCounts{keys}
}

// Add counts a row once more, up to 1<<32 - 1. REQUIRES: 0 ≤ row < rows.
func (c RowCounts) Add(row int64) { c.add(row, 1) }

func (c RowCounts) add(row int64, n uint32) {
	c.keys[row] -= min(uint64(n), c.keys[row]>>32) << 32
}

// Order fills order, one for each row, with the numbers of all rows, those with the highest counts first, and among equal counts in ascending order. The counts
// are of no use afterwards.
func (c RowCounts) Order(order []uint32) {
	slices.Sort(c.keys)
	for i, key := range c.keys {
		order[i] = uint32(key)
	}
}

// OrderByCount returns the numbers of all rows, those with the highest counts first, and among equal counts in ascending order.
func OrderByCount(counts []uint32) []uint32 {
	c := NewRowCounts(make([]uint64, len(counts)))
	for row, n := range counts {
		c.add(int64(row), n)
	}
	order := make([]uint32, len(counts))
	c.Order(order)
	return order
}

// OrderList makes an order of a list of rows that lie first. It takes a bit a row beside the order, whose memory the caller supplies.
type OrderList struct {
	order []uint32
	n     int
	seen  rowSet
}

// NewOrderList returns the list without rows, of a table of len(order) rows, which lies in order.
func NewOrderList(order []uint32) (*OrderList, error) {
	if rows := int64(len(order)); rows > math.MaxUint32 {
		return nil, fmt.Errorf("pages: rows of an ordered table (%d) must be at most %d", rows, uint32(math.MaxUint32))
	}
	return &OrderList{order: order, seen: newRowSet(int64(len(order)))}, nil
}

// Add appends rows. An error says which of all that were added is not a row or is there twice.
func (l *OrderList) Add(rows []int64) error {
	for _, row := range rows {
		if row < 0 || row >= int64(len(l.order)) {
			return fmt.Errorf("pages: order: row (%d) at position %d must be 0 to %d", row, l.n, len(l.order)-1)
		}
		if !l.seen.add(row) {
			return fmt.Errorf("pages: order: row %d at position %d must be there once only", row, l.n)
		}
		l.order[l.n] = uint32(row)
		l.n++
	}
	return nil
}

// Finish appends the rows that were not added, in ascending order: the order is complete.
func (l *OrderList) Finish() {
	for row := range int64(len(l.order)) {
		if l.seen.add(row) {
			l.order[l.n] = uint32(row)
			l.n++
		}
	}
}

// OrderOf returns the numbers of all rows of a table: first those that are listed, then the others in ascending order. An error says which of
// the listed is not a row or is there twice.
func OrderOf(listed []int64, rows int64) ([]uint32, error) {
	if rows > math.MaxUint32 { // before memory is taken for them
		return nil, fmt.Errorf("pages: rows of an ordered table (%d) must be at most %d", rows, uint32(math.MaxUint32))
	}
	order := make([]uint32, rows)
	l, err := NewOrderList(order)
	if err == nil {
		err = l.Add(listed)
	}
	if err != nil {
		return nil, err
	}
	l.Finish()
	return order, nil
}

// rowSet is a set of row numbers, a bit each.
type rowSet []uint64

func newRowSet(rows int64) rowSet { return make(rowSet, (rows+63)/64) }

// add returns false if the row is in the set already.
func (s rowSet) add(row int64) bool {
	word, bit := &s[row/64], uint64(1)<<(row%64)
	if *word&bit != 0 {
		return false
	}
	*word |= bit
	return true
}
