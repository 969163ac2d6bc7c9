package ndzip

import (
	"testing"

	"github.com/tensorcache/tensorcache/codec/internal/codectest"
	"github.com/tensorcache/tensorcache/dtype"
)

// TestEncode_SavingsOnRealTables holds the savings against the least that they should reach.
func TestEncode_SavingsOnRealTables(t *testing.T) {
	for _, tc := range []struct {
		file  string
		of    dtype.Type
		least float64 // %
	}{
		{"cora.npz", dtype.Float32, 63.1}, {"pubmed_tx.npz", dtype.Float32, 19.1}, {"reddit.npz", dtype.Float32, 11.8},
		{"ncf_user.npy", dtype.Float32, 0}, {"sz_testdouble.npy", dtype.Float64, 25.7}, {"sz_testfloat.npy", dtype.Float32, 26.6},
		{"ncf_user.npy", dtype.BFloat16, 7.6}, {"reddit.npz", dtype.BFloat16, 34.1},
	} {
		t.Run(tc.file+"/"+tc.of.String(), func(t *testing.T) {
			table, rowBytes := codectest.Table(t, tc.file)
			if tc.of == dtype.BFloat16 { // the upper halves of float32
				for i := 0; i < len(table); i += 4 {
					copy(table[i/2:], table[i+2:i+4])
				}
				table, rowBytes = table[:len(table)/2], rowBytes/2
			}
			c, err := New(tc.of, rowBytes)
			if err != nil {
				t.Fatal(err)
			}
			dst, sum := make([]byte, c.EncodeBound()), 0
			for at := 0; at < len(table); at += rowBytes {
				sum += min(c.encode(dst, table[at:][:rowBytes]), rowBytes)
			}
			s := 100 * (1 - float64(sum)/float64(len(table)))
			t.Logf("%.2f %%", s)
			if s < tc.least {
				t.Errorf("saving %.2f %%, want at least %.1f %%", s, tc.least)
			}
		})
	}
}
