package pages

import (
	"encoding/binary"
	"fmt"
	"math"
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
