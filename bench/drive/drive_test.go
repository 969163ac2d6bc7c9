package drive

import (
	"os"
	"testing"
)

// TestMeasure: both readers read all that was asked for, and nothing stays on the drive.
func TestMeasure(t *testing.T) {
	dir := t.TempDir()
	r, err := Measure(t.Context(), Config{Dir: dir, Bytes: 40 << 20, Rounds: 2, Share: 1, Depth: 8})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Readers) < 2 || r.Readers[0].Name != plain || r.Readers[0].OfPlain != 1 || r.Readers[1].Name != "pread" {
		t.Errorf("%+v", r.Readers)
	}
	for _, x := range r.Readers {
		if x.GBPerSecond <= 0 || x.OfPlain <= 0 || (x.RowsPerSecond > 0) != (x.Name != plain) {
			t.Errorf("%+v", x)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if _, err := Measure(t.Context(), Config{Dir: dir}); err == nil {
		t.Error("a table of no bytes was measured")
	}
}

// BenchmarkReadRows reads half of the pages of a table of 2 GiB in the folder TENSORCACHE_DRIVE, by every reader.
func BenchmarkReadRows(b *testing.B) {
	dir := os.Getenv("TENSORCACHE_DRIVE")
	if dir == "" {
		b.Skip("TENSORCACHE_DRIVE is not set to a folder on a drive")
	}
	for b.Loop() {
		r, err := Measure(b.Context(), Config{Dir: dir, Bytes: 2 << 30})
		if err != nil {
			b.Fatal(err)
		}
		for _, x := range r.Readers {
			b.ReportMetric(x.GBPerSecond, x.Name+"_GB/s")
			b.ReportMetric(x.OfPlain, x.Name+"_of_plain")
		}
	}
}
