package admission

import "math"

// horizons is the number of ageing speeds at which freq counts side by side, fastest first.
const horizons = 4

// halfLives are those of the counts at each horizon, in accesses per row that fits. The fastest acts like LRU, the slowest
// hardly forgets. Measured on the streams of bench/sim: a fastest of 1 costs the Mooncake trace 0.6 points, and the two in
// the middle hardly matter; a slowest of 256 forgets too soon where hits are rare (27 of cora's 2708 rows: hit rate 0.95
// instead of 1.31 %, and every refresh replaces 90 % of them).
var halfLives = [horizons]float64{2, 12, 100, 4096}

// surprise is how many standard deviations another horizon must be ahead before it takes over. From 2 to 6, hit rates
// change by at most 0.1 points where all accesses are seen; at 2, chance replaces a third of small caches at every refresh.
const surprise = 4

// ageing weighs accesses: instead of old counts getting smaller, the weight of a new access grows.
type ageing struct {
	weight [horizons]float32
	growth [horizons]float64 // in weighStep accesses
	exact  [horizons]float64 // weight
}

// weighStep is the accesses that weigh the same.
const weighStep = 64

func newAgeing() ageing {
	a := ageing{}
	for k := range horizons {
		a.exact[k], a.weight[k] = 1, 1
	}
	return a
}

// resize sets the half-lives for a cache of so many rows.
func (a *ageing) resize(rows float64) {
	for k, h := range halfLives {
		a.growth[k] = math.Exp2(weighStep / (h * max(rows, weighStep/4)))
	}
}

// maxWeight bounds the weights so that sums of them stay finite; it is a power of two, which divides exactly.
const maxWeight = 1 << 64

// step says that weighStep accesses have passed. Where it returns true, counts at that horizon must be divided by maxWeight.
func (a *ageing) step() (divide [horizons]bool) {
	for k := range horizons {
		if a.exact[k] *= a.growth[k]; a.exact[k] >= maxWeight {
			a.exact[k] /= maxWeight
			divide[k] = true
		}
		a.weight[k] = float32(a.exact[k])
	}
	return divide
}

// recent returns which part of a count is left, at horizon k, when it was gathered evenly over the given accesses.
func (a *ageing) recent(k int, accesses float64) float32 {
	halfLives := math.Log2(a.growth[k]) * accesses / weighStep
	if halfLives < 1e-9 {
		return 1
	}
	return float32((1 - math.Exp2(-halfLives)) / (halfLives * math.Ln2))
}

// contest decides which horizon ranks. Each has a set of rows that it would have had in the cache since the last Rank;
// every access since is a vote for the horizons whose set has the row.
type contest struct {
	active int
	votes  [1 << horizons]float64 // since the last decision, by the horizons that had the row
	// won and lost are the accesses that horizon k had and the active one had not, and the other way round, since k was last
	// not ahead: evidence from before a drift does not count.
	won, lost [horizons]float64
}

// decide makes a horizon active that is significantly ahead of the active one, the one most so, and returns whether it is
// another one. REQUIRES: the sets are chosen anew if so.
func (c *contest) decide() bool {
	best, most := c.active, float64(surprise)
	for k := range horizons {
		for had, n := range c.votes {
			switch mine, its := had>>k&1, had>>c.active&1; {
			case mine > its:
				c.won[k] += n
			case mine < its:
				c.lost[k] += n
			}
		}
		if c.won[k] <= c.lost[k] {
			c.won[k], c.lost[k] = 0, 0
		} else if z := (c.won[k] - c.lost[k]) / math.Sqrt(c.won[k]+c.lost[k]); z > most {
			best, most = k, z
		}
	}
	clear(c.votes[:])
	if best == c.active {
		return false
	}
	*c = contest{active: best}
	return true
}
