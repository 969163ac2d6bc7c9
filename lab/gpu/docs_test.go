package gpu

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Marks of generated text in documents. A block begins with a line that names it and ends with a line of its own.
const (
	blockBegin = "<!-- figures: "
	blockName  = "; make gpu-docs -->\n"
	blockEnd   = "<!-- end -->\n"
)

// TestGPUDocs checks that the documents' GPU figures and the plot are those of docs/results/gpu-bench.json and gpu-bench-h100.json. -update rewrites them.
func TestGPUDocs(t *testing.T) {
	t.Parallel()
	const docs = "../../docs/"
	res, err := ReadReports([]string{docs + "results/gpu-bench.json"})
	if err != nil {
		t.Fatal(err)
	}
	loop, err := readTrainingLoop(docs + "results/training-loop.json")
	if err != nil {
		t.Fatal(err)
	}
	bags, err := readEmbeddingBags(docs + "results/embedding-bag.json")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var tables bytes.Buffer
	tables.WriteString("<!-- Made from gpu-bench.json by make gpu-docs; do not edit. -->\n# GPU figures\n\n" +
		"[The notebook](../notebook/measuring.md) describes the cases, [performance.md](../performance.md) the outcome.\n\n" +
		"![GB/s of output by row length](gpu-bench.svg)\n\n")
	if err := Markdown(&tables, res); err != nil {
		t.Fatal(err)
	}
	pictureOf("GPU figures: "+machine(res), charts(res)...).check(t, docs+"results/gpu-bench.svg")
	later, err := ReadReports([]string{docs + "results/gpu-bench-h100.json"})
	if err != nil {
		t.Fatal(err)
	}
	var laterTables bytes.Buffer
	laterTables.WriteString("<!-- Made from gpu-bench-h100.json by make gpu-docs; do not edit. -->\n# GPU figures of an H100\n\n" +
		"Cases measured since [those of an H200](gpu-bench.md), by kernels that are newer. Goals are of an H200, whose memory is 1.4 times as fast: on an H100, ratios count.\n\n")
	if err := Markdown(&laterTables, later); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"results/gpu-bench.md": tables.String(), "results/gpu-bench-h100.md": laterTables.String()}
	for _, name := range []string{"performance.md", "../README.md"} {
		text, err := os.ReadFile(docs + name)
		if err != nil {
			t.Fatal(err)
		}
		if want[name], err = renewBlocks(string(text), res, loop, bags); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, text := range want {
		if *update && !t.Failed() {
			if err := os.WriteFile(docs+name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if have, err := os.ReadFile(docs + name); err != nil || string(have) != text {
			t.Errorf("docs/%s is not what the files of figures in docs/results give; make gpu-docs rewrites it (%v)", name, err)
		}
	}
	for name, reason := range missedCases(res) {
		if !strings.Contains(want["performance.md"], "\n| **`"+name+"`** |") {
			t.Errorf("docs/performance.md must have a line that begins with | **`%s`** | and says why the case %s", name, reason)
		}
	}
}

// TestGPUDocs_Blocks pins how blocks are renewed: text outside stays, and a block that nobody can render is an error.
func TestGPUDocs_Blocks(t *testing.T) {
	t.Parallel()
	r := example(t)
	loop, err := readTrainingLoop("testdata/training-loop.json")
	if err != nil {
		t.Fatal(err)
	}
	bags, err := readEmbeddingBags("testdata/embedding-bag.json")
	if err != nil {
		t.Fatal(err)
	}
	block := func(name, body string) string { return blockBegin + name + blockName + body + blockEnd }
	for _, name := range []string{"machine", "headline", "hits", "misses", "codecs", "lookup", "lookup load/512 caller/us", "training-loop", "training-loop float32", "embedding-bag"} {
		text, err := renewBlocks("before\n"+block(name, "stale\n")+"between\n"+block("machine", "")+"after\n", r, loop, bags)
		if err != nil || strings.Contains(text, "stale") || !strings.HasPrefix(text, "before\n") || !strings.HasSuffix(text, blockEnd+"after\n") || !strings.Contains(text, "between\n") {
			t.Errorf("%s: %v, %q", name, err, text)
		}
		if again, err := renewBlocks(text, r, loop, bags); err != nil || again != text {
			t.Errorf("%s renewed twice: %v, %q", name, err, again)
		}
	}
	for text, want := range map[string]string{
		block("other", ""):                 "block (other) must be a list of cases, or machine, headline, hits, misses, codecs, training-loop or embedding-bag",
		block("training-loop int8", ""):    "block (training-loop int8) must name a measured type of rows",
		block("lookup other", ""):          "block (lookup other) must be a list of cases, or machine, headline, hits, misses, codecs, training-loop or embedding-bag",
		blockBegin + "machine" + blockName: "block (machine) must end in <!-- end -->",
		blockBegin + "machine -->\n":       "block must begin with a line of the form <!-- figures: NAME; make gpu-docs -->",
	} {
		if _, err := renewBlocks(text, r, loop, bags); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestGPUDocs_Missed pins that missed goals and incomplete cases are all listed.
func TestGPUDocs_Missed(t *testing.T) {
	t.Parallel()
	r := &Report{
		Results: []Result{
			{Case: "lookup", Codec: "hits", Value: 19, Unit: "Gkeys/s", Goal: 20, GoalOf: ValueAtLeast},
			{Case: "load", Value: 50, Unit: "GB/s", Goal: 20, GoalOf: ValueAtLeast, Reached: true},
			{Case: "link", Value: 55, Unit: "GB/s"},
		},
		Incomplete: []Skipped{{Case: "pair-throughput", Reason: "cut off"}},
	}
	text, err := figures("lookup link/512 pair-throughput", r, nil, nil)
	if want := "| case | rows | batch | value | beside | ratio | goal |\n|---|---|---|---|---|---|---|\n| `lookup` | hits | 0 | 19.0 Gkeys/s | – | – | **≥ 20** |\n| `pair-throughput` | | | incomplete | | | |\n"; err != nil || text != want {
		t.Errorf("%v, %q, want %q", err, text, want)
	}
	if missed := missedCases(r); len(missed) != 2 || missed["lookup"] != "misses a goal" || missed["pair-throughput"] != "is incomplete (cut off)" {
		t.Error(missed)
	}
}

// missedCases returns the cases that miss a goal or are incomplete, with which of the two.
func missedCases(r *Report) map[string]string {
	missed := map[string]string{}
	for _, x := range r.Results {
		if x.GoalOf != "" && !x.Reached {
			missed[x.Case] = "misses a goal"
		}
	}
	for _, s := range r.Incomplete {
		missed[s.Case] = "is incomplete (" + s.Reason + ")"
	}
	return missed
}

// renewBlocks returns the text with the content of every block replaced by the figures of the report, of the training loop and
// of summed bags, which may be nil.
func renewBlocks(text string, r *Report, loop *trainingLoop, bags *embeddingBags) (string, error) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, blockBegin)
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		name, rest, named := strings.Cut(rest, blockName)
		if !named || strings.Contains(name, "\n") {
			return "", fmt.Errorf("block must begin with a line of the form %sNAME%s", blockBegin, strings.TrimSuffix(blockName, "\n"))
		}
		_, after, ended := strings.Cut(rest, blockEnd)
		if !ended {
			return "", fmt.Errorf("block (%s) must end in %s", name, strings.TrimSuffix(blockEnd, "\n"))
		}
		body, err := figures(name, r, loop, bags)
		if err != nil {
			return "", err
		}
		b.WriteString(blockBegin + name + blockName + body + blockEnd)
		text = after
	}
}

// figures renders one block. Its name is one of those below, "training-loop TYPE", or a list of cases. CASE/X is those results of the case whose row length or
// unit is X.
func figures(name string, r *Report, loop *trainingLoop, bags *embeddingBags) (string, error) {
	switch name {
	case "machine":
		return machines(r) + ".\n", nil
	case "headline":
		return headline(r), nil
	case "hits":
		return hitFigures(r), nil
	case "misses":
		return missFigures(r), nil
	case "codecs":
		return codecFigures(r), nil
	case "embedding-bag":
		return bags.table(), nil
	}
	if name == "training-loop" && loop != nil {
		return loop.headline(), nil
	}
	if dtype, ok := strings.CutPrefix(name, "training-loop "); ok && loop != nil {
		if !slices.ContainsFunc(loop.Results, func(r loopResult) bool { return r.DType == dtype }) {
			return "", fmt.Errorf("block (%s) must name a measured type of rows", name)
		}
		return loop.table(dtype), nil
	}
	only := map[string]string{}
	for _, field := range strings.Fields(name) {
		c, which, _ := strings.Cut(field, "/")
		only[c] = which
	}
	for c := range only {
		is := func(x Result) bool { return x.Case == c } // of a case that is measured no more the figures stay
		if slices.Contains(Cases, c) || slices.ContainsFunc(r.Results, is) {
			continue
		}
		return "", fmt.Errorf("block (%s) must be a list of cases, or machine, headline, hits, misses, codecs, training-loop or embedding-bag", name)
	}
	return caseFigures(r, only), nil
}

// caseFigures is a table with a line for each result of the cases, in the order of the results. A case whose value in only is not empty has the
// results of that row length or unit. Goals that are missed are bold.
func caseFigures(r *Report, only map[string]string) string {
	var b strings.Builder
	b.WriteString("| case | rows | batch | value | beside | ratio | goal |\n|---|---|---|---|---|---|---|\n")
	for i := range r.Results {
		x := &r.Results[i]
		which, ok := only[x.Case]
		if !ok || which != "" && which != x.Unit && which != strconv.Itoa(x.RowBytes) {
			continue
		}
		rows, goal := x.Codec, goalOf(x)
		if x.GoalOf != "" && !x.Reached {
			goal = "**" + goal + "**"
		}
		if x.RowBytes != 0 && x.Case != "lookup" {
			rows = strings.TrimSpace(fmt.Sprintf("%d B %s", x.RowBytes, x.Codec))
		}
		if x.Case == "gather-misses-large" {
			rows += fmt.Sprintf(", %d host threads", x.HostThreads)
		}
		rows = rowsOf(rows, x.Variant)
		beside := "–"
		if x.BaselineValue != 0 {
			beside = figure(x.BaselineValue) + " (" + x.Baseline + ")"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s %s | %s | %s | %s |\n", x.Case, rows, count(x.Batch), gpuValue(x), unit(x.Unit), beside, gpuRatio(x), goal)
	}
	for _, s := range r.Incomplete {
		if _, ok := only[s.Case]; ok {
			b.WriteString("| `" + s.Case + "` | | | incomplete | | | |\n")
		}
	}
	return b.String()
}

// result returns the case's result for rows of that length and codec, or one without figures.
func result(r *Report, name string, rowBytes int, codec string) *Result {
	for i := range r.Results {
		if x := &r.Results[i]; x.Case == name && x.RowBytes == rowBytes && x.Codec == codec {
			return x
		}
	}
	return &Result{}
}

// rowLengths returns the row lengths of the results that keep picks, shortest first.
func rowLengths(r *Report, keep func(Result) bool) []int {
	var lengths []int
	for _, x := range r.Results {
		if keep(x) {
			lengths = append(lengths, x.RowBytes)
		}
	}
	slices.Sort(lengths)
	return slices.Compact(lengths)
}

// headline is the README's sentence: the decoder on rows of 512 bytes, and two GPUs beside one.
func headline(r *Report) string {
	hits := result(r, "hit-decode", 512, "ibp4")
	text := fmt.Sprintf("On an %s, rows of 512 bytes compressed by `ibp4` are decoded out of GPU memory at **%s GB/s of output, %s × a plain gather** of the same rows uncompressed",
		r.Device, figure(hits.Value), ifAny(hits.Ratio))
	if whole := result(r, "gather-hits", 512, "ibp4"); whole.Ratio != 0 {
		text += fmt.Sprintf(" (%s GB/s, %s ×, with the lookup of the rows)", figure(whole.Value), figure(whole.Ratio))
	}
	if pair := result(r, "pair-throughput", 512, "ibp4"); pair.Ratio != 0 {
		text += fmt.Sprintf("; two GPUs that share their slabs over NVLink, and so hold twice as many rows, serve %s × what one does", figure(pair.Ratio))
	}
	return text + ".\n"
}

// hitFigures is a table of what hits take, by row length.
func hitFigures(r *Report) string {
	var b strings.Builder
	b.WriteString("| row bytes | plain gather, uncompressed | decoded hits | ÷ plain gather | sparse rows | ÷ plain gather | whole Gather of hits | ÷ plain gather |\n|---|---|---|---|---|---|---|---|\n")
	for _, n := range rowLengths(r, func(x Result) bool { return x.Case == "hit-decode" }) {
		dense, sparse, whole := result(r, "hit-decode", n, "ibp4"), result(r, "hit-decode", n, SparseCodec), result(r, "gather-hits", n, "ibp4")
		fmt.Fprintf(&b, "| %d | %s | %s | %s | %s | %s | %s | %s |\n", n, ifAny(dense.BaselineValue), ifAny(dense.Value), against(dense), ifAny(sparse.Value), against(sparse),
			ifAny(whole.Value), against(whole))
	}
	return b.String()
}

// missFigures is a table of what misses take, alone and in a batch of 80 % hits, by row length.
func missFigures(r *Report) string {
	var b strings.Builder
	b.WriteString("| row bytes | plain zero-copy, uncompressed | fetched misses | ÷ zero-copy | whole Gather of misses | ÷ limit of the link | whole Gather, 80 % hits | ÷ its slower part alone |\n|---|---|---|---|---|---|---|---|\n")
	for _, n := range rowLengths(r, func(x Result) bool { return x.Case == "miss-fetch" }) {
		fetch, whole, mixed := result(r, "miss-fetch", n, "ibp4"), result(r, "gather-misses", n, "ibp4"), result(r, "gather-80", n, "ibp4")
		fmt.Fprintf(&b, "| %d | %s | %s | %s | %s | %s | %s | %s |\n", n, ifAny(fetch.BaselineValue), ifAny(fetch.Value), against(fetch), ifAny(whole.Value), against(whole),
			ifAny(mixed.Value), against(mixed))
	}
	return b.String()
}

// codecFigures is a table of decoding speed ÷ that of a plain gather, by codec, element type and row length.
func codecFigures(r *Report) string {
	is := func(x Result) bool { return x.Case == "hit-codecs" }
	lengths, codecs := rowLengths(r, is), []string{}
	for _, x := range r.Results {
		if name := strings.TrimSuffix(strings.TrimSuffix(x.Codec, BFloat16Suffix), Float16Suffix); is(x) && !slices.Contains(codecs, name) {
			codecs = append(codecs, name)
		}
	}
	slices.Sort(codecs)
	elements, suffixes := []string{"float32", "bfloat16"}, []string{"", BFloat16Suffix}
	if slices.ContainsFunc(r.Results, func(x Result) bool { return is(x) && strings.HasSuffix(x.Codec, Float16Suffix) }) {
		elements, suffixes = append(elements, "float16"), append(suffixes, Float16Suffix)
	}
	var b strings.Builder
	b.WriteString("| codec |")
	for _, element := range elements {
		for _, n := range lengths {
			fmt.Fprintf(&b, " %s, %d B |", element, n)
		}
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(elements)*len(lengths)) + "\n")
	for _, name := range codecs {
		b.WriteString("| " + name + " |")
		for _, suffix := range suffixes {
			for _, n := range lengths {
				x := result(r, "hit-codecs", n, name+suffix)
				if x.Ratio == 0 { // ibp4 of float32 has a case of its own
					x = result(r, "hit-decode", n, name+suffix)
				}
				b.WriteString(" " + against(x) + " |")
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}
