package experiment

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// The foretold border is where a sum over all rows, one by one, has the resident table and the cache equally fast. There is none if no row is longer than its
// slot, and the cache is ahead everywhere if reading overflow places takes longer than missing as many rows.
func TestSkewed_Border(t *testing.T) {
	t.Parallel()
	const rows = 20_000
	rng := rand.New(rand.NewPCG(1, 3))
	s := &sizes{cost: admission.GPUCost(512, 0), stored: make([]uint32, rows)}
	c := &curve{}
	for i := range s.stored {
		s.stored[i] = uint32(300 + rng.IntN(100))
		c.order = append(c.order, uint32(i))
	}
	rng.Shuffle(rows, func(i, j int) { c.order[i], c.order[j] = c.order[j], c.order[i] })
	overflow := func(bytes, target int) float64 { return s.cost.Miss(bytes) + float64(buddy.Over(target, 400))*1e-12 }
	for _, of := range []struct {
		name   string
		parts  []buddy.Part
		cached int64
		none   bool
		any    bool
	}{
		{"one target", []buddy.Part{{To: rows, Target: 368}}, rows / 4, false, false},
		{"two targets", []buddy.Part{{To: rows / 3, Target: 384}, {From: rows / 3, To: rows, Target: 352}}, rows / 2, false, false},
		{"nothing is longer", []buddy.Part{{To: rows, Target: 400}}, rows - 1, true, false},
		{"all is longer", []buddy.Part{{To: rows, Target: 16}}, rows - 1, false, true},
	} {
		k := newSkewed(s, c, func(row int64) int {
			if row >= of.parts[0].To {
				return of.parts[1].Target
			}
			return of.parts[0].Target
		}, overflow, of.cached)
		border := k.border()
		switch {
		case (border == nil) != of.none || border != nil && (*border == 0) != of.any:
			t.Errorf("%s: border %v", of.name, border)
		case border != nil && !of.any:
			for _, beside := range []float64{-0.01, 0.01} {
				resident, cached, sum := 0.0, 0.0, 0.0
				exponent := *border + beside
				for i, row := range c.order {
					p := math.Pow(float64(i+1), -exponent)
					target := of.parts[0].Target
					if int64(row) >= of.parts[0].To {
						target = of.parts[1].Target
					}
					if more := int(s.stored[row]) - target; more > 0 {
						resident += p * overflow(more, target)
					}
					if sum += p; int64(i) < of.cached {
						cached += p * s.cost.Hit
					} else {
						cached += p * s.cost.Miss(int(s.stored[row]))
					}
				}
				if resident = max(resident, sum*s.cost.Hit); (resident > cached) != (beside > 0) {
					t.Errorf("%s: at %.3f, %+.2f beside the border, resident %.3g and cached %.3g ns", of.name, exponent, beside, 1e9*resident/sum, 1e9*cached/sum)
				}
			}
		}
	}
}
