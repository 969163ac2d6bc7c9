package report

import (
	"bytes"
	"encoding/xml"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/bench/gpu"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// example is a report with invented figures.
func example(t *testing.T) *gpu.Report {
	t.Helper()
	r, err := gpu.ReadReport(filepath.Join("testdata", "gpu.json"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestGPU_Golden(t *testing.T) {
	t.Parallel()
	for name, print := range map[string]func(*bytes.Buffer) error{
		"gpu.txt.golden": func(b *bytes.Buffer) error { return GPU(b, example(t)) },
		"gpu.md.golden":  func(b *bytes.Buffer) error { return GPUMarkdown(b, example(t)) },
	} {
		var got bytes.Buffer
		if err := print(&got); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", name)
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
}

// TestGPU_MissedGoalsShow: no figure is rounded to a goal that it misses.
func TestGPU_MissedGoalsShow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		x            gpu.Result
		value, ratio string
	}{
		{gpu.Result{Value: 471, Ratio: 0.988, Goal: 0.99, GoalOf: gpu.RatioAtLeast}, "471", "0.988"},
		{gpu.Result{Value: 471, Ratio: 0.9896, Goal: 0.99, GoalOf: gpu.RatioAtLeast}, "471", "0.9896"},
		{gpu.Result{Value: 471, Ratio: 0.98, Goal: 0.99, GoalOf: gpu.RatioAtLeast}, "471", "0.98"},
		{gpu.Result{Value: 471, Ratio: 0.991, Goal: 0.99, GoalOf: gpu.RatioAtLeast, Reached: true}, "471", "0.99"},
		{gpu.Result{Value: 20.04, Ratio: 0.5, Goal: 20, GoalOf: gpu.ValueAtMost}, "20.040", "0.50"},
		{gpu.Result{Value: 27.2, Ratio: 0.5, Goal: 20, GoalOf: gpu.ValueAtMost}, "27.2", "0.50"},
		{gpu.Result{Value: 299.7, Goal: 300, GoalOf: gpu.ValueAtLeast}, "299.700", "–"},
		{gpu.Result{Value: 1.004, Ratio: 1.004}, "1.00", "1.00"},
	} {
		if value, ratio := gpuValue(&c.x), gpuRatio(&c.x); value != c.value || ratio != c.ratio {
			t.Errorf("%+v: %s and %s, want %s and %s", c.x, value, ratio, c.value, c.ratio)
		}
	}
}

// TestGPUPlot_Text: what a reader needs to know is in the picture, and in valid XML.
func TestGPUPlot_Text(t *testing.T) {
	t.Parallel()
	r := example(t)
	var shown []string
	for d := xml.NewDecoder(strings.NewReader(pictureOf(machine(r), gpuCharts(r)...).draw(t))); ; {
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

// TestGPUPlot_DrawsTheFigures: each result that the plot is about moves it, and the others do not.
func TestGPUPlot_DrawsTheFigures(t *testing.T) {
	t.Parallel()
	plot := func(r *gpu.Report) string { return string(pictureOf("", gpuCharts(r)...)) }
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

// TestGPUPlot_Parts: one panel suffices, one row length too; nothing does not.
func TestGPUPlot_Parts(t *testing.T) {
	t.Parallel()
	r := example(t)
	r.Results = slices.DeleteFunc(r.Results, func(x gpu.Result) bool { return x.Case != "hit-decode" || x.RowBytes != 512 })
	var b bytes.Buffer
	if err := GPUPlot(&b, r); err != nil {
		t.Fatal(err)
	}
	if page := withoutScripts(b.String()); strings.Contains(page, "Misses") || !strings.Contains(page, "Hits") || strings.Contains(page, "NaN") {
		t.Error("hits of one row length: want one panel, without NaN")
	}
	r.Results = []gpu.Result{{Case: "lookup", RowBytes: 8, Value: 1}}
	err := GPUPlot(&bytes.Buffer{}, r)
	if want := "report: nothing to plot: no result of hit-decode, gather-hits, gather-misses or gather-misses-large"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
