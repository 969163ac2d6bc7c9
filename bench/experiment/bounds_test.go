package experiment

import (
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
		want Bounds
	}{
		{"noise", func(int, int) byte { return byte(r.Uint32()) }, Bounds{0, 0, 0}},
		{"sixteen values", func(int, int) byte { return byte(r.IntN(16)) }, Bounds{50, 50, 50}},
		{"a value for each column", func(_, column int) byte { return byte(column) }, Bounds{25, 100, 0}},
		{"ones in places", func(int, int) byte { return byte(r.IntN(10) / 9) }, Bounds{100 * (1 - entropy(0.1)/8), 100 * (1 - entropy(0.1)/8), 100 * (1 - entropy(0.1)/8)}},
		{"a value for each row in places", func(row, _ int) byte { return byte(r.IntN(10)/9) * byte(1+row%255) },
			Bounds{100 * (1 - (entropy(0.1)+0.1*math.Log2(255))/8), 84.6, 100 * (1 - (entropy(0.1)+8./columns)/8)}},
		{"all alike", func(int, int) byte { return 7 }, Bounds{100, 100, 100}},
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
			if c.want.Sparse != 0 { // else no codec for sparse rows serves the table
				near("sparse", got.Sparse, c.want.Sparse)
			}
		})
	}
}
