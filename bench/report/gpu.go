package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/tensorcache/tensorcache/bench/gpu"
)

// GPU prints what gpu.Run measured.
func GPU(w io.Writer, r *gpu.Report) error {
	t := newTable("case", "row bytes", "rows", "table", "batch", "value", "unit", "baseline", "ratio", "goal", "reached", "baseline is", "detail")
	for i := range r.Results {
		x := &r.Results[i]
		t.AppendRow(table.Row{
			x.Case, x.RowBytes, rowsOf(x.Codec, x.Variant), bytesOf(x.TableBytes), count(int64(x.Batch)), gpuValue(x), x.Unit, ifAny(x.BaselineValue), gpuRatio(x),
			goalOf(x), reachedOf(x), x.Baseline, x.Detail,
		})
	}
	out := &printer{w: w}
	out.printf("%s\n%s\n", machines(r), t.Render())
	if len(r.Took) > 0 {
		took, sum := make([]string, 0, len(r.Took)), 0.
		for _, t := range r.Took {
			took = append(took, fmt.Sprintf("%s %.1f", t.Case, t.Seconds))
			sum += t.Seconds
		}
		out.printf("took %.0f s: %s\n", sum, strings.Join(took, ", "))
	}
	if len(r.Borders) > 0 {
		t := newTable("case", "row bytes", "rows", "against", "measured skews", "resident faster up to")
		for _, b := range r.Borders {
			t.AppendRow(table.Row{b.Case, b.RowBytes, rowsOf(b.Codec, b.Variant), b.Against, fmt.Sprintf("%g to %g", b.From, b.To), borderOf(&b)})
		}
		out.printf("%s\n", t.Render())
	}
	for _, s := range r.Incomplete {
		out.printf("INCOMPLETE %s: %s\n", s.Case, s.Reason)
	}
	for _, s := range r.Skipped {
		out.printf("%s not measured: %s\n", s.Case, s.Reason)
	}
	return out.err
}

// rowsOf says of what rows and variant a figure is.
func rowsOf(codec, variant string) string {
	if variant == "" {
		return codec
	}
	return strings.TrimPrefix(codec+", "+variant, ", ")
}

// borderOf prints the skew up to which the resident table is the faster one.
func borderOf(b *gpu.Border) string {
	switch {
	case b.Skew == nil:
		return fmt.Sprintf("%g and beyond", b.To)
	case *b.Skew <= b.From:
		return "nowhere"
	}
	return fmt.Sprintf("%.2f", *b.Skew)
}

// machine says what was measured.
func machine(r *gpu.Report) string {
	return fmt.Sprintf("%s, driver %s, commit %s", r.Device, r.Driver, r.Commit)
}

// machines is machine, and says which cases were measured at another commit.
func machines(r *gpu.Report) string {
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
func besideGoal(x *gpu.Result, v float64) string {
	text := figure(v)
	for digits := 3; x.GoalOf != "" && !x.Reached && digits < 9; digits++ {
		shown, err := strconv.ParseFloat(text, 64)
		if err != nil || x.GoalOf == gpu.ValueAtMost && shown > x.Goal || x.GoalOf != gpu.ValueAtMost && shown < x.Goal {
			break
		}
		text = strconv.FormatFloat(v, 'f', digits, 64)
	}
	return text
}

// gpuValue prints a result's value, gpuRatio what it is of its baseline.
func gpuValue(x *gpu.Result) string {
	if x.GoalOf == gpu.RatioAtLeast {
		return figure(x.Value)
	}
	return besideGoal(x, x.Value)
}

func gpuRatio(x *gpu.Result) string {
	if x.Ratio == 0 || x.GoalOf != gpu.RatioAtLeast {
		return ifAny(x.Ratio)
	}
	return besideGoal(x, x.Ratio)
}

func goalOf(x *gpu.Result) string {
	switch x.GoalOf {
	case gpu.RatioAtLeast:
		return "ratio ≥ " + figure(x.Goal)
	case gpu.ValueAtLeast:
		return fmt.Sprintf("≥ %.4g", x.Goal)
	case gpu.ValueAtMost:
		return fmt.Sprintf("≤ %.4g", x.Goal)
	}
	return "–"
}

func reachedOf(x *gpu.Result) string {
	switch {
	case x.GoalOf == "":
		return "–"
	case x.Reached:
		return "yes"
	}
	return "no"
}
