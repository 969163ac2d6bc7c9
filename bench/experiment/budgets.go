package experiment

import (
	"context"
	"slices"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/hashmap"
)

// BudgetHits is what a cache of another budget is predicted to hit, of the same policy, codec and batches.
type BudgetHits struct {
	// Times is the budget ÷ that of the run.
	Times       float64 `json:"times"`
	BudgetBytes int64   `json:"budget_bytes"`
	Rows        int64   `json:"rows"`
	HitRatio    float64 `json:"hit_ratio"`
}

// otherTimes are the budgets that are predicted, ascending.
var otherTimes = []float64{0.5, 2, 4}

// accesses counts the measured accesses to each row. A nil value counts nothing.
type accesses []int64

func (a accesses) add(rows []int64) {
	if a != nil {
		for _, row := range rows {
			a[row]++
		}
	}
}

// atBudgets predicts the hit ratio at other budgets, for a cache that stays as it is filled, on one device: the policy ranks the rows
// for the largest budget, and so many times the rows of this cache are the first of the ranking. Rows count with the mean slot of the
// cached ones. The prediction is shifted so that it is right for the budget of the run.
func (r *run) atBudgets(ctx context.Context, m *measurement, counts accesses) ([]BudgetHits, error) {
	out := []BudgetHits{}
	t := &m.stats.Tables[0]
	if r.cfg.Online.on() || m.devices != 1 || t.CachedRows == 0 || t.CachedRows == int64(r.table.Rows) {
		return out, nil
	}
	r.progress.Stage("predicting other budgets", 0)
	policy, err := r.policy()
	if err != nil {
		return nil, err
	}
	defer policy.Close()
	slot := int(max(1, m.stats.PayloadBytes/t.CachedRows))
	same := func(uint64) int { return slot }
	err = policy.Start(admission.Problem{
		Rows: []int64{int64(r.table.Rows)}, Capacity: int64(slices.Max(otherTimes) * float64(m.stats.PayloadBytes)), Costs: []admission.Cost{{}}, SlotBytes: same, StoredBytes: same,
	})
	if err != nil {
		return nil, err
	}
	for table, rows := range r.learn(ctx) {
		policy.Observe(table, rows)
	}
	c := rankedHits(policy.Rank(), counts)
	lookups := c[len(c)-1]
	shift := ratio(t.Hits, t.Lookups) - ratio(c[t.CachedRows], lookups)
	for _, times := range otherTimes {
		rows := min(int64(r.table.Rows), int64(times*float64(t.CachedRows)))
		out = append(out, BudgetHits{
			Times: times, BudgetBytes: int64(times * float64(m.stats.BudgetBytes)), Rows: rows, HitRatio: max(0, min(1, ratio(c[rows], lookups)+shift)),
		})
	}
	return out, ctx.Err()
}

// rankedHits returns how many lookups the first rows of a ranking serve, 0 and more of them. The rows that it does not have follow in the order of their numbers.
func rankedHits(ranking func(func(uint64) bool), counts accesses) []int64 {
	hits := make([]int64, 1, len(counts)+1)
	ranked := make([]bool, len(counts))
	add := func(row int64) {
		if !ranked[row] {
			ranked[row], hits = true, append(hits, hits[len(hits)-1]+counts[row])
		}
	}
	for key := range ranking {
		_, row := hashmap.SplitKey(key)
		add(row)
	}
	for row := range counts {
		add(int64(row))
	}
	return hits
}
