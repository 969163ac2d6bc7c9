package report

import (
	"fmt"
	"slices"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

// verdict says what to choose after a run, and what another budget would bring.
func verdict(r *experiment.Result) string {
	c, q, u := &r.Cache, &r.Results, &r.Uncompressed
	s := fmt.Sprintf("%s with %s: %s in %s hit %s", c.Codec, c.Policy, plural(int(c.RowsCached), "row", "rows"), bytesOf(c.BudgetBytes), roughly(q.HitRatio))
	switch {
	case c.RowsCached == r.Table.Rows:
		s = fmt.Sprintf("%s: all %s fit in %s", c.Codec, plural(int(r.Table.Rows), "row", "rows"), bytesOf(c.BudgetBytes))
		if u.RowsCached == r.Table.Rows && c.Codec != "none" {
			s += ", uncompressed too: take none"
		}
	case c.Codec == "none":
	case q.HostBytesMoved < u.HostBytesMoved:
		s += fmt.Sprintf(", uncompressed rows %s", roughly(u.HitRatio))
		if q.HitRatio < u.HitRatio {
			s += fmt.Sprintf(", but misses move %s fewer bytes in all", roughly(1-float64(q.HostBytesMoved)/float64(u.HostBytesMoved)))
		}
	default:
		s += fmt.Sprintf("; take none, by which uncompressed rows hit %s", roughly(u.HitRatio))
	}
	s += uncached(r.PredictedGPU)
	for _, b := range r.OtherBudgets {
		switch b.Times {
		case 0.5:
			s += fmt.Sprintf("; %s less would hit %s", bytesOf(c.BudgetBytes-b.BudgetBytes), roughly(b.HitRatio))
		case 2:
			s += fmt.Sprintf("; %s more would hit %s", bytesOf(b.BudgetBytes-c.BudgetBytes), roughly(b.HitRatio))
		}
	}
	return s
}

// uncached says that batches are predicted to be fastest without a cache, if they are: their rows then cross the link in one launch, with
// neither lookups nor decoding.
func uncached(p *experiment.PredictedGPU) string {
	if p == nil || p.UncachedMS >= min(p.BatchMS, p.UncompressedMS) {
		return ""
	}
	return fmt.Sprintf("; an %s is predicted to be faster without a cache, with %s a batch instead of %s", p.Device,
		batchTime(p.UncachedMS), batchTime(min(p.BatchMS, p.UncompressedMS)))
}

// sweepVerdict says what to choose of each budget: the point that moves the fewest bytes from the host, and what it hits.
func sweepVerdict(points []experiment.Point, runs map[experiment.Point][]*experiment.Result) (lines []string) {
	best := map[string]experiment.Point{}
	var budgets []string
	for _, p := range points {
		b, seen := best[p.Budget]
		if !seen {
			budgets = append(budgets, p.Budget)
		}
		if !seen || median(runs[p], moved) < median(runs[b], moved) {
			best[p.Budget] = p
		}
	}
	bytes := func(budget string) int64 { return runs[best[budget]][0].Cache.BudgetBytes }
	slices.SortStableFunc(budgets, func(a, b string) int { return int(min(1, max(-1, bytes(a)-bytes(b)))) })
	before := 0.0
	for i, budget := range budgets {
		p := best[budget]
		r := runs[p][0]
		hit := median(runs[p], hitRatio)
		s := fmt.Sprintf("%s: %s with %s, %s, hits %s", budget, r.Cache.Codec, p.Policy, p.HostTier, roughly(hit))
		if i > 0 {
			more := bytes(budget) - bytes(budgets[i-1])
			s += fmt.Sprintf(", %+.1f points for %s more", 100*(hit-before), bytesOf(more))
		}
		if i == len(budgets)-1 {
			for _, b := range r.OtherBudgets {
				if b.Times == 2 {
					s += fmt.Sprintf("; %s more would hit %s", bytesOf(b.BudgetBytes-bytes(budget)), roughly(b.HitRatio))
				}
			}
		}
		before = hit
		lines = append(lines, s)
	}
	return lines
}

// roughly is a percentage for a sentence.
func roughly(f float64) string { return fmt.Sprintf("%.1f %%", 100*f) }
