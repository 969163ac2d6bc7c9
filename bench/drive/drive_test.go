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

// TestMeasure_Gathers reads batches over the pages, of which the host tier has a part, and finds all rows.
func TestMeasure_Gathers(t *testing.T) {
	r, err := Measure(t.Context(), Config{
		Dir: t.TempDir(), Bytes: 40 << 20, Rounds: 1, Share: 0.1, Depth: 8, PageBytes: 64 << 10,
		Gather: GatherConfig{Device: "host", HostMemory: 8 << 20, Budget: 4 << 20, Rows: 2000, Batches: 3},
	})
	if err != nil {
		t.Fatal(err)
	}
	g := r.Gathers
	if g == nil || g.BatchSeconds <= 0 || g.ResidentSeconds <= 0 || g.PlainSeconds <= 0 || g.AbsentRows < 1 || g.PagesRead < 1 || g.PrefetchSeconds <= 0 || g.HeldShare < 0.8 {
		t.Errorf("%+v", g)
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
