package experiment

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"github.com/tensorcache/tensorcache/cache"
)

// search tries caches of one policy and codec at several budgets.
type search struct {
	*planner
	trial
	tried []*outcome // by budget
}

func newSearch(p *planner, t trial) *search { return &search{planner: p, trial: t} }

const (
	// sketchSteps is how many budgets are tried first, each a quarter of the one before, from that of the whole table on.
	sketchSteps = 4
	// nearBudget is how far apart, as a factor, two budgets are of which one reaches a target and the other does not, when the search ends. It also ends nearHit above the target.
	nearBudget, nearHit = 1.02, 0.008
	// searchSteps bounds the budgets that are tried for one target.
	searchSteps = 12
	// enoughBelow is by how much less than the best a budget hits that is enough. It is found to a factor of nearEnough.
	enoughBelow, nearEnough = 0.005, 1.15
)

// budgetTooSmall says whether a cache was refused because its budget does not hold a row, or a resident table.
func budgetTooSmall(err error) bool {
	return errors.Is(err, cache.ErrBudget) || errors.Is(err, cache.ErrOptions)
}

// tryOrNothing is try with an outcome of no hits where a budget holds no row.
func (p *planner) tryOrNothing(ctx context.Context, t trial) (*outcome, error) {
	o, err := p.try(ctx, t)
	if budgetTooSmall(err) {
		return &outcome{PlanPoint: PlanPoint{BudgetBytes: t.budget}, devices: max(1, p.cfg.Devices)}, nil
	}
	return o, err
}

// try tries a budget, unless it has been tried.
func (s *search) try(ctx context.Context, budget int64) (*outcome, error) {
	if o := s.at(budget); o != nil {
		return o, nil
	}
	t := s.trial
	t.budget = budget
	o, err := s.planner.tryOrNothing(ctx, t)
	if err != nil {
		return nil, err
	}
	i, _ := slices.BinarySearchFunc(s.tried, budget, func(o *outcome, budget int64) int { return cmp.Compare(o.BudgetBytes, budget) })
	s.tried = slices.Insert(s.tried, i, o)
	return o, nil
}

// at returns what was found for a budget, nil if it was not tried.
func (s *search) at(budget int64) *outcome {
	for _, o := range s.tried {
		if o.BudgetBytes == budget {
			return o
		}
	}
	return nil
}

// sketch tries some budgets, up to one that holds all rows.
func (s *search) sketch(ctx context.Context) error {
	budget := s.wholeBudget()
	for range sketchSteps {
		o, err := s.try(ctx, budget)
		if err != nil {
			return err
		}
		if budget /= 4; o.lookups == 0 || s.slots && budget == 0 {
			return nil
		}
	}
	return nil
}

// best is the highest hit rate of those tried.
func (s *search) best() (hit float64) {
	for _, o := range s.tried {
		hit = max(hit, o.HitRatio)
	}
	return hit
}

// enough is the least budget that hits nearly as much as any.
func (s *search) enough() int64 {
	for _, o := range s.tried {
		if o.lookups > 0 && o.HitRatio >= s.best()-enoughBelow {
			return o.BudgetBytes
		}
	}
	return 0
}

// least returns the least budget, but for a factor of near, that reaches a target, or the least of those that hit most.
func (s *search) least(ctx context.Context, target, near float64) (*outcome, error) {
	for step := range searchSteps {
		reaching := slices.IndexFunc(s.tried, func(o *outcome) bool { return o.lookups > 0 && o.HitRatio >= target })
		if reaching < 0 {
			return slices.MaxFunc(s.tried, func(a, b *outcome) int {
				return cmp.Or(cmp.Compare(a.HitRatio, b.HitRatio), cmp.Compare(b.BudgetBytes, a.BudgetBytes))
			}), nil
		}
		hi := s.tried[reaching]
		x, y := 1.0, float64(hi.BudgetBytes)
		at, next := 0.0, 0.0
		if reaching > 0 {
			x, at = float64(s.tried[reaching-1].BudgetBytes), s.tried[reaching-1].HitRatio
		}
		if hi.HitRatio <= target+nearHit || y <= x*near || step == searchSteps-1 {
			return hi, nil
		}
		// Hit rates grow with the logarithm of the budget, nearly. A step that does not halve the distance is followed by one that does.
		if next = y / 8; reaching > 0 {
			next = math.Sqrt(x * y)
			if step%2 == 0 {
				next = x * math.Pow(y/x, (target+nearHit/2-at)/(hi.HitRatio-at))
			}
			width := math.Pow(y/x, 0.02)
			next = min(max(next, x*width), y/width)
		}
		budget := int64(next) &^ 15
		if s.at(budget) != nil || budget <= int64(x) {
			return hi, nil
		}
		if _, err := s.try(ctx, budget); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("experiment: the search has no end") // its last step returns
}
