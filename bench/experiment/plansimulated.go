package experiment

import (
	"context"
	"sync"

	"github.com/tensorcache/tensorcache/bench/sim"
)

// simulated searches the least capacity with which the simulated policy reaches the target. The curve of the best static cache
// is where it begins.
func (p *planner) simulated(ctx context.Context, r *run, s *sizes, best *curve, plan *Plan) error {
	nanos := map[int64]float64{} // of a row, by capacity
	var mu sync.Mutex
	hitRatio := func(capacity int64) (float64, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		policy, err := r.policy()
		if err != nil {
			return 0, err
		}
		o := &r.cfg.Online
		out, err := sim.Run(
			&sim.Stream{
				Batches: p.stream, Warmup: p.warmup, Slot: s.slot, Stored: s.stored, Group: s.group, Priced: s.priced(capacity + int64(float64(s.rowsIn(capacity))*s.mapBytes())), Cost: s.cost, Capacity: capacity, Entries: s.rowsIn(capacity), Graph: r.graph,
			},
			policy, sim.Options{
				Every: o.every(), Evict: o.RefreshChurn, Churn: min(1, defaultRefreshBytes/float64(capacity)), Sampling: o.SampleRate, Seed: r.cfg.Seed,
			},
		)
		if err != nil {
			return 0, err
		}
		mu.Lock()
		defer mu.Unlock()
		nanos[capacity] = 1e9 * out.Seconds / float64(max(1, out.Lookups))
		return out.HitRatio(), nil
	}
	most := int64(0) // whatever the stream accesses
	accessed, held := make([]bool, len(s.slot)), make([]bool, len(s.members))
	for _, row := range p.stream.rows {
		if !accessed[row] {
			accessed[row] = true
			if s.group != nil && s.group[row] != 0 {
				if held[s.group[row]] {
					continue
				}
				held[s.group[row]] = true
			}
			most += int64(s.slot[row])
		}
	}
	if plan.GPU != nil {
		if capacity := min(most, s.capacityOf(plan.GPU.BudgetBytes)); capacity > 0 {
			var err error
			if plan.GPU.HitRatio, err = hitRatio(capacity); err != nil {
				return err
			}
		}
	}
	from := best.bytes[best.entriesFor(p.cfg.Target)-1]
	to := from + from/2
	if rows := p.found[plan.Policy]; rows > 0 { // with another codec it takes about as many
		mean := float64(rows) * float64(s.slots) / float64(s.rows)
		from, to = int64(mean/narrow), int64(mean*narrow)
	}
	capacity, hit, err := search(hitRatio, from, to, most, p.cfg.Target)
	if err != nil {
		return err
	}
	plan.Reached = hit >= p.cfg.Target
	plan.PayloadBytes, plan.PredictedHitRatio, plan.Rows = capacity, hit, s.rowsIn(capacity)
	plan.PredictedRowNS = nanos[capacity]
	p.found[plan.Policy] = plan.Rows
	return nil
}
