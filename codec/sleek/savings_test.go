package sleek

import (
	"testing"

	"github.com/tensorcache/tensorcache/codec/internal/codectest"
	"github.com/tensorcache/tensorcache/dtype"
)

// TestTrain_SavingsOnRealTables trains on whole tables and holds the savings against the least that they should reach. With
// -v it prints them for every subchunk length.
func TestTrain_SavingsOnRealTables(t *testing.T) {
	for _, tc := range []struct {
		file  string
		of    dtype.Type
		least float64 // %
	}{
		{"cora.npz", dtype.Float32, 89.7}, {"pubmed_tx.npz", dtype.Float32, 65.3}, {"reddit.npz", dtype.Float32, 8.9},
		{"ncf_user.npy", dtype.Float32, 10.5}, {"sz_testdouble.npy", dtype.Float64, 12.7}, {"ncf_user.npy", dtype.BFloat16, 21.0},
		{"reddit.npz", dtype.BFloat16, 17.9}, {"sz_testfloat.npy", dtype.Float32, 14.8},
	} {
		t.Run(tc.file+"/"+tc.of.String(), func(t *testing.T) {
			table, rowBytes := codectest.Table(t, tc.file)
			if tc.of == dtype.BFloat16 { // the upper halves of float32
				for i := 0; i < len(table); i += 4 {
					copy(table[i/2:], table[i+2:i+4])
				}
				table, rowBytes = table[:len(table)/2], rowBytes/2
			}
			best, err := Train(table, rowBytes, tc.of)
			if err != nil {
				t.Fatal(err)
			}
			saving := func(c *Codec) float64 {
				return 100 * (1 - float64(sampleBytes(table, []*Codec{c})[0])/float64(len(table)))
			}
			for g := minSubchunk; g <= maxSubchunk; g *= 2 {
				c, err := testCodec(tc.of, rowBytes, g)
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("G=%d: %.2f %%", g, saving(c))
			}
			if s := saving(best); s < tc.least {
				t.Errorf("saving %.2f %% with G=%d, want at least %.1f %%", s, best.subchunk, tc.least)
			}
		})
	}
}
