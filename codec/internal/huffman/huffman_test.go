package huffman_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/codec/internal/huffman"
)

// TestLengths_Optimal compares with codes of unlimited length where those fit, and with the sum that a complete code has where not.
func TestLengths_Optimal(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		limit := 9 + r.IntN(huffman.MaxCode-8)
		var counts [huffman.Symbols]int64
		n := 2 + r.IntN(huffman.Symbols-1)
		skew := r.Float64() * 25
		var queue []int64
		for _, s := range r.Perm(huffman.Symbols)[:n] {
			counts[s] = 1 + int64(math.Exp(skew*r.Float64()))
			queue = append(queue, counts[s])
		}
		lengths := huffman.Lengths(&counts, limit)
		if _, err := huffman.Codes(&lengths, limit); err != nil {
			t.Fatal(err)
		}
		var cost, best int64
		longest := uint8(0)
		for s, l := range lengths {
			if (l == 0) != (counts[s] == 0) {
				t.Fatalf("symbol %d occurs %d times and has %d bits", s, counts[s], l)
			}
			cost += counts[s] * int64(l)
			longest = max(longest, l)
		}
		for len(queue) > 1 {
			for i := range 2 { // the two least to the front
				for j := i + 1; j < len(queue); j++ {
					if queue[j] < queue[i] {
						queue[i], queue[j] = queue[j], queue[i]
					}
				}
			}
			queue[1] += queue[0]
			best += queue[1]
			queue = queue[1:]
		}
		if cost < best || int(longest) < limit && cost != best {
			t.Errorf("%d symbols cost %d, Huffman's code %d; longest %d", n, cost, best, longest)
		}
	}
}
