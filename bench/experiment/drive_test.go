package experiment

import (
	"testing"
	"time"
)

// TestDrive_Measured compares reading times with those of two tables on the drives of an H200 (docs/tiers.md, docs/ngram.md): 0.76 of the 109,000 reads a second that a plain reader of
// 4 KiB pages has, and 1.03 of 1.29 GB/s at 64 KiB. Rows that are known 20 ms ahead wait so much less.
func TestDrive_Measured(t *testing.T) {
	t.Parallel()
	short, long := Drive{Reads: 0.76 * 109_000, Latency: 100 * time.Microsecond}, Drive{Bandwidth: "1.33GB/s", Latency: time.Millisecond}
	for _, of := range []struct {
		d                           Drive
		pages, bytes                float64
		measured, lead, least, most float64 // ms, and the bounds of predicted ÷ measured
	}{
		{short, 3250, 4096, 38.6, 0, 0.95, 1.1}, {short, 3250, 4096, 34.1, 5, 0.95, 1.1}, {short, 3250, 4096, 18.7, 20, 0.95, 1.1}, {short, 9720, 4096, 110, 0, 0.9, 1.1},
		{long, 3724, 64 << 10, 223, 0, 0.8, 1},
	} {
		ms := 1e3*of.d.Seconds(of.pages*of.bytes, of.pages) + 0.11 - of.lead
		if share := ms / of.measured; share < of.least || share > of.most {
			t.Errorf("%.0f pages, known %g ms ahead: predicted %.1f ms, measured %.1f", of.pages, of.lead, ms, of.measured)
		}
	}
}
