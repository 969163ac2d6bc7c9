package workload

import (
	"math/bits"
	"math/rand/v2"
)

// permutationRounds is the number of Feistel rounds. Large domains are well mixed
// by four; domains of a few bits need more for every order to be equally
// frequent (six fail the uniformity test at five elements).
const permutationRounds = 12

// permutation is a pseudo-random bijection on [0, n), computed element by
// element without memory: a balanced Feistel network on the smallest even
// number of bits that holds n, applied again until the result is below n (cycle
// walking; below four steps on average).
type permutation struct {
	n    uint64
	half uint // bits of one half
	keys [permutationRounds]uint64
}

// newPermutation returns the permutation of [0, n) that the seed and the epoch fix.
// REQUIRES: n >= 1.
func newPermutation(n int, seed, epoch uint64) permutation {
	p := permutation{n: uint64(n), half: uint(max(bits.Len64(uint64(n-1))+1, 2) / 2)}
	var r rand.PCG // by value: Batch must not allocate
	r.Seed(streamSeeds(seed, purposePermutation, epoch))
	for i := range p.keys {
		p.keys[i] = r.Uint64()
	}
	return p
}

// at returns element i of the permutation.
// REQUIRES: 0 <= i < n.
func (p *permutation) at(i int) int {
	x := uint64(i)
	for {
		left, right := x>>p.half, x&(1<<p.half-1)
		for _, k := range p.keys {
			left, right = right, left^mix64(right^k)>>(64-p.half)
		}
		x = left<<p.half | right
		if x < p.n {
			return int(x)
		}
	}
}
