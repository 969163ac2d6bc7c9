package drive

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/internal/gputest"
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

// textConfig is of a table that slab and host tier hold a part of, and a short text.
func textConfig(t *testing.T) Config {
	r := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, 0, 20_000)
	for range 10_000 {
		data = binary.LittleEndian.AppendUint16(data, uint16(r.NormFloat64()*300+2000))
	}
	path := filepath.Join(t.TempDir(), "tokens.npy")
	header := "{'descr': '<u2', 'fortran_order': False, 'shape': (10000,), }"
	if err := os.WriteFile(path, append([]byte("\x93NUMPY\x01\x00"+string(rune(len(header)))+"\x00"+header), data...), 0o644); err != nil {
		t.Fatal(err)
	}
	return Config{
		Dir: t.TempDir(), Bytes: 60 << 20, Rounds: 1, Share: 0.02, Depth: 8, PageBytes: 4 << 10, Seed: 3,
		Gather: GatherConfig{Device: "host", HostMemory: 24 << 20, Budget: 8 << 20, Rows: 2000, Batches: 2},
		Text: TextConfig{NgramSpec: workload.NgramSpec{Tokens: path, Layers: 2, Heads: 2}, BatchSize: 32, Steps: 20,
			Leads: []time.Duration{time.Millisecond, 300 * time.Millisecond}},
	}
}

// checkSteps: steps with no lead read what they lack themselves; those whose rows are in memory, or were known for long, find them there.
func checkSteps(t *testing.T, c Config) {
	t.Helper()
	r, err := Measure(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	s := r.Steps
	if s == nil || s.Tokens != 10_000 || s.Trained != 8000 || s.StepTokens != 32 || s.Rows != 32*8 || len(s.Waits) != 4 {
		t.Fatalf("%+v", s)
	}
	for i, w := range s.Waits {
		if w.Steps != 20 || w.Ready.P50 <= 0 || w.Ready.P50 > w.Ready.P99 || w.Ready.P99 > w.Ready.Max || w.Returned.Max < w.Ready.Max || w.Hits <= 0 || w.Hits >= 1 {
			t.Errorf("%d: %+v", i, w)
		}
	}
	none, memory, short, long := s.Waits[0], s.Waits[1], s.Waits[2], s.Waits[3]
	if none.InMemory || none.Lead != 0 || none.AbsentRows < 10 || none.PagesRead < 10 || none.ReadRows != none.AbsentRows || none.BytesRead < 4000*none.PagesRead/2 {
		t.Errorf("without lead: %+v", none)
	}
	if !memory.InMemory || memory.AbsentRows != 0 || memory.PagesRead != 0 {
		t.Errorf("in memory: %+v", memory)
	}
	if short.Lead != 0.001 || long.Lead != 0.3 || long.AbsentRows > none.AbsentRows/10 || long.PagesRead < none.PagesRead/2 || short.InMemory || long.InMemory {
		t.Errorf("ahead: %+v, %+v, without %+v", short, long, none)
	}
	if r.Gathers.AbsentRows < 1 || r.Gathers.OfPageARow <= 0 || r.Gathers.OfPageARow > 0.1 {
		t.Errorf("%+v", r.Gathers)
	}
}

func TestMeasure_Text(t *testing.T) { checkSteps(t, textConfig(t)) }

// TestGPU_MeasureText is TestMeasure_Text on a GPU.
func TestGPU_MeasureText(t *testing.T) {
	gputest.Require(t)
	c := textConfig(t)
	c.Gather.Device = "cuda"
	checkSteps(t, c)
}

func TestMeasure_TextBadInput(t *testing.T) {
	for want, change := range map[string]func(c *Config){
		"row bytes (512) must be those of rows of float8 values (264)": func(c *Config) { c.RowBytes = 512 },
		"a device must be given":                       func(c *Config) { c.Gather.Device = "" },
		"steps (-1) must not be negative":              func(c *Config) { c.Text.Steps = -1 },
		"lead (0s) must be above 0":                    func(c *Config) { c.Text.Leads = []time.Duration{0} },
		"no such file":                                 func(c *Config) { c.Text.Tokens = "missing.npy" },
		`Phase ("chat") must be decode or prefill`:     func(c *Config) { c.Text.Phase = "chat" },
		"Rows (3971) must be more: 800 tables of 4 ro": func(c *Config) { c.Bytes, c.Text.Layers = 1<<20, 200 },
	} {
		c := textConfig(t)
		c.Bytes = 8 << 20
		change(&c)
		if _, err := Measure(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
