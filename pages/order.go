package pages

import (
	"cmp"
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
	seen := make([]uint64, (rows+63)/64)
	for i, row := range order {
		if int64(row) >= rows {
			return fmt.Errorf("pages: order: row (%d) at position %d must be below %d", row, i, rows)
		}
		if bit := uint64(1) << (row % 64); seen[row/64]&bit != 0 {
			return fmt.Errorf("pages: order: row %d at position %d must be there once only", row, i)
		} else {
			seen[row/64] |= bit
		}
	}
	return nil
}

// positions returns PartOrder of a table of this order: the position of each row.
func positions(order []uint32) []byte {
	if order == nil {
		return nil
	}
	b := make([]byte, 4*len(order))
	for position, row := range order {
		binary.LittleEndian.PutUint32(b[4*int(row):], uint32(position))
	}
	return b
}

// OrderByCount returns the numbers of all rows, those with the highest counts first, and among equal counts in ascending order.
func OrderByCount(counts []uint32) []uint32 {
	order := make([]uint32, len(counts))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(a, b uint32) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) })
	return order
}

// OrderOf returns the numbers of all rows of a table: first those that are listed, then the others in ascending order. An error says which of
// the listed is not a row or is there twice.
func OrderOf(listed []int64, rows int64) ([]uint32, error) {
	if rows > math.MaxUint32 {
		return nil, fmt.Errorf("pages: rows of an ordered table (%d) must be at most %d", rows, uint32(math.MaxUint32))
	}
	seen := make([]bool, rows)
	order := make([]uint32, 0, rows)
	for i, row := range listed {
		if row < 0 || row >= rows {
			return nil, fmt.Errorf("pages: order: row (%d) at position %d must be 0 to %d", row, i, rows-1)
		}
		if seen[row] {
			return nil, fmt.Errorf("pages: order: row %d at position %d must be there once only", row, i)
		}
		seen[row] = true
		order = append(order, uint32(row))
	}
	for row := range rows {
		if !seen[row] {
			order = append(order, uint32(row))
		}
	}
	return order, nil
}
