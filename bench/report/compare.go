package report

import (
	"fmt"
	"io"
	"strconv"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

// Compare prints what changed from one set of runs to another.
func Compare(w io.Writer, c *experiment.Comparison) error {
	out := &printer{w: w}
	out.printf("A: %s\nB: %s\n", c.A, c.B)
	for _, g := range c.Groups {
		out.printf("\n%s\n", g.Name)
		for _, d := range g.Differences {
			out.printf("  %s\n", d)
		}
		t := newTable("", "A", "B", "change", "p", "runs", "verdict")
		for _, m := range g.Metrics {
			delta, p := "", ""
			if m.Delta != nil {
				delta = fmt.Sprintf("%+.2f %%", 100**m.Delta)
			}
			if m.Verdict != experiment.Same && m.Verdict != experiment.TooFew {
				p = fmt.Sprintf("%.3f", m.P)
			}
			runs := strconv.Itoa(m.NA)
			if m.NA != m.NB {
				runs += " + " + strconv.Itoa(m.NB)
			}
			text := metricTexts[m.Name]
			if text == nil {
				text = func(x float64) string { return fmt.Sprintf("%.3f ms", x) }
			}
			t.AppendRow(table.Row{m.Name, text(m.A), text(m.B), delta, p, runs, m.Verdict})
		}
		out.printf("%s\n", t.Render())
	}
	for _, only := range []struct {
		which string
		names []string
	}{{"A", c.OnlyA}, {"B", c.OnlyB}} {
		for _, name := range only.names {
			out.printf("only in %s: %s\n", only.which, name)
		}
	}
	out.printf("\nmedians; %s: noise at p > %g (Mann-Whitney U)", experiment.Noise, c.Alpha)
	if c.Count(experiment.TooFew) > 0 {
		out.printf("; %s: so few runs cannot tell", experiment.TooFew)
	}
	out.printf("\n")
	return out.err
}

// metricTexts format the metrics that are not milliseconds.
var metricTexts = map[string]func(float64) string{
	"hit_ratio":          percent,
	"host_bytes_moved":   func(x float64) string { return humanize.SIWithDigits(x, 3, "B") },
	"rows_cached":        wholeCount,
	"compression_ratio":  decimals,
	"lookups_per_second": func(x float64) string { return rate(x) + "/s" },
}
