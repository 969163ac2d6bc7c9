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
	var below [][]string
	batch := 0 // requests of one
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
		for _, tier := range r.Tiers {
			one := []string{r.Policy, size, sizeOf(&s.Source, tier.HostBytes), ratioOf(tier.HostHitRatio), ratioOf(tier.ColdMissRatio)}
			for _, n := range []int64{tier.CacheHitBytes, tier.HostHitBytes, tier.ColdBytesRead} {
				text := "-"
				if n > 0 {
					text = bytesOf(n)
				}
				one = append(one, text)
			}
			if b := tier.Batch; b != nil {
				batch = b.Requests
				one = append(one, fmt.Sprintf("%.0f", b.Reads), fmt.Sprintf("%.3f", b.ResidentMS), fmt.Sprintf("%.3f", b.MS), fmt.Sprintf("%.3f", b.PrefetchedMS))
			}
			below = append(below, one)
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
	if len(below) > 0 {
		header := []any{"policy", "cache", "host tier", "hits in it", "misses below it", "cache serves", "host tier serves", "read below"}
		if batch > 0 {
			header = append(header, "reads/batch", "resident ms", "batch ms", "prefetched ms")
		}
		t := newTable(header...)
		for _, b := range below {
			var row table.Row
			for _, cell := range b {
				row = append(row, cell)
			}
			t.AppendRow(row)
		}
		out.printf("\n%s\n", t.Render())
		if batch > 0 {
			out.printf("of a batch of %s; resident: hits of both, on a GPU; prefetched: reading beside them\n", plural(batch, "request", "requests"))
		}
	}
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
