package gpu

import (
	"bytes"
	"encoding/xml"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// example is a report with invented figures.
func example(t *testing.T) *Report {
	t.Helper()
	r, err := ReadReports([]string{filepath.Join("testdata", "gpu.json")})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestMarkdown_Golden(t *testing.T) {
	t.Parallel()
	var got bytes.Buffer
	if err := Markdown(&got, example(t)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "gpu.md.golden")
	if *update {
		if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("%s (go test -update rewrites it):\n got\n%s\nwant\n%s", path, &got, want)
	}
}

// TestMarkdown_MissedGoalsShow: no figure is rounded to a goal that it misses.
func TestMarkdown_MissedGoalsShow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		x            Result
		value, ratio string
	}{
		{Result{Value: 471, Ratio: 0.988, Goal: 0.99, GoalOf: RatioAtLeast}, "471", "0.988"},
		{Result{Value: 471, Ratio: 0.9896, Goal: 0.99, GoalOf: RatioAtLeast}, "471", "0.9896"},
		{Result{Value: 471, Ratio: 0.98, Goal: 0.99, GoalOf: RatioAtLeast}, "471", "0.98"},
		{Result{Value: 471, Ratio: 0.991, Goal: 0.99, GoalOf: RatioAtLeast, Reached: true}, "471", "0.99"},
		{Result{Value: 20.04, Ratio: 0.5, Goal: 20, GoalOf: ValueAtMost}, "20.040", "0.50"},
		{Result{Value: 27.2, Ratio: 0.5, Goal: 20, GoalOf: ValueAtMost}, "27.2", "0.50"},
		{Result{Value: 299.7, Goal: 300, GoalOf: ValueAtLeast}, "299.700", "–"},
		{Result{Value: 1.004, Ratio: 1.004}, "1.00", "1.00"},
	} {
		if value, ratio := gpuValue(&c.x), gpuRatio(&c.x); value != c.value || ratio != c.ratio {
			t.Errorf("%+v: %s and %s, want %s and %s", c.x, value, ratio, c.value, c.ratio)
		}
	}
}

// TestPicture_Text: what a reader needs to know is in the picture, and in valid XML.
func TestPicture_Text(t *testing.T) {
	t.Parallel()
	r := example(t)
	var shown []string
	for d := xml.NewDecoder(strings.NewReader(pictureOf(machine(r), charts(r)...).draw(t))); ; {
		token, err := d.Token()
		if token == nil {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if text, ok := token.(xml.CharData); ok {
			shown = append(shown, strings.TrimSpace(string(text)))
		}
	}
	for _, want := range []string{
		"Test GPU, driver 1.2.3, CUDA 4.5, commit 0123456789ab",
		"Hits: rows from device memory", "Misses: rows from host memory", "row bytes", "GB/s of output", "256", "400", "4096",
		"hit-decode, N(0,1)", "hit-decode, sparse", "gather-hits, N(0,1)", "plain gather, uncompressed", "limit: read and write uncompressed", "limit: read sparse, write",
		"gather-misses, N(0,1)", "zero-copy, sorted", "zero-copy, unsorted", "limit: link, sectors of stored rows", "limit: link, uncompressed",
		"gather-misses, 16 GiB, 15 threads", "gather-misses, 16 GiB, 4 threads", "zero-copy, sorted, 16 GiB",
	} {
		if !slices.Contains(shown, want) {
			t.Errorf("the plot does not say %q", want)
		}
	}
}

// TestPicture_DrawsTheFigures: each result that the plot is about moves it, and the others do not.
func TestPicture_DrawsTheFigures(t *testing.T) {
	t.Parallel()
	plot := func(r *Report) string { return string(pictureOf("", charts(r)...)) }
	before := plot(example(t))
	if again := plot(example(t)); again != before {
		t.Fatal("the same report gives another picture")
	}
	about := []string{"link", "device-copy", "hit-decode", "gather-hits", "gather-misses", "gather-misses-large"}
	for i, x := range example(t).Results {
		r := example(t)
		r.Results[i].Value *= 0.9
		drawn := slices.Contains(about, x.Case) && (x.Case != "link" || x.Codec == "to device")
		if moved := plot(r) != before; moved != drawn {
			t.Errorf("%s %s of %d B: another value changes the picture: %v, want %v", x.Case, x.Codec, x.RowBytes, moved, drawn)
		}
	}
}
