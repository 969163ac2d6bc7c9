package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/bench/gpu"
	"github.com/tensorcache/tensorcache/bench/report"
)

const gpuExample = "../../bench/report/testdata/gpu.json"

// TestGPUBench_From: a saved report is printed in each form without a GPU, and its plot written beside.
func TestGPUBench_From(t *testing.T) {
	t.Parallel()
	saved, err := os.ReadFile(gpuExample)
	if err != nil {
		t.Fatal(err)
	}
	if got := succeed(t, "gpu-bench", "--from", gpuExample, "--json"); got != string(saved) {
		t.Errorf("--json prints\n%s\nwant\n%s", got, saved)
	}
	plot := filepath.Join(t.TempDir(), "p.svg")
	for flag, begins := range map[string]string{"": "Test GPU, driver 1.2.3, CUDA 4.5, commit 0123456789ab\n┌", "--markdown": "Test GPU, driver 1.2.3, CUDA 4.5, commit 0123456789ab. GB/s"} {
		args := []string{"gpu-bench", "--from", gpuExample, "--plot", plot}
		if flag != "" {
			args = append(args, flag)
		}
		if out := succeed(t, args...); !strings.HasPrefix(out, begins) {
			t.Errorf("%s prints %.80q", flag, out)
		}
		if b, err := os.ReadFile(plot); err != nil || !bytes.Contains(b, []byte("</svg>")) {
			t.Errorf("%s: plot of %d bytes, %v", flag, len(b), err)
		}
		if err := os.Remove(plot); err != nil {
			t.Fatal(err)
		}
	}
}

func TestGPUBench_BadFlags(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	old := write(t, "r.json", []byte(`{"results":[{"case":"gather"}]}`))
	for want, flags := range map[string][]string{
		`gpu-bench: case ("hits") must be one of ` + strings.Join(gpu.Cases, ", "):                                                     {"--cases", "lookup,hits"},
		"gpu-bench: row (6 bytes) must be a multiple of 4 from 4 to 1048572":                                                           {"--rows", "512,6"},
		"gpu-bench: table (7 bytes) must be 1048576 to 2^40 - 1":                                                                       {"--table-bytes", "7"},
		"gpu-bench: runs (-1) must be 1 to 10000":                                                                                      {"--runs", "-1"},
		"--from and --cases contradict each other":                                                                                     {"--from", gpuExample, "--cases", "lookup"},
		"--from and --host-threads contradict each other":                                                                              {"--from", gpuExample, "--host-threads", "4"},
		"--json and --markdown contradict each other":                                                                                  {"--json", "--markdown"},
		"report: open " + in("none.json") + ": no such file or directory":                                                              {"--from", in("none.json")},
		"report " + old + `: result 0: case ("gather") must be a case of gpu-bench`:                                                    {"--from", old},
		`--plot ("p.jpg") must end in .svg or .png`:                                                                                    {"--from", gpuExample, "--plot", "p.jpg"},
		`--plot ("p") must end in .svg or .png`:                                                                                        {"--plot", "p"},
		`--plot ("` + in("no/p.svg") + `") must be a file that can be written: open ` + in("no/p.svg") + ": no such file or directory": {"--from", gpuExample, "--plot", in("no/p.svg")},
	} {
		refuse(t, want, append([]string{"gpu-bench"}, flags...)...)
	}
	// A path is tried before anything is measured, and nothing is left there.
	if _, stderr, status := cachebench(t, "gpu-bench", "--from", old, "--plot", in("p.png")); status != 1 || !strings.Contains(stderr, "gather") {
		t.Errorf("status %d, %q", status, stderr)
	}
	if _, err := os.Stat(in("p.png")); !os.IsNotExist(err) {
		t.Errorf("a failed run left a plot: %v", err)
	}
}

// TestGPUBench_Docs: the tables and the plot of the documentation are those of the committed figures; -update makes them so.
func TestGPUBench_Docs(t *testing.T) {
	t.Parallel()
	const docs, begin, end = "../../docs/", "<!-- from results/gpu-bench.json: make gpu-docs -->\n", "<!-- end -->"
	res, err := gpu.ReadReport(docs + "results/gpu-bench.json")
	if err != nil {
		t.Fatal(err)
	}
	var table, plot bytes.Buffer
	if err := report.GPUMarkdown(&table, res); err != nil {
		t.Fatal(err)
	}
	if err := report.GPUPlot(&plot, res, "svg"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(docs + "performance.md")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("docs/performance.md has no place for the tables, between %q and %q", begin, end)
	}
	for path, want := range map[string]string{docs + "performance.md": before + begin + table.String() + end + after, docs + "results/gpu-bench.svg": plot.String()} {
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if have, err := os.ReadFile(path); err != nil || string(have) != want {
			t.Errorf("%s is not what results/gpu-bench.json gives; make gpu-docs rewrites it (%v)", strings.TrimPrefix(path, "../../"), err)
		}
	}
}
