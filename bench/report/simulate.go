package report

import (
	"fmt"
	"io"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/tensorcache/tensorcache/bench/sim"
)

// Simulation prints what policies missed.
func Simulation(w io.Writer, s *sim.Simulation) error {
	header := []any{"policy", "cache", "misses", "miss ratio"}
	if !s.UnitSize {
		header = append(header, "byte miss ratio")
	}
	t := newTable(append(header, "requests/s")...)
	last := ""
	sizes, larger := 0, false // sizes of the last policy
	for _, r := range s.Results {
		size := sizeOf(&s.Source, r.CacheBytes)
		if r.CacheBytes >= s.WorkingSet {
			size, larger = size+" *", true
		}
		row := table.Row{r.Policy, size, count(r.Misses), ratioOf(r.MissRatio)}
		if !s.UnitSize {
			row = append(row, ratioOf(r.ByteMissRatio))
		}
		if r.Policy != last {
			if sizes > 1 {
				t.AppendSeparator()
			}
			sizes = 0
		}
		last, sizes = r.Policy, sizes+1
		t.AppendRow(append(row, rate(r.RequestsPerSecond)))
	}
	out := &printer{w: w}
	out.source(&s.Source)
	out.printf("\n%s\n", t.Render())
	if larger {
		out.printf("* holds the whole working set\n")
	}
	return out.err
}

// Curve prints a miss-ratio curve.
func Curve(w io.Writer, c *sim.Curve) error {
	out := &printer{w: w}
	out.source(&c.Source)
	if c.Method == sim.CurveExact {
		out.line("curve", "exact LRU")
	} else {
		out.line("curve", "LRU by SHARDS from %s IDs; miss ratios are off by %.4f on average", count(c.SampledIDs), c.Error)
	}
	header := []any{"cache", "of working set", "miss ratio"}
	if !c.UnitSize {
		header = append(header, "byte miss ratio")
	}
	t := newTable(header...)
	for _, p := range c.Points {
		cell := ratioOf(p.MissRatio)
		if p.StandardError > 0 {
			cell += fmt.Sprintf(" ± %.4f", p.StandardError)
		}
		row := table.Row{sizeOf(&c.Source, p.CacheBytes), percent(float64(p.CacheBytes) / float64(max(1, c.WorkingSet))), cell}
		if !c.UnitSize {
			row = append(row, ratioOf(p.ByteMissRatio))
		}
		t.AppendRow(row)
	}
	out.printf("\n%s\n", t.Render())
	return out.err
}

func (p *printer) source(s *sim.Source) {
	p.line("trace", "%s: %s, %s, working set %s", s.Trace, plural(int(s.Requests), "request", "requests"), plural(int(s.IDs), "ID", "IDs"), sizeOf(s, s.WorkingSet))
}

// sizeOf is a cache size, in bytes or objects.
func sizeOf(s *sim.Source, n int64) string {
	if s.UnitSize {
		return plural(int(n), "object", "objects")
	}
	return bytesOf(n)
}

func ratioOf(f float64) string { return fmt.Sprintf("%.4f", f) }
