package experiment

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestBaselines_CodeLiterals: of random bytes that take 64 of 256 values, and so have 6 bits each, zstd saves most of a quarter, though
// nothing repeats; lz4, which finds repetitions only, saves nothing.
func TestBaselines_CodeLiterals(t *testing.T) {
	t.Parallel()
	const rows, rowBytes = 64, 1024
	r := rand.New(rand.NewPCG(1, 1))
	for name, want := range map[string][2]float64{"zstd": {0.18, 0.25}, "lz4": {0, 0}} {
		c, err := baselines[name](rowBytes)
		if err != nil {
			t.Fatal(err)
		}
		row, back, dst := make([]byte, rowBytes), make([]byte, rowBytes), make([]byte, c.EncodeBound())
		stored := 0
		for range rows {
			for i := range row {
				row[i] = byte(3 * r.IntN(64))
			}
			n, err := c.Encode(dst, row)
			if err != nil {
				stored += rowBytes
				continue
			}
			stored += n
			if _, err := c.Decode(back, dst[:n]); err != nil || !bytes.Equal(back, row) {
				t.Fatalf("%s: %v, or another row came back", name, err)
			}
		}
		if saved := 1 - float64(stored)/(rows*rowBytes); saved < want[0] || saved > want[1] {
			t.Errorf("%s saves %.4f, want %v", name, saved, want)
		}
	}
}
