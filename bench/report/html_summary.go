package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

func configuration(g *grouping) section {
	s := section{ID: "configuration", Title: "Configuration", Missing: "Configuration: there is no run and no sweep."}
	if len(g.groups) == 0 {
		return s
	}
	t := tableView{Header: []string{"setting", "value"}, Texts: 2}
	for _, k := range g.keys {
		var values []string
		for _, x := range g.groups {
			if v := x.settings[k]; v != "" && !slices.Contains(values, v) {
				values = append(values, v)
			}
		}
		text := strings.Join(values, ", ")
		if len(values) > 12 {
			text = fmt.Sprintf("%s, … (%d values)", strings.Join(values[:12], ", "), len(values))
		}
		if len(values) > 1 {
			text = "varies: " + text
		}
		t.Rows = append(t.Rows, []entry{{Text: strings.ReplaceAll(k, "_", " ")}, {Text: text}})
	}
	seeds := map[uint64]bool{}
	cells := 0
	for _, x := range g.groups {
		for _, c := range x.cells {
			cells++
			if c.Config != nil {
				seeds[c.Seed] = true
			}
		}
	}
	if len(seeds) > 0 {
		t.Rows = append(t.Rows, []entry{{Text: "seeds"}, {Text: strings.Trim(fmt.Sprint(slices.Sorted(maps.Keys(seeds))), "[]")}})
	}
	s.Lead = plural(cells, "run", "runs") + " of " + plural(len(g.groups), "configuration", "configurations") + "."
	s.Tables = []tableView{t}
	return s
}

// Figures of a cell.
var (
	hitRatio     = func(c *Cell) float64 { return c.Result.Results.HitRatio }
	missRatio    = func(c *Cell) float64 { return 1 - c.Result.Results.HitRatio }
	plainRatio   = func(c *Cell) float64 { return c.Result.Uncompressed.HitRatio }
	gain         = func(c *Cell) float64 { return 100 * (hitRatio(c) - plainRatio(c)) }
	moved        = func(c *Cell) float64 { return float64(c.Result.Results.HostBytesMoved) }
	plainMoved   = func(c *Cell) float64 { return float64(c.Result.Uncompressed.HostBytesMoved) }
	budget       = func(c *Cell) float64 { return float64(c.Result.Cache.BudgetBytes) }
	rowsCached   = func(c *Cell) float64 { return float64(c.Result.Cache.RowsCached) }
	metadata     = func(c *Cell) float64 { return float64(c.Result.Cache.MetadataBytes) }
	compression  = func(c *Cell) float64 { return c.Result.Cache.CompressionRatio }
	lookups      = func(c *Cell) float64 { return c.Result.Results.LookupsPerSecond }
	outputGB     = func(c *Cell) float64 { return c.Result.Results.OutputGBPerSecond }
	mismatches   = func(c *Cell) float64 { return float64(c.Result.Mismatches) }
	milliseconds = func(x float64) string { return micros(1000 * x) }
	wholeBytes   = func(x float64) string { return bytesOf(int64(x)) }
	wholeCount   = func(x float64) string { return count(int64(x)) }
)

// saved is the part of the host bytes that the codec saves.
func saved(c *Cell) float64 {
	if plainMoved(c) == 0 {
		return 0
	}
	return 1 - moved(c)/plainMoved(c)
}

// signedPercent has no negative zero.
func signedPercent(x float64) string {
	if s := percent(x); s != "-0.00 %" {
		return s
	}
	return percent(0)
}

func summary(g *grouping) section {
	s := section{ID: "summary", Title: "Summary", Missing: "Summary: there is no run and no sweep."}
	if len(g.groups) == 0 {
		return s
	}
	type column struct {
		name string
		of   func(*Cell) float64
		text func(float64) string
	}
	columns := []column{
		{"hit rate", hitRatio, percent},
		{"uncompressed", plainRatio, percent},
		{"points won", gain, func(x float64) string { return strings.Replace(fmt.Sprintf("%+.2f", x), "-0.00", "+0.00", 1) }},
		{"host bytes moved", moved, wholeBytes},
		{"saved", saved, signedPercent},
		{"uncompressed moved", plainMoved, wholeBytes},
		{"p50", func(c *Cell) float64 { return c.Result.Results.BatchLatency.P50 }, milliseconds},
		{"p95", func(c *Cell) float64 { return c.Result.Results.BatchLatency.P95 }, milliseconds},
		{"p99", func(c *Cell) float64 { return c.Result.Results.BatchLatency.P99 }, milliseconds},
		{"lookups/s", lookups, rate},
		{"output GB/s", outputGB, figure},
		{"rows cached", rowsCached, wholeCount},
		{"budget, bytes", budget, wholeBytes},
		{"metadata", metadata, wholeBytes},
		{"compression", compression, figure},
	}
	reasons := map[string]bool{}
	for _, x := range g.groups {
		for _, c := range x.cells {
			for k, n := range c.Result.MissesByReason {
				reasons[k] = reasons[k] || n > 0
			}
		}
	}
	for _, k := range slices.Sorted(maps.Keys(reasons)) {
		if reasons[k] {
			columns = append(columns, column{"missed: " + k, func(c *Cell) float64 {
				return float64(c.Result.MissesByReason[k]) / float64(max(1, c.Result.Results.Lookups))
			}, percent})
		}
	}
	var names []string
	for _, k := range g.keys {
		if k == "policy" || k == "budget" || k == "codec" || slices.Contains(g.varying, k) {
			names = append(names, k)
		}
	}
	t := tableView{Texts: len(names)}
	several, chosen, differ := false, false, false
	for _, x := range g.groups {
		several = several || len(x.cells) > 1
		for _, c := range x.cells {
			chosen = chosen || c.Result.Cache.Codec != x.settings["codec"]
			differ = differ || c.Result.Mismatches > 0
		}
	}
	for _, k := range names {
		t.Header = append(t.Header, strings.ReplaceAll(k, "_", " "))
	}
	if chosen {
		t.Header, t.Texts = append(t.Header, "codec chosen"), t.Texts+1
	}
	if several {
		t.Header = append(t.Header, "runs")
	}
	for _, c := range columns {
		t.Header = append(t.Header, c.name)
	}
	if differ {
		t.Header = append(t.Header, "rows that differ")
	}
	for _, x := range g.groups {
		var row []entry
		for _, k := range names {
			e := entry{Text: x.setting(k)}
			if k == "budget" {
				e.Sort = fmt.Sprintf("%g", x.median(budget))
			}
			row = append(row, e)
		}
		if chosen {
			var codecs []string
			for _, c := range x.cells {
				if !slices.Contains(codecs, c.Result.Cache.Codec) {
					codecs = append(codecs, c.Result.Cache.Codec)
				}
			}
			row = append(row, entry{Text: strings.Join(codecs, ", ")})
		}
		if several {
			row = append(row, entry{Text: fmt.Sprint(len(x.cells))})
		}
		for _, c := range columns {
			row = append(row, x.written(c.of, c.text))
		}
		if differ {
			e := x.written(mismatches, wholeCount)
			e.Bad = x.median(mismatches) > 0 || e.Range != ""
			row = append(row, e)
		}
		t.Rows = append(t.Rows, row)
	}
	s.Lead = "“Uncompressed” is a cache of the same budget, policy, seed and batches without a codec; “saved” is how much fewer bytes leave the host than with it; “missed” are shares of all lookups. Headings sort."
	if several {
		s.Lead += " Figures are medians of the runs, with their range below."
	}
	s.Tables = []tableView{t}
	return s
}
