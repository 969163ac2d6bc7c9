package experiment

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/dtype"
)

// TestBounds_KnownDistributions holds the bounds against entropies that follow from how the elements were drawn.
func TestBounds_KnownDistributions(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	const rows, columns = 4000, 64
	entropy := func(p float64) float64 { return -p*math.Log2(p) - (1-p)*math.Log2(1-p) }
	for _, c := range []struct {
		name string
		at   func(row, column int) byte
		want Bounds // HeldOut, unless it is 0, else that of columns
	}{
		{"noise", func(int, int) byte { return byte(r.Uint32()) }, Bounds{0, 0, 0, 0}},
		{"sixteen values", func(int, int) byte { return byte(r.IntN(16)) }, Bounds{50, 50, 0, 50}},
		{"a value for each column", func(_, column int) byte { return byte(column) }, Bounds{25, 100, 0, 0}},
		{"ones in places", func(int, int) byte { return byte(r.IntN(10) / 9) }, Bounds{100 * (1 - entropy(0.1)/8), 100 * (1 - entropy(0.1)/8), 0, 100 * (1 - entropy(0.1)/8)}},
		{"a value for each row in places", func(row, _ int) byte { return byte(r.IntN(10)/9) * byte(1+row%255) },
			Bounds{100 * (1 - (entropy(0.1)+0.1*math.Log2(255))/8), 84.6, 82.9, 100 * (1 - (entropy(0.1)+8./columns)/8)}},
		{"all alike", func(int, int) byte { return 7 }, Bounds{100, 100, 0, 100}},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := &dataset.Table{DType: dtype.Uint8, RowBytes: columns, Rows: rows, Data: make([]byte, rows*columns)}
			for i := range table.Data {
				table.Data[i] = c.at(i/columns, i%columns)
			}
			got := boundsOf(table)
			near := func(what string, got, want float64) {
				if math.Abs(got-want) > 1 {
					t.Errorf("%s: %.2f %%, want %.2f", what, got, want)
				}
			}
			near("order 0", got.Order0, c.want.Order0)
			near("columns", got.Columns, c.want.Columns)
			near("columns, of other rows", got.HeldOut, cmp.Or(c.want.HeldOut, c.want.Columns))
			if c.want.Sparse != 0 { // else no codec for sparse rows serves the table
				near("sparse", got.Sparse, c.want.Sparse)
			}
		})
	}
}

// TestBounds_HeldOut: columns of few rows promise savings on noise that no other rows have; what rows tell of others is told of those that
// differ by column.
func TestBounds_HeldOut(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	const rows, columns = 200, 32
	for _, c := range []struct {
		name                             string
		at                               func(column int) uint16
		leastColumns, least, mostHeldOut float64
	}{
		{"noise", func(int) uint16 { return uint16(r.Uint32()) }, 5, 0, 0.5},
		{"a leading byte for each column", func(column int) uint16 { return uint16(column)<<8 | uint16(r.Uint32()&0xff) }, 50, 48, 50},
	} {
		table := &dataset.Table{DType: dtype.Uint16, RowBytes: 2 * columns, Rows: rows}
		for i := range rows * columns {
			table.Data = binary.LittleEndian.AppendUint16(table.Data, c.at(i%columns))
		}
		if b := boundsOf(table); b.Columns < c.leastColumns || b.HeldOut < c.least || b.HeldOut > c.mostHeldOut {
			t.Errorf("%s: %.2f %% with statistics of columns, %.2f of other rows, want at least %.1f, and %.1f to %.1f", c.name, b.Columns, b.HeldOut,
				c.leastColumns, c.least, c.mostHeldOut)
		}
	}
}
