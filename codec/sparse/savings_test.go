package sparse

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/codec/internal/codectest"
)

// normalised divides the rows of a float32 table by their sums, unless these are 0.
func normalised(table []byte, rowBytes int) []byte {
	out := make([]byte, len(table))
	for r := 0; r < len(table); r += rowBytes {
		sum := float32(0)
		for i := r; i < r+rowBytes; i += 4 {
			sum += math.Float32frombits(binary.LittleEndian.Uint32(table[i:]))
		}
		for i := r; i < r+rowBytes; i += 4 {
			x := math.Float32frombits(binary.LittleEndian.Uint32(table[i:]))
			if sum != 0 {
				x /= sum
			}
			binary.LittleEndian.PutUint32(out[i:], math.Float32bits(x))
		}
	}
	return out
}

// ones returns rows of float32 zeros with ones in random places.
func ones(rows, rowBytes, ones int) []byte {
	r := rand.New(rand.NewPCG(7, 8))
	table := make([]byte, rows*rowBytes)
	for i := range rows {
		for _, at := range r.Perm(rowBytes / 4)[:ones] {
			binary.LittleEndian.PutUint32(table[i*rowBytes+4*at:], math.Float32bits(1))
		}
	}
	return table
}

// TestTrain_SavingsOnRealTables trains on whole tables and holds the savings, in % of bytes, against the least that they should reach.
func TestTrain_SavingsOnRealTables(t *testing.T) {
	for _, c := range []struct {
		name  string
		table func(t *testing.T) ([]byte, int)
		least float64
	}{
		{"cora", func(t *testing.T) ([]byte, int) { return codectest.Table(t, "cora.npz") }, 99.4},
		{"cora, rows divided by their sums", func(t *testing.T) ([]byte, int) {
			table, rowBytes := codectest.Table(t, "cora.npz")
			return normalised(table, rowBytes), rowBytes
		}, 99.4},
		{"32 ones of 14,812 B", func(t *testing.T) ([]byte, int) { return ones(500, 14_812, 32), 14_812 }, 99.6},
		{"128 ones of 3,068 B", func(t *testing.T) ([]byte, int) { return ones(500, 3068, 128), 3068 }, 96.7},
		{"300 ones of 3,068 B", func(t *testing.T) ([]byte, int) { return ones(500, 3068, 300), 3068 }, 96.6},
		{"pubmed_tx", func(t *testing.T) ([]byte, int) { return codectest.Table(t, "pubmed_tx.npz") }, 90.0},
	} {
		t.Run(c.name, func(t *testing.T) {
			table, rowBytes := c.table(t)
			codec, err := Train(table, rowBytes, 4)
			if err != nil {
				t.Fatal(err)
			}
			saving := 100 * (1 - float64(codectest.RoundTrip(t, codec, table))/float64(len(table)))
			s := codec.shape
			t.Logf("saving %.2f %%: background %#x, rotated by %d, symbols of %d bits, %d of them", saving, s.Background, s.Rotate, s.SymbolBits, len(s.Symbols))
			if saving < c.least {
				t.Errorf("saving %.2f %%, want at least %.1f %%", saving, c.least)
			}
		})
	}
}
