package rank

import (
	"testing"

	"github.com/tensorcache/tensorcache/codec/internal/codectest"
)

// TestTrain_SavingsOnRealTables trains on whole tables and holds the savings, in % of bytes, against what planes of
// exponents alone saved in a prototype, or more.
func TestTrain_SavingsOnRealTables(t *testing.T) {
	for _, c := range []struct {
		file         string
		elementBytes int
		bfloat16     bool
		least        float64
	}{
		{"ncf_user.npy", 4, false, 16.4}, {"ncf_user.npy", 2, true, 32.5},
		{"reddit.npz", 4, false, 28.5}, {"reddit.npz", 2, true, 57.5},
		{"pubmed_tx.npz", 4, false, 32}, {"sz_testdouble.npy", 8, false, 15.5},
	} {
		name := c.file
		if c.bfloat16 {
			name += " as bfloat16"
		}
		t.Run(name, func(t *testing.T) {
			table, rowBytes := codectest.Table(t, c.file)
			if c.bfloat16 {
				table, rowBytes = codectest.BFloat16(table), rowBytes/2
			}
			codec, err := Train(table, rowBytes, c.elementBytes)
			if err != nil {
				t.Fatal(err)
			}
			saving := 100 * (1 - float64(codectest.RoundTrip(t, codec, table))/float64(len(table)))
			s := codec.shape
			t.Logf("saving %.2f %%: rotated by %d, symbols of %d bits, digits %v", saving, s.Rotate, s.SymbolBits, s.Digits)
			if saving < c.least {
				t.Errorf("saving %.2f %%, want at least %.1f %%", saving, c.least)
			}
		})
	}
}
