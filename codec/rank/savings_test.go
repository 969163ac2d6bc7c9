package rank

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tensorcache/tensorcache/codec/internal/codectest"
)

// logSaving trains on a whole table, logs what it saves, and returns that, in % of bytes.
func logSaving(t *testing.T, name string, table []byte, rowBytes, elementBytes int) float64 {
	t.Helper()
	codec, err := Train(table, rowBytes, elementBytes)
	if err != nil {
		t.Fatal(err)
	}
	saving := 100 * (1 - float64(codectest.RoundTrip(t, codec, table))/float64(len(table)))
	s := codec.shape
	t.Logf("%s, rows of %d bytes: saving %.2f %%: rotated by %d, symbols of %d bits, digits %v, %d classes with bases", name, rowBytes, saving, s.Rotate,
		s.SymbolBits, s.Digits, len(s.Bases))
	return saving
}

// float16s converts normal float32 elements to float16, rounding to nearest even. Those below float16's normal numbers become zero.
func float16s(table []byte) (halves []byte) {
	for x := range slices.Chunk(table, 4) {
		u := binary.LittleEndian.Uint32(x)
		half := uint16(u >> 16 & 0x8000)
		if size := u & 0x7fffffff; size >= (127-14)<<23 {
			half |= uint16((size - (127-15)<<23 + 0xfff + size>>13&1) >> 13)
		}
		halves = binary.LittleEndian.AppendUint16(halves, half)
	}
	return halves
}

// vectorsOf returns rows of float32 elements like those of vectors that are trained: columns of different scales and means, and rows of
// different lengths.
func vectorsOf(seed uint64, rows, columns int) (table []byte) {
	r := rand.New(rand.NewPCG(seed, 11))
	scale, mean := make([]float64, columns), make([]float64, columns)
	for j := range columns {
		scale[j], mean[j] = math.Exp(r.NormFloat64()/4), 1.2*r.NormFloat64()
	}
	for range rows {
		length := math.Exp(r.NormFloat64() / 2)
		for j := range columns {
			table = binary.LittleEndian.AppendUint32(table, math.Float32bits(float32(length*(r.NormFloat64()*scale[j]+mean[j]))))
		}
	}
	return table
}

// TestTrain_Savings trains on whole tables and holds the savings, in % of bytes, against what was measured. Those of tables with bases or classes
// are more than rank saves without.
func TestTrain_Savings(t *testing.T) {
	for _, c := range []struct {
		file                        string // "": vectorsOf
		floats, bfloat16s, float16s float64
	}{
		{"ncf_user.npy", 16.9, 34.7, 16.1},
		{"reddit.npz", 29.8, 60.8, 42.7},
		{"pubmed_tx.npz", 32, 0, 0},
		{"", 17.4, 35.1, 16.3},
	} {
		name := c.file
		if name == "" {
			name = "vectors"
		}
		t.Run(name, func(t *testing.T) {
			table, rowBytes := vectorsOf(1, 4000, 128), 512
			if c.file != "" {
				table, rowBytes = codectest.Table(t, c.file)
			}
			hold := func(what string, table []byte, elementBytes int, least float64) {
				if least == 0 {
					return
				}
				if saving := logSaving(t, what, table, rowBytes/4*elementBytes, elementBytes); saving < least {
					t.Errorf("%s: saving %.2f %%, want at least %.1f %%", what, saving, least)
				}
			}
			hold("float32", table, 4, c.floats)
			hold("bfloat16", codectest.BFloat16(table), 2, c.bfloat16s)
			hold("float16", float16s(table), 2, c.float16s)
		})
	}
	t.Run("sz_testdouble.npy", func(t *testing.T) {
		table, rowBytes := codectest.Table(t, "sz_testdouble.npy")
		if saving := logSaving(t, "float64", table, rowBytes, 8); saving < 15.5 {
			t.Errorf("saving %.2f %%, want at least 15.5 %%", saving)
		}
	})
}
