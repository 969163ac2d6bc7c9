package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

func configuration(g *grouping) section {
	s := section{ID: "configuration", Title: "Configuration", Missing: "Configuration: there is no run and no sweep."}
	if len(g.groups) == 0 {
		return s
	}
	t := tableView{Header: []string{"setting", "value"}, Texts: 2}
	for _, k := range g.keys {
		values, _ := experiment.GroupBy(g.groups, func(x *group) string { return x.settings[k] })
		values = slices.DeleteFunc(values, func(v string) bool { return v == "" })
		text := strings.Join(values, ", ")
		if len(values) > 12 {
			text = fmt.Sprintf("%s, … (%d values)", strings.Join(values[:12], ", "), len(values))
		}
		if len(values) > 1 {
			text = "varies: " + text
		}
		t.Rows = append(t.Rows, []entry{{Text: strings.ReplaceAll(k, "_", " ")}, {Text: text}})
	}
	var seeds []uint64
	cells := 0
	for _, x := range g.groups {
		cells += len(x.cells)
		for _, c := range x.cells {
			if c.Config != nil && !slices.Contains(seeds, c.Seed) {
				seeds = append(seeds, c.Seed)
			}
		}
	}
	if slices.Sort(seeds); len(seeds) > 0 {
		t.Rows = append(t.Rows, []entry{{Text: "seeds"}, {Text: strings.Trim(fmt.Sprint(seeds), "[]")}})
	}
	s.Lead = plural(cells, "run", "runs") + " of " + plural(len(g.groups), "configuration", "configurations") + "."
	s.Tables = []tableView{t}
	return s
}

// run is what a run found.
type run = experiment.Result

// Figures of a run.
var (
	hitRatio     = func(r *run) float64 { return r.Results.HitRatio }
	missRatio    = func(r *run) float64 { return 1 - r.Results.HitRatio }
	plainRatio   = func(r *run) float64 { return r.Uncompressed.HitRatio }
	moved        = func(r *run) float64 { return float64(r.Results.HostBytesMoved) }
	plainMoved   = func(r *run) float64 { return float64(r.Uncompressed.HostBytesMoved) }
	budget       = func(r *run) float64 { return float64(r.Cache.BudgetBytes) }
	rowsCached   = func(r *run) float64 { return float64(r.Cache.RowsCached) }
	compression  = func(r *run) float64 { return r.Cache.CompressionRatio }
	lookups      = func(r *run) float64 { return r.Results.LookupsPerSecond }
	p50          = func(r *run) float64 { return r.Results.BatchLatency.P50 }
	mismatches   = func(r *run) float64 { return float64(r.Mismatches) }
	milliseconds = func(x float64) string { return humanize.SIWithDigits(x/1e3, 2, "s") }
	wholeBytes   = func(x float64) string { return bytesOf(int64(x)) }
	wholeCount   = func(x float64) string { return count(int64(x)) }
	decimals     = func(x float64) string { return fmt.Sprintf("%.3f", x) }
	hundredths   = func(x float64) string { return fmt.Sprintf("%.2f", x) }
	timesAs      = func(x float64) string { return fmt.Sprintf("× %.3f", x) }
)

// saved is the part of the host bytes that the codec saves.
func saved(r *run) float64 {
	if plainMoved(r) == 0 {
		return 0
	}
	return 1 - moved(r)/plainMoved(r)
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
	columns := []column[run]{
		{"hit rate", hitRatio, percent},
		{"uncompressed", plainRatio, percent},
		{"points won", func(r *run) float64 { return 100 * (hitRatio(r) - plainRatio(r)) }, func(x float64) string { return strings.Replace(fmt.Sprintf("%+.2f", x), "-0.00", "+0.00", 1) }},
		{"host bytes moved", moved, wholeBytes},
		{"saved", saved, signedPercent},
		{"uncompressed moved", plainMoved, wholeBytes},
		{"p50", p50, milliseconds},
		{"p95", func(r *run) float64 { return r.Results.BatchLatency.P95 }, milliseconds},
		{"p99", func(r *run) float64 { return r.Results.BatchLatency.P99 }, milliseconds},
		{"lookups/s", lookups, rate},
		{"output GB/s", func(r *run) float64 { return r.Results.OutputGBPerSecond }, figure},
		{"rows cached", rowsCached, wholeCount},
		{"budget, bytes", budget, wholeBytes},
		{"metadata", func(r *run) float64 { return float64(r.Cache.MetadataBytes) }, wholeBytes},
		{"compression", compression, figure},
	}
	reasons := map[string]bool{}
	several, chosen, differ := false, false, false
	for _, x := range g.groups {
		several = several || len(x.runs) > 1
		for _, r := range x.runs {
			chosen = chosen || r.Cache.Codec != x.settings["codec"]
			differ = differ || r.Mismatches > 0
			for k, n := range r.MissesByReason {
				if n > 0 {
					reasons[k] = true
				}
			}
		}
	}
	for _, k := range slices.Sorted(maps.Keys(reasons)) {
		columns = append(columns, column[run]{"missed: " + k, func(r *run) float64 {
			return float64(r.MissesByReason[k]) / float64(max(1, r.Results.Lookups))
		}, percent})
	}
	if differ {
		columns = append(columns, column[run]{"rows that differ", mismatches, wholeCount})
	}
	var t tableView
	var names []string
	for _, k := range g.keys {
		if k == "policy" || k == "budget" || k == "codec" || slices.Contains(g.varying, k) {
			names, t.Header = append(names, k), append(t.Header, strings.ReplaceAll(k, "_", " "))
		}
	}
	if chosen {
		t.Header = append(t.Header, "codec chosen")
	}
	t.Texts = len(t.Header)
	if several {
		t.Header = append(t.Header, "runs")
	}
	for _, c := range columns {
		t.Header = append(t.Header, c.name)
	}
	for _, x := range g.groups {
		var row []entry
		for _, k := range names {
			e := entry{Text: x.setting(k)}
			if k == "budget" {
				e.Sort = fmt.Sprintf("%g", median(x.runs, budget))
			}
			row = append(row, e)
		}
		if chosen {
			codecs, _ := experiment.GroupBy(x.cells, func(c **Cell) string { return (*c).Result.Cache.Codec })
			row = append(row, entry{Text: strings.Join(codecs, ", ")})
		}
		if several {
			row = append(row, entry{Text: fmt.Sprint(len(x.runs))})
		}
		for _, c := range columns {
			row = append(row, c.written(x.runs...))
		}
		row[len(row)-1].Bad = slices.Max(sortedFigures(x.runs, mismatches)) > 0
		t.Rows = append(t.Rows, row)
	}
	s.Lead = "“Uncompressed” is a cache of the same budget, policy, seed and batches without a codec; “saved” is how much fewer bytes leave the host than with it; “missed” are shares of all lookups. Headings sort."
	if several {
		s.Lead += " Figures are medians of the runs, with their range below."
	}
	s.Tables = []tableView{t}
	return s
}
