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
			t.AppendRow(table.Row{m.Name, metric(m.Name, m.A), metric(m.Name, m.B), delta, p, runs, m.Verdict})
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

// metric formats a value of the named metric.
func metric(name string, v float64) string {
	switch name {
	case "hit_ratio":
		return percent(v)
	case "host_bytes_moved":
		return humanize.SIWithDigits(v, 3, "B")
	case "rows_cached":
		return count(int64(v))
	case "lookups_per_second":
		return rate(v) + "/s"
	case "batch_latency_p50", "batch_latency_p95", "batch_latency_p99":
		return fmt.Sprintf("%.3f ms", v)
	}
	return fmt.Sprintf("%.3f", v)
}
