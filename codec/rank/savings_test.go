package rank

import (
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

// TestTrain_Savings trains on whole tables and holds the savings, in % of bytes, against what was measured. Those of tables with bases or classes
// are more than rank saves without.
func TestTrain_Savings(t *testing.T) {
	for _, c := range []struct {
		file                        string // "": codectest.Vectors
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
			table, rowBytes := codectest.Vectors(1, 4000, 128), 512
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
			hold("float16", codectest.Float16(table), 2, c.float16s)
		})
	}
	t.Run("sz_testdouble.npy", func(t *testing.T) {
		table, rowBytes := codectest.Table(t, "sz_testdouble.npy")
		if saving := logSaving(t, "float64", table, rowBytes, 8); saving < 15.5 {
			t.Errorf("saving %.2f %%, want at least 15.5 %%", saving)
		}
	})
}
