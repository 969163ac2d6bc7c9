package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

// tiersTable has what lies on which tier, for each plan and size of host memory.
func tiersTable(r *experiment.PlanResult) tableView {
	t := tableView{Header: []string{"policy", "codec", "host memory", "host rows", "slab", "host", "pages", "slab/batch", "host/batch", "pages/batch", "read/batch", "resident ms", "batch ms", "prefetched ms", "drive"}, Texts: 2}
	phases := len(r.Plans) > 0 && len(r.Plans[0].Tiers) > 0 && r.Plans[0].Tiers[0].Phase != ""
	if phases {
		t.Header = slices.Insert(t.Header, 2, "phase")
	}
	ms := func(x float64) entry {
		if x == 0 {
			return entry{Text: "-"}
		}
		return number(decimals, x)
	}
	for _, plan := range r.Plans {
		for _, one := range plan.Tiers {
			drive := "-"
			if one.NeededBandwidth > 0 {
				drive = fmt.Sprintf("%s/s, %s reads/s", bytesOf(int64(one.NeededBandwidth)), count(int64(math.Ceil(one.NeededReads))))
			}
			row := []entry{
				{Text: plan.Policy}, {Text: plan.Codec}, number(wholeBytes, float64(one.HostMemory)), number(wholeCount, float64(one.HostRows)),
				number(percent, one.SlabRatio), number(percent, one.HostRatio), number(percent, one.ColdRatio),
				number(wholeBytes, one.SlabBytesRead), number(wholeBytes, one.HostBytesRead), number(wholeCount, one.PagesRead+0.5), number(wholeBytes, one.BytesRead),
				ms(one.ResidentMS), ms(one.BatchMS), ms(one.PrefetchedMS), {Text: drive},
			}
			if phases {
				row = slices.Insert(row, 2, entry{Text: one.Phase})
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// planTiers prints them.
func (p *printer) planTiers(r *experiment.PlanResult) {
	p.printf("\n")
	p.table(tiersTable(r))
	p.printf("slab/batch, host/batch: bytes of the rows that the two serve of a mean batch; pages/batch, read/batch: what it reads; prefetched: reading beside gathering; drive: what reaches --rows-per-second, prefetched (-: nothing is read, or hits and host misses alone take longer)\n")
	for _, plan := range r.Plans {
		if h := plan.LeastHost; h != nil && h.Reached {
			p.printf("%s, %s: with %s of host memory the drive reaches --rows-per-second\n", plan.Policy, plan.Codec, bytesOf(h.Bytes))
		} else if h != nil {
			p.printf("%s, %s: no host memory reaches --rows-per-second: hits and host misses alone take longer on one GPU\n", plan.Policy, plan.Codec)
		}
	}
}
