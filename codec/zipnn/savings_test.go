package zipnn

import (
	"testing"

	"github.com/tensorcache/tensorcache/codec/internal/codectest"
	"github.com/tensorcache/tensorcache/dtype"
)

// TestTrain_SavingsOnRealTables trains on whole tables and holds the savings, in % of bytes, against those of an independent
// prototype, which are known to one decimal, less half a percent for the ends of regions in rows of 512 bytes and more.
func TestTrain_SavingsOnRealTables(t *testing.T) {
	for _, c := range []struct {
		file     string
		dtype    dtype.Type
		bfloat16 bool
		least    float64
	}{
		{"cora.npz", dtype.Float32, false, 96.3}, {"pubmed_tx.npz", dtype.Float32, false, 78.9}, {"reddit.npz", dtype.Float32, false, 24.9},
		{"ncf_user.npy", dtype.Float32, false, 14.95}, {"sz_testdouble.npy", dtype.Float64, false, 35.8}, {"ncf_user.npy", dtype.BFloat16, true, 29.95},
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
			k, err := Family.Train(table, rowBytes, c.dtype)
			if err != nil {
				t.Fatal(err)
			}
			saving := 100 * (1 - float64(codectest.RoundTrip(t, k, table))/float64(len(table)))
			t.Logf("saving %.2f %%, coded planes %d", saving, len(k.(*Codec).coded))
			if saving < c.least {
				t.Errorf("saving %.2f %%, want at least %.1f %%", saving, c.least)
			}
		})
	}
}
