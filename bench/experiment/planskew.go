package experiment

import "math"

const (
	// maxSkew is the greatest exponent that a border is looked for at, and skewStep how far apart the exponents are that are tried first.
	maxSkew, skewStep = 3.0, 0.1
	// skewParts is how many parts the rows are divided into: each is as many times as long as the rows before it as the part before.
	skewParts = 512
	// fasterBy is by how much a time must be longer than another one to count as longer, which is more than rounding makes it.
	fasterBy = 1 + 1e-6
)

// skewed has the mean seconds of the rows of a table in parts, in the order in which a cache takes them up: of one that is resident, and of one of which the first
// rows are cached.
type skewed struct {
	ends                      []float64 // rows up to the end of each part
	hit                       float64   // of a row in device memory
	overflow, missed, outside []float64 // of a row's overflow place; of a cached row or its miss; the share of rows that are not cached
}

// newSkewed divides the rows of a curve, of which so many entries are cached, and the rows that no batch looks up, behind them. target is the length of a row's slot,
// and overflow the seconds of so many bytes in the overflow place of such a slot.
func newSkewed(s *sizes, c *curve, target func(row int64) int, overflow func(bytes, target int) float64, cached int64) *skewed {
	k := &skewed{hit: s.cost.Hit}
	entries, rows := int64(len(c.order)), int64(len(c.order))+s.others.rows
	other, otherOver := 0.0, 0.0 // of a row that no batch looks up
	if s.others.rows > 0 {
		for _, n := range s.lengths {
			other += s.cost.Miss(int(n)) / float64(len(s.lengths))
			if more := int(n) - target(0); more > 0 {
				otherOver += overflow(more, target(0)) / float64(len(s.lengths))
			}
		}
	}
	for from := int64(0); from < rows; {
		to := max(from+1, min(rows, int64(math.Ceil(math.Pow(float64(rows+1), float64(len(k.ends)+1)/skewParts)))-1))
		for _, border := range []int64{cached, entries} { // a part is cached as a whole or not at all, and of rows of one kind
			if from < border && border < to {
				to = border
			}
		}
		n, outside := float64(to-from), 0.0
		over, miss := otherOver*n, other*n
		if from < entries {
			over, miss = 0, 0
			for _, row := range c.order[from:to] {
				stored := int(s.stored[row])
				if slot := target(int64(row)); stored > slot {
					over += overflow(stored-slot, slot)
				}
				miss += s.cost.Miss(stored)
			}
		}
		if from >= cached {
			outside = 1
		}
		k.ends = append(k.ends, float64(to))
		k.overflow, k.missed, k.outside = append(k.overflow, over/n), append(k.missed, miss/n), append(k.outside, outside)
		from = to
	}
	return k
}

// seconds returns the mean time of a row of the resident table and of the cached one, if the frequency of a row is its place in the order to the power of -exponent.
func (k *skewed) seconds(exponent float64) (resident, cached float64) {
	sum := func(n float64) float64 { // of the frequencies of the first n rows, as an integral
		if math.Abs(exponent-1) < 1e-9 {
			return math.Log1p(n)
		}
		return (math.Pow(n+1, 1-exponent) - 1) / (1 - exponent)
	}
	before, over := 0.0, 0.0
	for i, end := range k.ends {
		upTo := sum(end)
		share := upTo - before
		over += share * k.overflow[i]
		cached += share * (k.outside[i]*k.missed[i] + (1-k.outside[i])*k.hit)
		before = upTo
	}
	return max(k.hit, over/before), cached / before
}

// border returns the exponent of the rows' frequencies from which on the cache is expected to be the faster one: 0 if it is at any, nil if it is at none up to
// maxSkew.
func (k *skewed) border() *float64 {
	ahead := func(exponent float64) bool { // the cache
		resident, cached := k.seconds(exponent)
		return resident > cached*fasterBy
	}
	steps := int(math.Round(maxSkew / skewStep))
	last := steps // the greatest of the exponents tried at which the cache is not ahead
	for last >= 0 && ahead(float64(last)*skewStep) {
		last--
	}
	switch last {
	case steps:
		return nil
	case -1:
		return new(float64)
	}
	lo, hi := float64(last)*skewStep, float64(last+1)*skewStep
	for hi-lo > 1e-3 {
		if mid := (lo + hi) / 2; ahead(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return &hi
}
