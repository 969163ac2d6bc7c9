package experiment

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aclements/go-moremath/stats"
)

// Metric is something that a run measures.
type Metric struct {
	Name string `json:"metric"`
	Unit string `json:"unit,omitempty"`
	// Higher says that more is better.
	Higher bool `json:"higher_is_better"`
	value  func(*Result) float64
}

var metrics = []Metric{
	{"hit_ratio", "", true, func(r *Result) float64 { return r.Results.HitRatio }},
	{"host_bytes_moved", "B", false, func(r *Result) float64 { return float64(r.Results.HostBytesMoved) }},
	{"rows_cached", "", true, func(r *Result) float64 { return float64(r.Cache.RowsCached) }},
	{"compression_ratio", "", true, func(r *Result) float64 { return r.Cache.CompressionRatio }},
	{"lookups_per_second", "/s", true, func(r *Result) float64 { return r.Results.LookupsPerSecond }},
	{"batch_latency_p50", "ms", false, func(r *Result) float64 { return r.Results.BatchLatency.P50 }},
	{"batch_latency_p95", "ms", false, func(r *Result) float64 { return r.Results.BatchLatency.P95 }},
	{"batch_latency_p99", "ms", false, func(r *Result) float64 { return r.Results.BatchLatency.P99 }},
}

// Verdicts of a comparison.
const (
	Better = "better"
	Worse  = "worse"
	Noise  = "~"       // the samples may come from the same distribution
	Same   = "same"    // all values are equal
	TooFew = "too few" // however far apart they are, so few samples could be noise
)

// MetricComparison is one metric of two groups of runs.
type MetricComparison struct {
	Metric
	// A and B are medians of NA and NB runs.
	A  float64 `json:"a"`
	B  float64 `json:"b"`
	NA int     `json:"n_a"`
	NB int     `json:"n_b"`
	// Delta is B ÷ A - 1; nil where A is 0 and B is not.
	Delta *float64 `json:"delta"`
	// P is the Mann-Whitney U test's: how likely samples of one distribution are at least as far apart.
	P       float64 `json:"p"`
	Verdict string  `json:"verdict"`
}

// GroupComparison is the runs of one cell of the grid, whatever their seeds.
type GroupComparison struct {
	Name string `json:"name"`
	// Differences are settings in which the runs differ.
	Differences []string           `json:"differences,omitempty"`
	Metrics     []MetricComparison `json:"metrics"`
}

// Comparison is what Compare finds.
type Comparison struct {
	A      string            `json:"a"`
	B      string            `json:"b"`
	Alpha  float64           `json:"alpha"`
	Groups []GroupComparison `json:"groups"`
	// OnlyA and OnlyB are groups that the other one does not have.
	OnlyA []string `json:"only_a,omitempty"`
	OnlyB []string `json:"only_b,omitempty"`
}

// Count returns how many metrics have a verdict.
func (c *Comparison) Count(verdict string) (n int) {
	for _, g := range c.Groups {
		for _, m := range g.Metrics {
			if m.Verdict == verdict {
				n++
			}
		}
	}
	return n
}

// Compare compares two sets of runs: directories of a sweep, files of its cells, or what `cachebench run --json` printed,
// one or more objects to a file. Where both have one group, that is compared whatever its settings; else groups of the same
// policy, budget, codec and host tier are. A difference is beyond noise if a Mann-Whitney U test rejects, at level alpha, that
// both samples come from one distribution, as benchstat does.
func Compare(a, b string, alpha float64) (*Comparison, error) {
	if !(alpha > 0 && alpha < 1) {
		return nil, fmt.Errorf("compare: --alpha (%v) must be above 0 and below 1", alpha)
	}
	x, err := readRuns(a)
	if err != nil {
		return nil, err
	}
	y, err := readRuns(b)
	if err != nil {
		return nil, err
	}
	namesA, runsA := GroupBy(x, (*Cell).group)
	namesB, runsB := GroupBy(y, (*Cell).group)
	c := &Comparison{A: a, B: b, Alpha: alpha}
	if len(namesA) == 1 && len(namesB) == 1 {
		name := namesA[0]
		if name != namesB[0] {
			name += " → " + namesB[0]
		}
		c.Groups = append(c.Groups, compareGroups(name, runsA[namesA[0]], runsB[namesB[0]], alpha))
		return c, nil
	}
	for _, name := range namesA {
		if runsB[name] == nil {
			c.OnlyA = append(c.OnlyA, name)
			continue
		}
		c.Groups = append(c.Groups, compareGroups(name, runsA[name], runsB[name], alpha))
	}
	c.OnlyB = slices.DeleteFunc(namesB, func(name string) bool { return runsA[name] != nil })
	if len(c.Groups) == 0 {
		return nil, fmt.Errorf("compare: %s and %s have no cell in common: %s has %q, %s has %q", a, b, a, c.OnlyA[0], b, c.OnlyB[0])
	}
	return c, nil
}

// readRuns reads a sweep's directory, or a file of cells or of what run --json printed. A torn last line of a sweep is passed over.
func readRuns(path string) (runs []Cell, err error) {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		runs, _, err = ReadCells(filepath.Join(path, cellsFile))
	} else if err == nil {
		var b []byte
		b, err = os.ReadFile(path)
		d := json.NewDecoder(bytes.NewReader(b))
		for err == nil {
			var c Cell
			if err = d.Decode(&c); err == nil {
				runs = append(runs, c)
			} else if err != io.EOF {
				err = fmt.Errorf("%s: value %d, before byte %d: %w", path, len(runs)+1, d.InputOffset(), err)
			}
		}
		if err == io.EOF {
			err = nil
		}
	}
	if err == nil && len(runs) == 0 {
		err = fmt.Errorf("%s: must have at least one run", path)
	}
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	return runs, nil
}

// group names the cell's place in the grid. A run's result alone does not say all of it.
func (c *Cell) group() string {
	if c.Config == nil {
		r := &c.Result.Cache
		return fmt.Sprintf("%s, %d B, %s", r.Policy, r.BudgetBytes, r.Codec)
	}
	p := c.Point()
	return strings.Join([]string{p.Policy, p.Budget, p.Codec, p.HostTier}, ", ")
}

func compareGroups(name string, a, b []*Cell, alpha float64) GroupComparison {
	g := GroupComparison{Name: name, Differences: differences(a[0], b[0])}
	for _, m := range metrics {
		values := func(runs []*Cell) (v []float64) {
			for _, c := range runs {
				v = append(v, m.value(c.Result))
			}
			return v
		}
		g.Metrics = append(g.Metrics, compareMetric(m, values(a), values(b), alpha))
	}
	return g
}

func compareMetric(m Metric, a, b []float64, alpha float64) MetricComparison {
	c := MetricComparison{Metric: m, A: Median(a), B: Median(b), NA: len(a), NB: len(b), P: 1}
	if c.A != 0 || c.B == 0 {
		delta := 0.0
		if c.A != 0 {
			delta = c.B/c.A - 1
		}
		c.Delta = &delta
	}
	if a[0] == a[len(a)-1] && b[0] == b[len(b)-1] && a[0] == b[0] { // they are sorted
		c.Verdict = Same
		return c
	}
	if test, err := stats.MannWhitneyUTest(a, b, stats.LocationDiffers); err == nil { // benchstat's
		c.P = test.P
	}
	switch {
	case c.P <= alpha && c.A != c.B:
		c.Verdict = Worse
		if c.B > c.A == m.Higher {
			c.Verdict = Better
		}
	case leastP(len(a), len(b)) > alpha:
		c.Verdict = TooFew
	default:
		c.Verdict = Noise
	}
	return c
}

// leastP is the least p-value that the test can give for samples of so many values: 2 of all ways to divide them.
func leastP(n, m int) float64 {
	a, _ := math.Lgamma(float64(n + 1))
	b, _ := math.Lgamma(float64(m + 1))
	all, _ := math.Lgamma(float64(n + m + 1))
	return min(1, 2*math.Exp(a+b-all))
}

// differences lists what the runs differ in besides their results and seeds.
func differences(a, b *Cell) (list []string) {
	note := func(name string, a, b any) {
		if x, y := SettingText(a), SettingText(b); x != y {
			list = append(list, fmt.Sprintf("%s: %s → %s", name, x, y))
		}
	}
	if a.Config != nil && b.Config != nil {
		keys := maps.Clone(a.Config)
		maps.Copy(keys, b.Config)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if key != "seed" && key != "data_seed" {
				note(key, a.Config[key], b.Config[key])
			}
		}
	}
	x, y := a.Result, b.Result
	note("device", x.Device.Kind, y.Device.Kind)
	note("devices", x.Device.Count, y.Device.Count)
	note("table", fmt.Sprintf("%d rows of %d B", x.Table.Rows, x.Table.RowBytes), fmt.Sprintf("%d rows of %d B", y.Table.Rows, y.Table.RowBytes))
	note("workload", x.Workload.Kind, y.Workload.Kind)
	note("measured batches", x.Workload.Batches, y.Workload.Batches)
	if a.Config == nil || b.Config == nil {
		note("policy", x.Cache.Policy, y.Cache.Policy)
		note("budget bytes", x.Cache.BudgetBytes, y.Cache.BudgetBytes)
	}
	note("chosen codec", x.Cache.Codec, y.Cache.Codec)
	return list
}
