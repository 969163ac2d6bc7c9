package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

// planTiers prints what lies on which tier, for each plan and size of host memory.
func (p *printer) planTiers(r *experiment.PlanResult) {
	header := []any{"policy", "codec", "host memory", "host rows", "slab", "host", "pages", "slab/batch", "host/batch", "pages/batch", "read/batch", "resident ms", "batch ms", "prefetched ms", "drive"}
	phases := r.Plans[0].Tiers[0].Phase != ""
	if phases {
		header = slices.Insert(header, 2, any("phase"))
	}
	t := newTable(header...)
	alignLeft(t, 2)
	dash := func(x float64, format string) string {
		if x == 0 {
			return "-"
		}
		return fmt.Sprintf(format, x)
	}
	var least []string
	for _, plan := range r.Plans {
		for _, one := range plan.Tiers {
			drive := "-"
			if one.NeededBandwidth > 0 {
				drive = fmt.Sprintf("%s/s, %s reads/s", bytesOf(int64(one.NeededBandwidth)), count(int64(math.Ceil(one.NeededReads))))
			}
			row := table.Row{
				plan.Policy, plan.Codec, bytesOf(one.HostMemory), count(one.HostRows), percent(one.SlabRatio), percent(one.HostRatio), percent(one.ColdRatio),
				bytesOf(int64(one.SlabBytesRead)), bytesOf(int64(one.HostBytesRead)), count(int64(one.PagesRead + 0.5)), bytesOf(int64(one.BytesRead)), dash(one.ResidentMS, "%.3f"), dash(one.BatchMS, "%.3f"), dash(one.PrefetchedMS, "%.3f"), drive,
			}
			if phases {
				row = slices.Insert(row, 2, any(one.Phase))
			}
			t.AppendRow(row)
		}
		if h := plan.LeastHost; h != nil && h.Reached {
			least = append(least, fmt.Sprintf("%s, %s: with %s of host memory the drive reaches --rows-per-second", plan.Policy, plan.Codec, bytesOf(h.Bytes)))
		} else if h != nil {
			least = append(least, fmt.Sprintf("%s, %s: no host memory reaches --rows-per-second: hits and host misses alone take longer on one GPU", plan.Policy, plan.Codec))
		}
	}
	p.printf("\n%s\n", t.Render())
	p.printf("slab/batch, host/batch: bytes of the rows that the two serve of a mean batch; pages/batch, read/batch: what it reads; prefetched: reading beside gathering; drive: what reaches --rows-per-second, prefetched (-: nothing is read, or hits and host misses alone take longer)\n")
	for _, line := range least {
		p.printf("%s\n", line)
	}
}
