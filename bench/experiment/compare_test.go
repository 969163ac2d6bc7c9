package experiment

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCompareMetric_Verdicts(t *testing.T) {
	higher, lower := Metric{Name: "h", Higher: true}, Metric{Name: "l"}
	for _, c := range []struct {
		name    string
		m       Metric
		a, b    []float64
		verdict string
		p       float64
	}{
		// Of the 70 ways to divide 8 values into 4 and 4, two are as far apart.
		{"better", higher, []float64{1, 2, 3, 4}, []float64{5, 6, 7, 8}, Better, 2. / 70},
		{"worse", lower, []float64{1, 2, 3, 4}, []float64{5, 6, 7, 8}, Worse, 2. / 70},
		{"less is better", lower, []float64{5, 6, 7, 8}, []float64{1, 2, 3, 4}, Better, 2. / 70},
		{"overlap", higher, []float64{1, 2, 3, 6}, []float64{4, 5, 7, 8}, Noise, 8. / 70},
		{"three", higher, []float64{1, 2, 3}, []float64{5, 6, 7}, TooFew, 2. / 20},
		{"one", higher, []float64{1}, []float64{2}, TooFew, 1},
		{"same", higher, []float64{2, 2, 2, 2}, []float64{2, 2, 2, 2}, Same, 1},
		{"same one", higher, []float64{2}, []float64{2}, Same, 1},
	} {
		got := compareMetric(c.m, c.a, c.b, 0.05)
		if got.Verdict != c.verdict || math.Abs(got.P-c.p) > 1e-9 {
			t.Errorf("%s: %s at p = %v, want %s at %v", c.name, got.Verdict, got.P, c.verdict, c.p)
		}
	}
	if got := compareMetric(higher, []float64{0}, []float64{1}, 0.05); got.Delta != nil {
		t.Errorf("1 ÷ 0 is %v", *got.Delta)
	}
	if got := compareMetric(higher, []float64{4, 6}, []float64{4}, 0.05); got.A != 5 || got.B != 4 || math.Abs(*got.Delta+0.2) > 1e-9 {
		t.Errorf("%+v", got)
	}
}

// cellOf returns a cell with this hit ratio.
func cellOf(policy, budget string, seed uint64, hits int64) Cell {
	c := Cell{Config: map[string]any{"policy": policy, "budget": budget, "codec": "none", "host_tier": "inplace", "seed": seed}, Seed: seed, Result: &Result{}}
	c.Result.Results.Lookups, c.Result.Results.Hits, c.Result.Results.HitRatio = 1000, hits, float64(hits)/1000
	return c
}

// linesOf writes values as JSON lines.
func linesOf[T any](t *testing.T, values ...T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f.jsonl")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, v := range values {
		if err := json.NewEncoder(f).Encode(v); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func TestCompare_MatchesGroups(t *testing.T) {
	var a, b []Cell
	for seed := range uint64(5) {
		n := int64(seed)
		a = append(a, cellOf("freq", "5%", seed, 300+n), cellOf("lru", "5%", seed, 200+n), cellOf("lru", "9%", seed, 1))
		b = append(b, cellOf("lru", "5%", seed, 200+n), cellOf("freq", "5%", seed, 250+n), cellOf("freq", "9%", seed, 1))
	}
	c, err := Compare(linesOf(t, a...), linesOf(t, b...), 0.05)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Groups) != 2 || c.Groups[0].Name != "freq, 5%, none, inplace" || c.Groups[1].Name != "lru, 5%, none, inplace" {
		t.Fatalf("%+v", c.Groups)
	}
	if m := c.Groups[0].Metrics[0]; m.Name != "hit_ratio" || m.Verdict != Worse || m.A != 0.302 || m.B != 0.252 || m.NA != 5 {
		t.Errorf("freq: %+v", m)
	}
	if m := c.Groups[1].Metrics[0]; m.Verdict != Noise {
		t.Errorf("lru: %+v", m)
	}
	if strings.Join(c.OnlyA, ";") != "lru, 9%, none, inplace" || strings.Join(c.OnlyB, ";") != "freq, 9%, none, inplace" || c.Count(Worse) != 1 {
		t.Errorf("only A %q, only B %q, %d worse", c.OnlyA, c.OnlyB, c.Count(Worse))
	}
	// One group each: whatever their settings.
	c, err = Compare(linesOf(t, a[0]), linesOf(t, *b[0].Result), 0.05)
	if err != nil || len(c.Groups) != 1 || c.Groups[0].Metrics[0].Verdict != TooFew {
		t.Errorf("%+v, %v", c, err)
	}
	c, err = Compare(linesOf(t, a[0]), linesOf(t, b[0]), 0.05)
	if err != nil || strings.Join(c.Groups[0].Differences, ";") != "policy: freq → lru" {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestCompare_BadInput(t *testing.T) {
	good := linesOf(t, cellOf("freq", "5%", 1, 1), cellOf("lru", "5%", 1, 1))
	other := linesOf(t, cellOf("freq", "6%", 1, 1), cellOf("lru", "6%", 1, 1))
	text := func(s string) string {
		path := filepath.Join(t.TempDir(), "f.json")
		if err := os.WriteFile(path, []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	empty := t.TempDir()
	for _, c := range []struct{ b, want string }{
		{filepath.Join(empty, "none"), "compare: stat FILE: no such file or directory"},
		{empty, "compare: sweep: open FILE/cells.jsonl: no such file or directory"},
		{text(""), "compare: FILE: must have at least one run"},
		{text("[1]"), "compare: FILE: value 1, before byte 3: must be a JSON object: a sweep's cell, or what run --json prints, with at least one lookup"},
		{text(`{"codec":1,"ratio":2}`), "compare: FILE: value 1, before byte 21: must be a JSON object: a sweep's cell, or what run --json prints, with at least one lookup"},
		{text(`{"result":{},"config":{}}`), "compare: FILE: value 1, before byte 25: must be a JSON object: a sweep's cell, or what run --json prints, with at least one lookup"},
		{text(`{"results":`), "compare: FILE: value 1, before byte 0: unexpected EOF"},
		{other, "compare: " + good + ` and FILE have no cell in common: ` + good + ` has "freq, 5%, none, inplace", FILE has "freq, 6%, none, inplace"`},
	} {
		if _, err := Compare(good, c.b, 0.05); err == nil || err.Error() != strings.ReplaceAll(c.want, "FILE", c.b) {
			t.Errorf("got  %v\nwant %s", err, strings.ReplaceAll(c.want, "FILE", c.b))
		}
	}
	if _, err := Compare(good, good, 0); err == nil || err.Error() != "compare: --alpha (0) must be above 0 and below 1" {
		t.Error(err)
	}
}
