package gpu

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// trainingLoop is what lab/python/training_loop.py measured. Its docstring says what the figures are.
type trainingLoop struct {
	Device, Driver, Commit, Torch, Layer string
	Fanouts                              []int
	Batch, Iterations                    int
	TrainingBatches                      int `json:"training_batches"`
	Quick                                bool
	Seconds                              float64
	Tables                               []struct {
		Sampler         string
		TableRows       int64 `json:"table_rows"`
		DType           string
		Edges           int64
		BatchesPerEpoch int `json:"batches_per_epoch"`
	}
	Results []loopResult
	Skipped []struct{ Method, Reason string }
	Loader  struct {
		Skipped   string
		Sampler   string
		TableRows int64 `json:"table_rows"`
		RowBytes  int   `json:"row_bytes"`
		DType     string
		Budget    float64
		Workers   int
		Results   []struct {
			Method      string
			IterationMS float64 `json:"iteration_ms"`
			Verified    bool
		}
	}
}

// loopResult is a method at a budget, over one table.
type loopResult struct {
	TableRows        int64 `json:"table_rows"`
	RowBytes         int   `json:"row_bytes"`
	DType            string
	Budget           float64
	Method           string
	FetchMS          float64 `json:"fetch_ms"`
	IterationMS      float64 `json:"iteration_ms"`
	HitRatio         float64 `json:"hit_ratio"`
	Verified         bool
	SampleMS         float64 `json:"sample_ms"`
	TrainMS          float64 `json:"train_ms"`
	PipelinedMS      float64 `json:"pipelined_ms"`
	EpochS           float64 `json:"estimated_epoch_s"`
	PipelinedEpochS  float64 `json:"estimated_pipelined_epoch_s"`
	BatchRows        int     `json:"batch_rows"`
	HostBytes        int64   `json:"host_bytes"`
	OpenS            float64 `json:"open_s"`
	Codec            string  // in use; "" of methods without one
	CompressionRatio float64 `json:"compression_ratio"`
	Blocks           int     // of 512 threads, of methods whose kernel was tuned
	RowsCached       int64   `json:"rows_cached"`
	MissStrategy     []any   `json:"miss_strategy"` // of each device, as in Stats; no document has it
}

// ours says whether the method is tensorcache.
func (r *loopResult) ours() bool { return strings.HasPrefix(r.Method, "tensorcache ") }

// loopBudget is the budget of the figures that tables and sentences have of one budget only.
const loopBudget = 0.1

func readTrainingLoop(path string) (*trainingLoop, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var l trainingLoop
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &l, l.check()
}

// check returns what makes the results unfit for documents.
func (l *trainingLoop) check() error {
	if l.Quick || l.Device == "" || l.Driver == "" || l.Commit == "" || len(l.Tables) == 0 {
		return fmt.Errorf("training loop (%q, driver %q, commit %q, %d tables, quick %v) must be a whole run", l.Device, l.Driver, l.Commit, len(l.Tables), l.Quick)
	}
	for _, r := range l.Results {
		switch {
		case !r.Verified:
			return fmt.Errorf("training loop: output of %s (%s, %g) must be verified", r.Method, r.DType, r.Budget)
		case r.FetchMS <= 0 || r.IterationMS < r.FetchMS || r.PipelinedMS <= 0 || r.HitRatio < 0 || r.HitRatio > 1:
			return fmt.Errorf("training loop: times of %s (%s, %g) must be those of an iteration: %+v", r.Method, r.DType, r.Budget, r)
		}
	}
	for _, t := range l.Tables {
		for _, m := range l.methods() {
			for _, b := range l.budgets() {
				if l.result(t.DType, m, b) == nil {
					return fmt.Errorf("training loop: %s must be measured with %s, %g", m, t.DType, b)
				}
			}
		}
	}
	return nil
}

// methods and budgets are those measured, in the order of the results.
func (l *trainingLoop) methods() []string {
	return distinct(l.Results, func(r *loopResult) string { return r.Method })
}

func (l *trainingLoop) budgets() []float64 {
	return distinct(l.Results, func(r *loopResult) float64 { return r.Budget })
}

// result is nil if there is none.
func (l *trainingLoop) result(dtype, method string, budget float64) *loopResult {
	i := slices.IndexFunc(l.Results, func(r loopResult) bool { return r.DType == dtype && r.Method == method && r.Budget == budget })
	if i < 0 {
		return nil
	}
	return &l.Results[i]
}

// best returns the result of that table at loopBudget with the smallest value, of tensorcache or of the others; nil if there is none.
func (l *trainingLoop) best(dtype string, ours bool, value func(*loopResult) float64) (best *loopResult) {
	for i := range l.Results {
		r := &l.Results[i]
		if r.DType == dtype && r.Budget == loopBudget && r.ours() == ours && (best == nil || value(r) < value(best)) {
			best = r
		}
	}
	return best
}

func (l *trainingLoop) shape(i int) string {
	t := l.Tables[i]
	for _, r := range l.Results {
		if r.DType == t.DType {
			return fmt.Sprintf("%d M rows of %d B, %s", t.TableRows/1_000_000, r.RowBytes, t.DType)
		}
	}
	return t.DType
}

// plot is the time to fetch over the budget, a chart a table.
func (l *trainingLoop) plot() picture {
	var charts []chart
	for i, t := range l.Tables {
		c := chart{title: l.shape(i), x: "GPU memory ÷ bytes of the table", y: "ms to fetch the features of a batch", percent: true, ticks: l.budgets()}
		for _, m := range l.methods() {
			of := line{name: m, kind: dashed}
			for _, b := range l.budgets() {
				r := l.result(t.DType, m, b)
				of.points = append(of.points, point{b, r.FetchMS})
				if r.ours() {
					of.kind = solid
				}
			}
			c.lines = append(c.lines, of)
		}
		charts = append(charts, c)
	}
	return pictureOf(fmt.Sprintf("Training loop: %s, driver %s, commit %s", l.Device, l.Driver, l.Commit), charts...)
}

// inWords says what methods other than tensorcache do.
var inWords = map[string]string{
	"hot rows, UVA":         "the most frequent rows lie in GPU memory, uncompressed, and the GPU reads the others from page-locked host memory",
	"hot rows, UVA, sorted": "the most frequent rows lie in GPU memory, uncompressed, and the GPU reads the others from page-locked host memory, in the order of their addresses",
	"UVA":                   "the GPU reads all rows from page-locked host memory",
	"UVA, sorted":           "the GPU reads all rows from page-locked host memory, in the order of their addresses",
	"CPU gather, copy":      "the CPU gathers the rows, and they are copied to the GPU",
}

// headline compares the fastest of tensorcache with the fastest of the others at loopBudget, table by table, and says what the others do.
func (l *trainingLoop) headline() string {
	var b strings.Builder
	var others []string
	fmt.Fprintf(&b, "On an %s with %g %% of a table in GPU memory, fetching the features of a batch takes", l.Device, 100*loopBudget)
	for i, t := range l.Tables {
		fetch := func(r *loopResult) float64 { return r.FetchMS }
		ours, other := l.best(t.DType, true, fetch), l.best(t.DType, false, fetch)
		if ours == nil || other == nil {
			continue
		}
		if i > 0 {
			b.WriteString(", and")
		}
		fmt.Fprintf(&b, " **%s ms instead of %s** (%s different rows of %d B, %s)", figure(ours.FetchMS), figure(other.FetchMS), count(ours.BatchRows), ours.RowBytes, t.DType)
		if way := cmp.Or(inWords[other.Method], other.Method); !slices.Contains(others, way) {
			others = append(others, way)
		}
	}
	fmt.Fprintf(&b, ".\nThe other method: %s.\n", strings.Join(others, "; of the other table "))
	return b.String()
}

// table has a line for each method over the table of that type: the time to fetch at all budgets, the rest at loopBudget.
func (l *trainingLoop) table(dtype string) string {
	var b strings.Builder
	b.WriteString("| method |")
	for _, budget := range l.budgets() {
		fmt.Fprintf(&b, " fetch, %g %% |", 100*budget)
	}
	fmt.Fprintf(&b, " hits, %g %% | host MB | iteration | iteration, pipelined | epoch | epoch, pipelined |\n|---|", 100*loopBudget)
	b.WriteString(strings.Repeat("---|", len(l.budgets())+6) + "\n")
	for _, m := range l.methods() {
		name := m
		if r := l.result(dtype, m, loopBudget); r != nil && r.ours() && !strings.HasSuffix(m, " "+r.Codec) {
			name += " (" + r.Codec + ")"
		}
		b.WriteString("| " + name + " |")
		for _, budget := range l.budgets() {
			fmt.Fprintf(&b, " %s |", figure(l.result(dtype, m, budget).FetchMS))
		}
		if r := l.result(dtype, m, loopBudget); r != nil {
			fmt.Fprintf(&b, " %.2f | %s | %s | %s | %s s | %s s |", r.HitRatio, figure(float64(r.HostBytes)/1e6), figure(r.IterationMS), figure(r.PipelinedMS), figure(r.EpochS), figure(r.PipelinedEpochS))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// document is docs/results/training-loop.md.
func (l *trainingLoop) document() string {
	var b strings.Builder
	b.WriteString("<!-- Made from training-loop.json by make gpu-docs; do not edit. -->\n# A training loop\n\n")
	fmt.Fprintf(&b, "%s, driver %s, commit %s, PyTorch %s. `lab/python/training_loop.py` says what is measured, and measures it in %.0f s.\n\n",
		l.Device, l.Driver, l.Commit, l.Torch, l.Seconds)
	fmt.Fprintf(&b, "Neighbour sampling on the GPU (fan-outs %s, %d training nodes a batch), GraphSAGE (%s); generated graphs in the shape of papers100M. Times are in\n"+
		"ms, medians of %d iterations; *pipelined*: the next batch is fetched beside the training of this one, mean of a row of iterations. Epochs are estimated: an iteration × the batches of an epoch.\n"+
		"Every method's rows were compared with the table's, bit for bit. Host MB are read from host memory for a batch. tensorcache and the\n"+
		"choice of hot rows learnt from the same %d batches, which were not measured.\n\n"+
		"*Hot rows*: the most frequent rows lie in GPU memory, uncompressed. *UVA* (unified virtual addressing): a kernel on the GPU reads rows from page-locked\n"+
		"host memory; *sorted*: the row numbers are sorted first, which counts. *CPU gather, copy*: the CPU gathers the rows, and they are copied to the GPU.\n\n![ms to fetch the features of a batch](training-loop.svg)\n",
		strings.ReplaceAll(strings.Trim(fmt.Sprint(l.Fanouts), "[]"), " ", ", "), l.Batch, l.Layer, l.Iterations, l.TrainingBatches)
	for i, t := range l.Tables {
		some := l.best(t.DType, false, func(r *loopResult) float64 { return r.IterationMS })
		fmt.Fprintf(&b, "\n## %s\n\n%d M edges, %d batches an epoch, %d different rows a batch. Sampling (%s) takes %s ms, training %s.\n\n%s",
			l.shape(i), t.Edges/1_000_000, t.BatchesPerEpoch, some.BatchRows, t.Sampler, figure(some.SampleMS), figure(some.TrainMS), l.table(t.DType))
	}
	b.WriteString("\n## PyG's loader, which samples on the CPU\n\n")
	if why := l.Loader.Skipped; why != "" || len(l.Loader.Results) == 0 {
		fmt.Fprintf(&b, "Not measured: %s.\n", cmp.Or(why, "left out of the run"))
		return b.String()
	}
	fmt.Fprintf(&b, "%s, %d worker processes; %d rows of %d B, %s, %g %% in GPU memory; the mean of an iteration.\n\n| features by | iteration, ms |\n|---|---|\n",
		l.Loader.Sampler, l.Loader.Workers, l.Loader.TableRows, l.Loader.RowBytes, l.Loader.DType, 100*l.Loader.Budget)
	for _, r := range l.Loader.Results {
		fmt.Fprintf(&b, "| %s | %s |\n", r.Method, figure(r.IterationMS))
	}
	return b.String()
}

// TestTrainingLoop_Docs checks that the document and the plot of the training loop are those of docs/results/training-loop.json. -update
// rewrites them. Blocks of other documents are checked by TestGPUDocs.
func TestTrainingLoop_Docs(t *testing.T) {
	t.Parallel()
	const results = "../../docs/results/"
	l, err := readTrainingLoop(results + "training-loop.json")
	if err != nil {
		t.Fatal(err)
	}
	l.plot().check(t, results+"training-loop.svg")
	if *update {
		if err := os.WriteFile(results+"training-loop.md", []byte(l.document()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(results + "training-loop.md"); err != nil || string(have) != l.document() {
		t.Errorf("docs/results/training-loop.md is not what training-loop.json gives; make gpu-docs rewrites it (%v)", err)
	}
}

// TestTrainingLoop_Reading pins which results are unfit for documents, and what a block and a plot say of fit ones.
func TestTrainingLoop_Reading(t *testing.T) {
	t.Parallel()
	sound := func() *trainingLoop {
		l, err := readTrainingLoop("testdata/training-loop.json")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	for want, spoil := range map[string]func(*trainingLoop){
		"must be a whole run":                    func(l *trainingLoop) { l.Quick = true },
		"UVA (float32, 0.1) must be verified":    func(l *trainingLoop) { l.result("float32", "UVA", 0.1).Verified = false },
		"must be those of an iteration":          func(l *trainingLoop) { l.Results[0].FetchMS = 2 * l.Results[0].IterationMS },
		"UVA must be measured with float32, 0.1": func(l *trainingLoop) { l.result("float32", "UVA", 0.1).DType = "float16" },
	} {
		l := sound()
		spoil(l)
		if err := l.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	l := sound()
	if want := "On an Example GPU with 10 % of a table in GPU memory, fetching the features of a batch takes **0.90 ms instead of 2.70** (223,000 different rows of 512 B, float32).\nThe other method: the GPU reads all rows from page-locked host memory.\n"; l.headline() != want {
		t.Errorf("%q, want %q", l.headline(), want)
	}
	if want := "| method | fetch, 5 % | fetch, 10 % | hits, 10 % | host MB | iteration | iteration, pipelined | epoch | epoch, pipelined |\n|---|---|---|---|---|---|---|---|---|\n" +
		"| tensorcache auto (rank) | 1.10 | 0.90 | 0.55 | 45.0 | 3.90 | 3.00 | 1.26 s | 0.97 s |\n" +
		"| UVA | 2.80 | 2.70 | 0.00 | 114 | 5.70 | 3.10 | 1.84 s | 1.00 s |\n"; l.table("float32") != want {
		t.Errorf("%q, want %q", l.table("float32"), want)
	}
	if plot := l.plot(); !strings.Contains(string(plot), "30 M rows of 512 B, float32") || strings.Count(string(plot), `"series":"UVA"`) != 2 {
		t.Errorf("%s", plot)
	}
}
