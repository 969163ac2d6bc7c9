package experiment

import (
	"math"

	"github.com/tensorcache/tensorcache/slab/buddy"
)

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

// newSkewed divides the rows of a curve, of which so many are cached. seconds are those of bytes in an overflow place, as buddy.Times has them.
func newSkewed(s *sizes, c *curve, seconds func(bytes, place int) float64, layout buddy.Layout, parts []buddy.Part, cached int64) *skewed {
	k := &skewed{hit: s.cost.Hit}
	rows := len(c.order)
	for from := 0; from < rows; {
		to := max(from+1, min(rows, int(math.Ceil(math.Pow(float64(rows+1), float64(len(k.ends)+1)/skewParts)))-1))
		if int64(from) < cached && cached < int64(to) { // a part is cached as a whole or not at all
			to = int(cached)
		}
		var over, miss float64
		for _, row := range c.order[from:to] {
			stored := int(s.stored[row])
			target := 0
			for _, p := range parts {
				if layout.Local(int64(row)) < p.To {
					target = p.Target
					break
				}
			}
			if more := stored - target; more > 0 {
				over += seconds(more, buddy.Over(target, layout.RowBytes))
			}
			miss += s.cost.Miss(stored)
		}
		n, outside := float64(to-from), 0.0
		if int64(from) >= cached {
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
