package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/format"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/bench/gpu"
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/dtype"
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
	plot := filepath.Join(t.TempDir(), "p.html")
	for flag, begins := range map[string]string{"": "Test GPU, driver 1.2.3, CUDA 4.5, commit 0123456789ab\n┌", "--markdown": "Test GPU, driver 1.2.3, CUDA 4.5, commit 0123456789ab. GB/s"} {
		args := []string{"gpu-bench", "--from", gpuExample, "--plot", plot}
		if flag != "" {
			args = append(args, flag)
		}
		if out := succeed(t, args...); !strings.HasPrefix(out, begins) {
			t.Errorf("%s prints %.80q", flag, out)
		}
		if b, err := os.ReadFile(plot); err != nil || !bytes.Contains(b, []byte("</html>")) {
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
		`gpu-bench: case ("hits") must be one of ` + strings.Join(gpu.Cases, ", "):                                                       {"--cases", "lookup,hits"},
		`gpu-bench: codec ("zip") must be one of ` + strings.Join(registry.Concrete(), ", "):                                             {"--codecs", "rank,zip"},
		"--from and --codecs contradict each other":                                                                                      {"--from", gpuExample, "--codecs", "rank"},
		"gpu-bench: row (6 bytes) must be a multiple of 4 from 4 to 1048572":                                                             {"--rows", "512,6"},
		"gpu-bench: table (7 bytes) must be 1048576 to 2^40 - 1":                                                                         {"--table-bytes", "7"},
		"gpu-bench: runs (-1) must be 1 to 10000":                                                                                        {"--runs", "-1"},
		"--from and --cases contradict each other":                                                                                       {"--from", gpuExample, "--cases", "lookup"},
		"--from and --host-threads contradict each other":                                                                                {"--from", gpuExample, "--host-threads", "4"},
		"--json and --markdown contradict each other":                                                                                    {"--json", "--markdown"},
		"report: open " + in("none.json") + ": no such file or directory":                                                                {"--from", in("none.json")},
		"report " + old + `: result 0: case ("gather") must be a case of gpu-bench`:                                                      {"--from", old},
		`--plot ("p.jpg") must end in .html`:                                                                                             {"--from", gpuExample, "--plot", "p.jpg"},
		`--plot ("p") must end in .html`:                                                                                                 {"--plot", "p"},
		`--plot ("` + in("no/p.html") + `") must be a file that can be written: open ` + in("no/p.html") + ": no such file or directory": {"--from", gpuExample, "--plot", in("no/p.html")},
	} {
		refuse(t, want, append([]string{"gpu-bench"}, flags...)...)
	}
	// A path is tried before anything is measured, and nothing is left there.
	if _, stderr, status := cachebench(t, "gpu-bench", "--from", old, "--plot", in("p.html")); status != 1 || !strings.Contains(stderr, "gather") {
		t.Errorf("status %d, %q", status, stderr)
	}
	if _, err := os.Stat(in("p.html")); !os.IsNotExist(err) {
		t.Errorf("a failed run left a plot: %v", err)
	}
}

// TestGPUBench_Rates: the codecs' rates that auto-selection goes by are those of the committed figures of an H200, else of an H100, as far as these have any;
// -update makes them so.
func TestGPUBench_Rates(t *testing.T) {
	t.Parallel()
	res, err := gpu.ReadReport("../../docs/results/gpu-bench.json")
	if err != nil {
		t.Fatal(err)
	}
	const path = "../../codec/gpurates.go"
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	newer, err := gpu.ReadReport("../../docs/results/gpu-bench-h100.json")
	if err != nil {
		t.Fatal(err)
	}
	rates := codec.RatesOnGPU()
	for _, report := range []*gpu.Report{newer, res} { // an H200's figures go before an H100's
		for name, rate := range codecRates(report) {
			if _, ok := rates[name]; !ok {
				t.Errorf("codec (%s) was measured, and has no rate in codec/gpurates.go", name)
			}
			have := rates[name]
			if rate.Rate == 0 { // hit-parts alone
				have.Rows[codec.ByteRows] = rate.Rows[codec.ByteRows]
				rate = have
			} else if len(rate.Rows[codec.ByteRows]) == 0 {
				rate.Rows[codec.ByteRows] = have.Rows[codec.ByteRows]
			}
			rates[name] = rate
		}
	}
	want := formatRates(rates)
	if *update && !t.Failed() {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
		have = want
	}
	if !bytes.Equal(have, want) {
		t.Errorf("codec/gpurates.go is not what docs/results/gpu-bench.json and gpu-bench-h100.json give; make gpu-docs rewrites it:\n%s", want)
	}
	// What would be written when there are new figures.
	rates["rank"] = codec.GPURate{Rate: 0.7, Ratio: 1.2, Ones: 1.3, OnesRatio: 12, Measured: true}
	if got := string(formatRates(rates)); !strings.Contains(got, `"rank": {Rate: 0.70, Ratio: 1.20, Ones: 1.30, OnesRatio: 12.00, Measured: true},`) {
		t.Error(got)
	}
}

// formatRates is codec/gpurates.go.
func formatRates(rates map[string]codec.GPURate) []byte {
	var b bytes.Buffer
	b.WriteString(`// Code generated by make gpu-docs from docs/results/gpu-bench.json, and gpu-bench-h100.json for what it lacks; DO NOT EDIT.

package codec

// gpuRates are the families' GPURate. Goals stand for those that no GPU has measured.
var gpuRates = map[string]GPURate{
`)
	for _, name := range slices.Sorted(maps.Keys(rates)) {
		r := rates[name]
		fmt.Fprintf(&b, "\t%-9s {Rate: %.2f, Ratio: %.2f", fmt.Sprintf("%q:", name), r.Rate, r.Ratio)
		if r.Ones != 0 {
			fmt.Fprintf(&b, ", Ones: %.2f, OnesRatio: %.2f", r.Ones, r.OnesRatio)
		}
		if r.Measured {
			b.WriteString(", Measured: true")
		}
		if slices.ContainsFunc(r.Rows[:], func(rows []codec.RowRate) bool { return len(rows) > 0 }) {
			b.WriteString(", Rows: [RowKinds][]RowRate{\n")
			for kind, rows := range r.Rows {
				if len(rows) == 0 {
					continue
				}
				fmt.Fprintf(&b, "\t\t%s: {", kindNames[kind])
				for i, of := range rows {
					if i > 0 {
						b.WriteString(", ")
					}
					fmt.Fprintf(&b, "{%d, %.2f, %.2f}", of.RowBytes, of.Rate, of.Ratio)
				}
				b.WriteString("},\n")
			}
			b.WriteString("\t}")
		}
		b.WriteString("},\n")
	}
	b.WriteString("}\n")
	source, err := format.Source(b.Bytes())
	if err != nil {
		panic(err)
	}
	return source
}

// kindNames are the names of codec's kinds of rows.
var kindNames = [codec.RowKinds]string{"Float32Rows", "BFloat16Rows", "Float16Rows", "ByteRows", "OnesRows"}

// TestGPUBench_Merge: several reports of one kind of machine print as one, in the order of the cases; others are refused.
func TestGPUBench_Merge(t *testing.T) {
	t.Parallel()
	one := write(t, "one.json", []byte(`{"device":"d","driver":"v","commit":"c","results":[{"case":"lookup","value":1}],"incomplete":[{"case":"load","reason":"not finished"}]}`))
	two := write(t, "two.json", []byte(`{"device":"d","driver":"v","commit":"c","results":[{"case":"link","value":2}]}`))
	other := write(t, "other.json", []byte(`{"device":"d","driver":"w","commit":"c","results":[{"case":"link","value":2}]}`))
	out := filepath.Join(t.TempDir(), "all.json")
	text := succeed(t, "gpu-bench", "--from", one, "--from", two, "--out", out)
	if link, lookup := strings.Index(text, "link"), strings.Index(text, "lookup"); link < 0 || lookup < link || !strings.Contains(text, "INCOMPLETE load: not finished") {
		t.Error(text)
	}
	if r, err := gpu.ReadReport(out); err != nil || len(r.Results) != 2 || len(r.Incomplete) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	refuse(t, "report (1 cases incomplete) must be whole: load: not finished", "gpu-bench", "--from", one+","+two, "--whole")
	refuse(t, "--from ("+one+","+other+"): reports (d, driver v, and d, driver w) must be of one device and driver",
		"gpu-bench", "--from", one+","+other)
}

// rateRows is the least row length, in bytes, that counts for a codec's rate. Shorter rows wait for memory, decoded or copied.
const rateRows = 512

// partsCodec is the codec for rows of parts, which hit-parts measures.
const partsCodec = "parts"

// bytesSuffix marks what hit-parts measures of the other codecs.
const bytesSuffix = " bytes"

// codecRates returns the rate of each codec, by name, from hit-codecs and hit-decode, and of the one for rows of parts from hit-parts: the medians over rows of
// 512 bytes and more, to two decimals. Rates are of float32 rows, or of bfloat16 rows if the codec serves no float32. Cases that are not whole give none.
func codecRates(r *gpu.Report) map[string]codec.GPURate {
	rates := map[string]codec.GPURate{}
	whole := func(cases ...string) bool {
		is := func(name string) bool { return slices.Contains(cases, name) }
		return !slices.ContainsFunc(r.Incomplete, func(s gpu.Skipped) bool { return is(s.Case) }) && slices.ContainsFunc(r.Results, func(x gpu.Result) bool { return x.Case == cases[0] })
	}
	codecs, parts := whole("hit-codecs", "hit-decode"), whole("hit-parts")
	of := map[string][]gpu.Result{}
	for _, x := range r.Results {
		if codecs && (x.Case == "hit-codecs" || x.Case == "hit-decode") || parts && x.Case == "hit-parts" {
			label := x.Codec
			if x.Case == "hit-parts" && x.Codec != partsCodec {
				label += bytesSuffix
			}
			if label == gpu.SparseCodec {
				label = "ibp4" + gpu.OnesSuffix
			}
			of[label] = append(of[label], x)
		}
	}
	median := func(label string, value func(gpu.Result) float64) float64 {
		var all []float64
		for _, x := range of[label] {
			if x.RowBytes >= rateRows {
				all = append(all, value(x))
			}
		}
		slices.Sort(all)
		n := len(all)
		if n == 0 {
			return 0
		}
		return math.Round(100*(all[(n-1)/2]+all[n/2])/2) / 100
	}
	rate, ratio := func(x gpu.Result) float64 { return x.Ratio }, func(x gpu.Result) float64 { return x.Compression }
	for label := range of {
		name, half := strings.CutSuffix(label, gpu.BFloat16Suffix)
		if strings.HasSuffix(label, gpu.OnesSuffix) || strings.HasSuffix(label, bytesSuffix) || strings.HasSuffix(label, gpu.Float16Suffix) || half && of[name] != nil {
			continue
		}
		ones := name + gpu.OnesSuffix
		rates[name] = codec.GPURate{Rate: median(label, rate), Ratio: median(label, ratio), Ones: median(ones, rate), OnesRatio: median(ones, ratio), Measured: true}
	}
	for label := range of {
		name, kind := rowsOf(label)
		r, all := rates[name], of[label]
		if kind == codec.OnesRows && r.Rate == 0 { // nothing else was measured of the codec
			continue
		}
		slices.SortStableFunc(all, func(a, b gpu.Result) int { return cmp.Compare(a.RowBytes, b.RowBytes) })
		for _, x := range all {
			r.Rows[kind] = append(r.Rows[kind], codec.RowRate{RowBytes: x.RowBytes, Rate: math.Round(100*x.Ratio) / 100, Ratio: math.Round(100*x.Compression) / 100})
		}
		rates[name] = r
	}
	return rates
}

// rowsOf returns the codec and the kind of rows of a label of codecRates.
func rowsOf(label string) (name string, kind codec.RowKind) {
	for suffix, kind := range map[string]codec.RowKind{
		gpu.BFloat16Suffix: codec.BFloat16Rows, gpu.Float16Suffix: codec.Float16Rows, bytesSuffix: codec.ByteRows, gpu.OnesSuffix: codec.OnesRows,
	} {
		if name, ok := strings.CutSuffix(label, suffix); ok {
			return name, kind
		}
	}
	if label == partsCodec {
		return label, codec.ByteRows
	}
	return label, codec.Float32Rows
}

// TestGPUBench_PredictsRecord: the rates that auto-selection goes by are those that the record of an H200 has, within 0.02, for each codec, element type and row length.
func TestGPUBench_PredictsRecord(t *testing.T) {
	t.Parallel()
	report, err := gpu.ReadReport("../../docs/results/gpu-bench.json")
	if err != nil {
		t.Fatal(err)
	}
	types := [codec.RowKinds]dtype.Type{dtype.Float32, dtype.BFloat16, dtype.Float16, dtype.Float8E4M3FN, dtype.Float32}
	checked := map[string]int{}
	for _, x := range report.Results {
		if x.Case != "hit-codecs" && x.Case != "hit-decode" && x.Case != "hit-parts" {
			continue
		}
		label := x.Codec
		switch {
		case label == gpu.SparseCodec:
			label = "ibp4" + gpu.OnesSuffix
		case x.Case == "hit-parts" && label != partsCodec:
			label += bytesSuffix
		}
		name, kind := rowsOf(label)
		if got := codec.RateOnGPU(name).For(types[kind], x.RowBytes, nil).At(x.Compression); math.Abs(got-x.Ratio) > 0.02 {
			t.Errorf("%s, rows of %d bytes: predicted %.2f, measured %.2f", label, x.RowBytes, got, x.Ratio)
		}
		checked[name]++
	}
	for name, rate := range codec.RatesOnGPU() {
		if rate.Measured && checked[name] == 0 {
			t.Errorf("codec (%s): no figures in the record", name)
		}
	}
}

// TestGPUBench_CodecRates: medians of the ratios of rows from 512 bytes on, of float32 rows where the codec serves those.
func TestGPUBench_CodecRates(t *testing.T) {
	t.Parallel()
	r := &gpu.Report{}
	add := func(name, label string, rowBytes int, ratio float64) {
		r.Results = append(r.Results, gpu.Result{Case: name, Codec: label, RowBytes: rowBytes, Ratio: ratio, Compression: 2})
	}
	add("hit-decode", "ibp4", 512, 0.96)
	add("hit-decode", gpu.SparseCodec, 512, 1.4)
	if len(codecRates(r)) != 0 {
		t.Errorf("without hit-codecs: %v", codecRates(r))
	}
	add("hit-codecs", "rank", 256, 0.1)
	add("hit-codecs", "rank", 512, 0.611)
	add("hit-codecs", "rank", 1024, 0.8)
	add("hit-codecs", "rank", 4096, 0.7)
	add("hit-codecs", "rank"+gpu.BFloat16Suffix, 512, 0.2)
	add("hit-codecs", "ibp2"+gpu.BFloat16Suffix, 512, 0.84999)
	add("hit-codecs", "ibp2"+gpu.BFloat16Suffix, 1024, 0.86)
	add("hit-codecs", "sparse"+gpu.OnesSuffix, 1024, 1.5)
	add("hit-codecs", "ibp2"+gpu.Float16Suffix, 1024, 0.1)
	add("hit-parts", "zipnn", 528, 0.3)
	add("hit-parts", "parts", 264, 0.3)
	add("hit-parts", "parts", 528, 0.5)
	add("hit-parts", "parts", 2112, 0.7)
	rows := func(kind codec.RowKind, of ...codec.RowRate) (all [codec.RowKinds][]codec.RowRate) {
		all[kind] = of
		return all
	}
	want := map[string]codec.GPURate{
		"ibp2":  {Rate: 0.85, Ratio: 2, Measured: true, Rows: rows(codec.BFloat16Rows, codec.RowRate{RowBytes: 512, Rate: 0.85, Ratio: 2}, codec.RowRate{RowBytes: 1024, Rate: 0.86, Ratio: 2})},
		"ibp4":  {Rate: 0.96, Ratio: 2, Ones: 1.4, OnesRatio: 2, Measured: true, Rows: rows(codec.Float32Rows, codec.RowRate{RowBytes: 512, Rate: 0.96, Ratio: 2})},
		"rank":  {Rate: 0.7, Ratio: 2, Measured: true, Rows: rows(codec.Float32Rows, codec.RowRate{RowBytes: 256, Rate: 0.1, Ratio: 2}, codec.RowRate{RowBytes: 512, Rate: 0.61, Ratio: 2}, codec.RowRate{RowBytes: 1024, Rate: 0.8, Ratio: 2}, codec.RowRate{RowBytes: 4096, Rate: 0.7, Ratio: 2})},
		"parts": {Rate: 0.6, Ratio: 2, Measured: true, Rows: rows(codec.ByteRows, codec.RowRate{RowBytes: 264, Rate: 0.3, Ratio: 2}, codec.RowRate{RowBytes: 528, Rate: 0.5, Ratio: 2}, codec.RowRate{RowBytes: 2112, Rate: 0.7, Ratio: 2})},
		"zipnn": {Rows: rows(codec.ByteRows, codec.RowRate{RowBytes: 528, Rate: 0.3, Ratio: 2})},
	}
	for name, more := range map[string]struct {
		kind codec.RowKind
		rate codec.RowRate
	}{"ibp4": {codec.OnesRows, codec.RowRate{RowBytes: 512, Rate: 1.4, Ratio: 2}}, "rank": {codec.BFloat16Rows, codec.RowRate{RowBytes: 512, Rate: 0.2, Ratio: 2}},
		"ibp2": {codec.Float16Rows, codec.RowRate{RowBytes: 1024, Rate: 0.1, Ratio: 2}}} {
		rate := want[name]
		rate.Rows[more.kind] = []codec.RowRate{more.rate}
		want[name] = rate
	}
	if got := codecRates(r); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	r.Incomplete = []gpu.Skipped{{Case: "hit-codecs", Reason: "x"}}
	if got := codecRates(r); len(got) != 2 || !reflect.DeepEqual(got["parts"], want["parts"]) || !reflect.DeepEqual(got["zipnn"], want["zipnn"]) {
		t.Errorf("incomplete: %v", got)
	}
	r.Incomplete = []gpu.Skipped{{Case: "hit-parts", Reason: "x"}}
	delete(want, "parts")
	delete(want, "zipnn")
	if got := codecRates(r); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
