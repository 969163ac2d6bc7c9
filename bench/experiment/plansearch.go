package experiment

import (
	"cmp"
	"math"
	"sync"

	"github.com/tensorcache/tensorcache/hashmap"
)

// narrow is how far apart, as a factor, a simulated capacity lies from one that is expected to be right.
const narrow = 1.004

// search returns the least capacity, to a hundredth, that reaches the target, or most if none does. It begins with two capacities
// that may have it between them, and calls f for two at a time. f must not fall but for noise.
func search(f func(int64) (float64, error), a, b, most int64, target float64) (capacity int64, hit float64, err error) {
	lo, hi := int64(0), most // lo does not reach the target; hi does once it is known to
	var atLo, atHi float64
	reached := false
	grow, spread := max(1.1, float64(b)/float64(max(1, a))), narrow
	for !reached || float64(hi) > 1.01*float64(lo)+hashmap.SlotBytes {
		last := hi // that is worth a call
		if reached {
			last--
		}
		a = max(lo+1, min(a, last))
		b = max(a, min(b, last))
		var second float64
		var failed error
		var other sync.WaitGroup
		if a != b {
			other.Go(func() { second, failed = f(b) })
		}
		first, err := f(a)
		other.Wait()
		if err := cmp.Or(err, failed); err != nil {
			return 0, 0, err
		}
		switch {
		case first >= target:
			hi, atHi, reached = a, first, true
		case a == b:
			lo, atLo = a, first
		case second >= target:
			lo, atLo, hi, atHi, reached = a, first, b, second, true
			spread = narrow
		default:
			lo, atLo = b, second
		}
		if lo == most {
			return most, atLo, nil
		}
		x, y := float64(lo), float64(hi)
		switch {
		case !reached:
			grow *= grow
			a, b = clamp(x*grow), clamp(x*grow*grow)
		case lo == 0:
			grow *= grow
			a, b = clamp(y/grow/grow), clamp(y/grow)
		case spread*spread < y/x: // the hit ratio grows with the logarithm, nearly: the farther the first guesses were off, the wider are the next
			x *= math.Pow(y/x, (target-atLo)/(atHi-atLo))
			a, b = clamp(x/spread), clamp(x*spread)
			spread *= spread * spread * spread
		default:
			a, b = clamp(math.Cbrt(x*x*y)), clamp(math.Cbrt(x*y*y))
		}
	}
	return hi, atHi, nil
}

func clamp(x float64) int64 { return int64(min(x, 1<<60)) }
