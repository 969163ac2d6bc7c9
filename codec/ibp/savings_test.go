package ibp

import (
	"testing"

	"github.com/tensorcache/tensorcache/codec/internal/codectest"
)

// TestTrain_SavingsOnRealTables trains on whole tables and holds the savings against the
// least that the byte-tight layout should reach. With -v it prints the table of docs/notebook/codecs-on-processors.md, with the best single threshold in both layouts.
func TestTrain_SavingsOnRealTables(t *testing.T) {
	for file, least := range map[string]float64{"cora.npz": 95.6, "pubmed_tx.npz": 86.7, "reddit.npz": 21.5, "ncf_user.npy": 12.7, "sz_testdouble.npy": 14.7} {
		t.Run(file, func(t *testing.T) {
			table, rowBytes := codectest.Table(t, file)
			search, err := SearchOf(table, rowBytes)
			if err != nil {
				t.Fatal(err)
			}
			saving := func(bytes int64) float64 { return 100 * (1 - float64(bytes)/float64(len(table))) }
			byThreshold, err := thresholdMasks(search)
			if err != nil {
				t.Fatal(err)
			}
			best, threshold, reference := 0.0, 0.0, 0.0
			for _, chunk := range []int{4, 8} {
				sets, err := candidatesOf(search, chunk, byThreshold)
				if err != nil {
					t.Fatal(err)
				}
				for i, m := range sets {
					c, err := New(chunk, rowBytes, m.Mask, m.Bitval)
					if err != nil {
						t.Fatal(err)
					}
					s := saving(c.sampleBytes(table))
					best = max(best, s)
					if i == 0 {
						t.Logf("S=%d grown: %.2f %%", chunk, s)
						continue
					}
					threshold = max(threshold, s)
					if rowBytes%chunk == 0 {
						sum := int64(0)
						for at := 0; at < len(table); at += rowBytes {
							sum += int64(min(len(c.AppendReference(nil, table[at:][:rowBytes])), rowBytes))
						}
						reference = max(reference, saving(sum))
					}
				}
			}
			t.Logf("best %.2f %%, one threshold %.2f %%, one threshold in the reference layout %.2f %%", best, threshold, reference)
			if best < least || best < threshold || threshold < reference {
				t.Errorf("saving %.2f %%, want at least %.1f %%, and byte-tight (%.2f %%) not behind the reference (%.2f %%)", best, least, threshold, reference)
			}
		})
	}
}
