package admission

import "math"

// horizons is the number of ageing speeds at which freq counts accesses, fastest first.
const horizons = 4

// halfLives are the half-lives of the counts of each horizon, in accesses per row that fits. The fastest is nearly LRU, the
// slowest nearly LFU. Measured on the streams of bench/sim: with a fastest of 1 the Mooncake trace loses 0.6 points of hit
// rate. The two in the middle matter little. A slowest of 256 forgets too soon if hits are rare: with room for 27 of cora's
// 2708 rows the hit rate is 0.95 instead of 1.31 %, and every refresh replaces 90 % of the rows.
var halfLives = [horizons]float64{2, 12, 100, 4096}

// significance is the lead, in standard deviations, at which another horizon takes over. From 2 to 6, hit rates differ by at
// most 0.1 points if all accesses are observed. At 2, chance replaces a third of small caches at every refresh.
const significance = 4

// ageing holds the weights of accesses. Instead of decaying all counts, it increases the weight of new accesses.
type ageing struct {
	weight [horizons]float32
	growth [horizons]float64 // factor of the weight per weighStep accesses
	exact  [horizons]float64 // the weight in double precision
}

// weighStep is the number of consecutive accesses of equal weight.
const weighStep = 64

func newAgeing() ageing {
	a := ageing{}
	for k := range horizons {
		a.exact[k], a.weight[k] = 1, 1
	}
	return a
}

// resize sets the half-lives for a cache that holds this number of rows.
func (a *ageing) resize(rows float64) {
	for k, h := range halfLives {
		a.growth[k] = math.Exp2(weighStep / (h * max(rows, weighStep/4)))
	}
}

// maxWeight bounds the weights so that their sums stay finite. It is a power of two, so that dividing by it is exact.
const maxWeight = 1 << 64

// step is called after every weighStep accesses. The caller must divide the counts of the returned horizons by maxWeight.
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

// recent returns the factor by which a count that was gathered evenly over the given accesses has aged at horizon k.
func (a *ageing) recent(k int, accesses float64) float32 {
	halfLives := math.Log2(a.growth[k]) * accesses / weighStep
	if halfLives < 1e-9 {
		return 1
	}
	return float32((1 - math.Exp2(-halfLives)) / (halfLives * math.Ln2))
}

// contest decides which horizon ranks. Each horizon has the set of rows that it would have cached at the last Rank. Every
// access since then is a vote for the horizons whose sets contain the row.
type contest struct {
	active int
	votes  [1 << horizons]tally // accesses since the last decision, by the set of horizons that had the row
	// won counts the accesses to rows that horizon k had and the active one had not; lost counts the reverse. Both restart
	// when k is not ahead, so that evidence from before a change of the workload does not count.
	won, lost [horizons]tally
}

// tally counts accesses, and sums the squares of what each stood for: the variance of the count.
type tally struct{ accesses, squares float64 }

func (t *tally) add(u tally) {
	t.accesses += u.accesses
	t.squares += u.squares
}

// decide makes the horizon with the most significant lead over the active one active, and reports whether the active one has
// changed. If so, the caller must choose the sets anew.
func (c *contest) decide() bool {
	best, most := c.active, float64(significance)
	for k := range horizons {
		for had, n := range c.votes {
			switch mine, its := had>>k&1, had>>c.active&1; {
			case mine > its:
				c.won[k].add(n)
			case mine < its:
				c.lost[k].add(n)
			}
		}
		if c.won[k].accesses <= c.lost[k].accesses {
			c.won[k], c.lost[k] = tally{}, tally{}
		} else if z := (c.won[k].accesses - c.lost[k].accesses) / math.Sqrt(c.won[k].squares+c.lost[k].squares); z > most {
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
