package placement

import (
	"fmt"

	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
)

// Partition divides rows over slabs by the lower half of their key's hash, in proportion to the slabs' weights. The zero value
// has no slabs.
type Partition struct {
	weights [slab.MaxSlabs]int64
	bounds  [slab.MaxSlabs]uint64 // slab i has the hashes from bounds[i-1] to below bounds[i], of 2^32
	n       int
	// rest divides the rows of slabs that have been taken out, by another hash.
	rest *Partition
	out  uint8 // their bits
}

// NewPartition returns the partition over len(weights) slabs, 1 to 8. A slab of weight 0 gets no rows. Weights must not be
// negative, nor all 0.
func NewPartition(weights []int64) *Partition {
	if len(weights) < 1 || len(weights) > slab.MaxSlabs {
		panic(fmt.Sprintf("placement: slabs (%d) must be 1 to %d", len(weights), slab.MaxSlabs))
	}
	p := &Partition{n: len(weights)}
	copy(p.weights[:], weights)
	shift, most := 0, int64(0)
	for _, w := range weights {
		if w < 0 {
			panic(fmt.Sprintf("placement: weight (%d) must not be negative", w))
		}
		most = max(most, w)
	}
	for most>>shift >= 1<<28 { // eight of them, times 2^32, are below 2^63
		shift++
	}
	scaled := func(w int64) uint64 {
		if w == 0 {
			return 0
		}
		return max(1, uint64(w>>shift))
	}
	sum := uint64(0)
	for _, w := range weights {
		sum += scaled(w)
	}
	if sum == 0 {
		panic("placement: weights must not all be 0")
	}
	to := uint64(0)
	for i, w := range weights {
		to += scaled(w)
		p.bounds[i] = (to<<32 + sum - 1) / sum
	}
	return p
}

// Without returns the partition after a slab has been taken out: its rows are divided over the others, by their weights, and
// all other rows stay where they are. It returns nil when no slab would be left.
func (p *Partition) Without(i int) *Partition {
	q := *p
	q.out |= 1 << i
	weights, left := make([]int64, p.n), int64(0)
	for j := range weights {
		if q.out>>j&1 == 0 {
			weights[j] = p.weights[j]
			left += weights[j]
		}
	}
	if left == 0 {
		return nil
	}
	q.rest = NewPartition(weights)
	return &q
}

// Owner returns the slab of a row.
func (p *Partition) Owner(key uint64) int {
	hash := hashmap.Hash(key)
	i := p.find(uint32(hash))
	if p.out>>i&1 != 0 {
		i = p.rest.find(uint32(hashmap.Hash(hash + 0x9e3779b97f4a7c15)))
	}
	return i
}

func (p *Partition) find(low uint32) int {
	for i := range p.n - 1 {
		if uint64(low) < p.bounds[i] {
			return i
		}
	}
	i := p.n - 1
	for p.weights[i] == 0 {
		i--
	}
	return i
}
