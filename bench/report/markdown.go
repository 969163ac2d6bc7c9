package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/bench/gpu"
)

// byRow are the cases of Markdown's first table, which has a line a row length.
var byRow = []string{"hit-decode", "gather-hits", "gather-misses", "gather-80"}

// GPUMarkdown prints what gpu.Run measured as the tables of the documentation: the cases that are measured for each row
// length, then all others. Ratios stand beside their goals; what was not reached is bold.
func GPUMarkdown(w io.Writer, r *gpu.Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s. GB/s of output; ratios to what the goals name, bold where missed.\n\n", machines(r))
	rowTable(&b, r)
	b.WriteString("\n| case | rows | batch | value | baseline | ratio | goal | reached |\n|---|---|---|---|---|---|---|---|\n")
	byCase := slices.Clone(r.Results)
	slices.SortStableFunc(byCase, func(a, b gpu.Result) int { return slices.Index(gpu.Cases, a.Case) - slices.Index(gpu.Cases, b.Case) })
	for i := range byCase {
		x := &byCase[i]
		if slices.Contains(byRow, x.Case) {
			continue
		}
		rows := rowsOf(x.Codec, x.Variant)
		if x.RowBytes != 0 {
			rows = strings.TrimSpace(fmt.Sprintf("%d B %s", x.RowBytes, rows))
		}
		if x.Detail != "" {
			rows = strings.TrimPrefix(rows+"; "+x.Detail, "; ")
		}
		baseline := "–"
		if x.BaselineValue != 0 {
			baseline = figure(x.BaselineValue) + " (" + x.Baseline + ")"
		}
		reached := reachedOf(x)
		if reached == "no" {
			reached = "**no**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s %s | %s | %s | %s | %s |\n", x.Case, rows, count(int64(x.Batch)), gpuValue(x), unit(x.Unit), baseline, gpuRatio(x), goalOf(x), reached)
	}
	borderTable(&b, r)
	for _, s := range r.Incomplete {
		fmt.Fprintf(&b, "\n%s is incomplete: %s.\n", s.Case, s.Reason)
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(&b, "\n%s was not measured: %s.\n", s.Case, s.Reason)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func rowTable(b *strings.Builder, r *gpu.Report) {
	lines := map[int]map[string]*gpu.Result{}
	for i := range r.Results {
		x := &r.Results[i]
		if !slices.Contains(byRow, x.Case) {
			continue
		}
		name := x.Case
		if x.Codec == gpu.SparseCodec {
			name = gpu.SparseCodec
		}
		if lines[x.RowBytes] == nil {
			lines[x.RowBytes] = map[string]*gpu.Result{}
		}
		lines[x.RowBytes][name] = x
	}
	b.WriteString("| row bytes | plain gather | hit-decode | ÷ plain gather | hit-decode, sparse | ÷ plain gather | gather-hits | ÷ plain gather " +
		"| zero-copy, unsorted | sorted | gather-misses | ÷ link limit | gather-80 | ÷ overlapped |\n" + strings.Repeat("|---", 14) + "|\n")
	for _, n := range slices.Sorted(maps.Keys(lines)) {
		of := func(name string) *gpu.Result {
			if x := lines[n][name]; x != nil {
				return x
			}
			return &gpu.Result{}
		}
		dense, sparse, hits, misses, mixed := of("hit-decode"), of(gpu.SparseCodec), of("gather-hits"), of("gather-misses"), of("gather-80")
		cells := []string{
			fmt.Sprint(n), ifAny(dense.BaselineValue), ifAny(dense.Value), against(dense), ifAny(sparse.Value), against(sparse),
			ifAny(hits.Value), against(hits), ifAny(misses.FurtherValue(gpu.UnsortedZeroCopy)), ifAny(misses.FurtherValue(gpu.SortedZeroCopy)),
			ifAny(misses.Value), against(misses), ifAny(mixed.Value), against(mixed),
		}
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}
}

// borderTable has a line for each row length and codec of resident tables that were measured at several skews, and a column for each other way to read.
func borderTable(b *strings.Builder, r *gpu.Report) {
	var ways, lines []string
	cells := map[string]map[string]string{}
	for i := range r.Borders {
		x := &r.Borders[i]
		line := fmt.Sprintf("%s, %d B %s, skews %g to %g", x.Case, x.RowBytes, rowsOf(x.Codec, x.Variant), x.From, x.To)
		if cells[line] == nil {
			cells[line], lines = map[string]string{}, append(lines, line)
		}
		if !slices.Contains(ways, x.Against) {
			ways = append(ways, x.Against)
		}
		cells[line][x.Against] = borderOf(x)
	}
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "\nUp to which skew the resident table is faster than another way to read it, interpolated between the measured skews:\n\n| rows | %s |\n|---%s|\n",
		strings.Join(ways, " | "), strings.Repeat("|---", len(ways)))
	for _, line := range lines {
		b.WriteString("| " + line)
		for _, way := range ways {
			b.WriteString(" | " + cmp.Or(cells[line][way], "–"))
		}
		b.WriteString(" |\n")
	}
}

// against is a ratio and its goal.
func against(x *gpu.Result) string {
	switch {
	case x.Ratio == 0 || x.GoalOf != gpu.RatioAtLeast:
		return ifAny(x.Ratio)
	case x.Reached:
		return fmt.Sprintf("%.2f (≥ %.2f)", x.Ratio, x.Goal)
	}
	return fmt.Sprintf("**%s** (≥ %.2f)", gpuRatio(x), x.Goal)
}

func unit(u string) string {
	if u == "us" {
		return "µs"
	}
	return u
}
