package gpu

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
)

// byRow are the cases of Markdown's first table, which has a line a row length.
var byRow = []string{"hit-decode", "gather-hits", "gather-misses", "gather-80"}

// Markdown prints what Run measured as the tables of the documentation: the cases that are measured for each row
// length, then all others. Ratios stand beside their goals; what was not reached is bold.
func Markdown(w io.Writer, r *Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s. GB/s of output; ratios to what the goals name, bold where missed.\n\n", machines(r))
	rowTable(&b, r)
	b.WriteString("\n| case | rows | batch | value | baseline | ratio | goal | reached |\n|---|---|---|---|---|---|---|---|\n")
	for i := range r.Results {
		x := &r.Results[i]
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
		fmt.Fprintf(&b, "| %s | %s | %s | %s %s | %s | %s | %s | %s |\n", x.Case, rows, count(x.Batch), gpuValue(x), unit(x.Unit), baseline, gpuRatio(x), goalOf(x), reached)
	}
	for _, s := range r.Incomplete {
		fmt.Fprintf(&b, "\n%s is incomplete: %s.\n", s.Case, s.Reason)
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(&b, "\n%s was not measured: %s.\n", s.Case, s.Reason)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func rowTable(b *strings.Builder, r *Report) {
	lines := map[int]map[string]*Result{}
	for i := range r.Results {
		x := &r.Results[i]
		if !slices.Contains(byRow, x.Case) {
			continue
		}
		name := x.Case
		if x.Codec == SparseCodec {
			name = SparseCodec
		}
		if lines[x.RowBytes] == nil {
			lines[x.RowBytes] = map[string]*Result{}
		}
		lines[x.RowBytes][name] = x
	}
	b.WriteString("| row bytes | plain gather | hit-decode | ÷ plain gather | hit-decode, sparse | ÷ plain gather | gather-hits | ÷ plain gather " +
		"| zero-copy, unsorted | sorted | gather-misses | ÷ link limit | gather-80 | ÷ overlapped |\n" + strings.Repeat("|---", 14) + "|\n")
	for _, n := range slices.Sorted(maps.Keys(lines)) {
		of := func(name string) *Result {
			if x := lines[n][name]; x != nil {
				return x
			}
			return &Result{}
		}
		dense, sparse, hits, misses, mixed := of("hit-decode"), of(SparseCodec), of("gather-hits"), of("gather-misses"), of("gather-80")
		cells := []string{
			fmt.Sprint(n), ifAny(dense.BaselineValue), ifAny(dense.Value), against(dense), ifAny(sparse.Value), against(sparse),
			ifAny(hits.Value), against(hits), ifAny(misses.FurtherValue(UnsortedZeroCopy)), ifAny(misses.FurtherValue(SortedZeroCopy)),
			ifAny(misses.Value), against(misses), ifAny(mixed.Value), against(mixed),
		}
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}
}

// against is a ratio and its goal.
func against(x *Result) string {
	switch {
	case x.Ratio == 0 || x.GoalOf != RatioAtLeast:
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

// rowsOf says of what rows and variant a figure is.
func rowsOf(codec, variant string) string {
	if variant == "" {
		return codec
	}
	return strings.TrimPrefix(codec+", "+variant, ", ")
}

// machine says what was measured.
func machine(r *Report) string {
	return fmt.Sprintf("%s, driver %s, commit %s", r.Device, r.Driver, r.Commit)
}

// machines is machine, and says which cases were measured at another commit.
func machines(r *Report) string {
	text := machine(r)
	var commits []string
	cases := map[string][]string{}
	for _, x := range r.Results {
		if x.Commit == "" || slices.Contains(cases[x.Commit], x.Case) {
			continue
		}
		if len(cases[x.Commit]) == 0 {
			commits = append(commits, x.Commit)
		}
		cases[x.Commit] = append(cases[x.Commit], x.Case)
	}
	for _, c := range commits {
		text += fmt.Sprintf("; %s: commit %s", strings.Join(cases[c], ", "), c)
	}
	return text
}

// figure prints three or more digits.
func figure(x float64) string {
	switch {
	case x >= 99.95:
		return fmt.Sprintf("%.0f", x)
	case x >= 9.995:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

func ifAny(x float64) string {
	if x == 0 {
		return "–"
	}
	return figure(x)
}

// besideGoal prints a figure of a result that misses its goal, with more digits where rounding would hide that.
func besideGoal(x *Result, v float64) string {
	text := figure(v)
	for digits := 3; x.GoalOf != "" && !x.Reached && digits < 9; digits++ {
		shown, err := strconv.ParseFloat(text, 64)
		if err != nil || x.GoalOf == ValueAtMost && shown > x.Goal || x.GoalOf != ValueAtMost && shown < x.Goal {
			break
		}
		text = strconv.FormatFloat(v, 'f', digits, 64)
	}
	return text
}

// gpuValue prints a result's value, gpuRatio what it is of its baseline.
func gpuValue(x *Result) string {
	if x.GoalOf == RatioAtLeast {
		return figure(x.Value)
	}
	return besideGoal(x, x.Value)
}

func gpuRatio(x *Result) string {
	if x.Ratio == 0 || x.GoalOf != RatioAtLeast {
		return ifAny(x.Ratio)
	}
	return besideGoal(x, x.Ratio)
}

func goalOf(x *Result) string {
	switch x.GoalOf {
	case RatioAtLeast:
		return "ratio ≥ " + figure(x.Goal)
	case ValueAtLeast:
		return fmt.Sprintf("≥ %.4g", x.Goal)
	case ValueAtMost:
		return fmt.Sprintf("≤ %.4g", x.Goal)
	}
	return "–"
}

func reachedOf(x *Result) string {
	switch {
	case x.GoalOf == "":
		return "–"
	case x.Reached:
		return "yes"
	}
	return "no"
}

func count(n int) string { return humanize.Comma(int64(n)) }
