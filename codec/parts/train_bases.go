package parts

import "math"

const (
	// Bases are tried from this many sampled rows on: fewer say little about one column.
	leastBasedRows = 256
	// mostBasedBits is the most bits of symbols with bases.
	mostBasedBits = 5
	// basedRounds bounds how often all columns' bases are searched anew.
	basedRounds = 6
	// basedGain is the share of a plane's bits that bases must save.
	basedGain = 0.01
)

// trainBases finds bases by which all columns together have few symbols of the given length, and returns them with the number of occurrences
// of each symbol. Round by round, each column takes the base by which the frequencies of the round before would code it shortest, as k-means
// does with one cluster. Bases are multiples of an eighth of a symbol, or of 1.
func trainBases(counts columns, bits int) (bases []byte, folded []int64) {
	width, symbols := 1<<(8-bits), 1<<bits
	step := max(1, width/8)
	bases = make([]byte, len(counts))
	// before[e][i] is how often column e has a value below i: twice around.
	before := make([][513]float32, len(counts))
	for e := range counts {
		for i := range 512 {
			before[e][i+1] = before[e][i] + float32(counts[e][i%256])
		}
	}
	fold := func(e, base, symbol int) float32 {
		return before[e][base+(symbol+1)*width] - before[e][base+symbol*width]
	}
	price := make([]float32, symbols)
	for round := 0; ; round++ {
		folded = make([]int64, symbols)
		all := 0.0
		for e := range counts {
			for s := range symbols {
				n := fold(e, int(bases[e]), s)
				folded[s] += int64(n)
				all += float64(n)
			}
		}
		if round == basedRounds {
			return bases, folded
		}
		for s, n := range folded {
			price[s] = float32(math.Log2((all + float64(symbols)/2) / (float64(n) + 0.5)))
		}
		moved := false
		for e := range counts {
			cost := func(base int) (sum float32) {
				for s := range symbols {
					sum += fold(e, base, s) * price[s]
				}
				return sum
			}
			best := bases[e]
			least := cost(int(best))
			for base := 0; base < 256; base += step {
				if c := cost(base); c < least {
					least, best = c, byte(base)
				}
			}
			moved = moved || best != bases[e]
			bases[e] = best
		}
		if !moved {
			round = basedRounds - 1
		}
	}
}
