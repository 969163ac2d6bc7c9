package admission

import (
	"math/bits"

	"github.com/tensorcache/tensorcache/internal/numa"
)

// sketch counts accesses to untracked keys. It is a count-min sketch with conservative update, whose counters are halved every
// period accesses. The four counters of a key lie in one cache line. Counts saturate at 255. An estimate can be too high, for
// keys that share all four counters with others, but not too low, apart from the halvings and the saturation.
//
// A sketch is divided into shards, each a range of blocks that counts and halves by itself. Keys of different shards may be counted at the
// same time.
type sketch struct {
	blocks []sketchBlock
	shards []sketchShard
}

type sketchShard struct {
	blocks []sketchBlock
	added  uint64   // accesses since the last halving
	period uint64   // of halvings
	most   float32  // highest value so far of a row that this shard counted, in the units of freqBucket.value
	_      [20]byte // shards of different goroutines are in cache lines of their own
}

type sketchBlock [64]uint8

// newSketch returns a sketch with the given numbers of 64-byte blocks and of shards, and its memory. period is that of all shards together.
// REQUIRES: blocks ≥ shards > 0, period ≥ shards.
func newSketch(blocks, shards int, period uint64) (sketch, *numa.Memory) {
	b, memory := numa.Make[sketchBlock](int64(blocks))
	s := sketch{blocks: b, shards: make([]sketchShard, shards)}
	for i := range s.shards {
		s.shards[i] = sketchShard{blocks: b[shardStart(i, shards, blocks):shardStart(i+1, shards, blocks)], period: period / uint64(shards)}
	}
	return s, memory
}

// shardStart returns where shard i begins of so many shards of n things.
func shardStart(i, shards, n int) int { return (i*n + shards - 1) / shards }

// cells returns the block of a hash and the indices of its counters, one in each quarter of the block.
func (s *sketchShard) cells(hash uint64) (b *sketchBlock, at [4]uint32) {
	// The hash is mixed again, so that keys of one bucket of the table do not share counters.
	hi, lo := bits.Mul64(hash*0x9e3779b97f4a7c15, uint64(len(s.blocks)))
	c := uint32(lo >> 32)
	return &s.blocks[hi], [4]uint32{c >> 28, 16 + c>>24&15, 32 + c>>20&15, 48 + c>>16&15}
}

// estimate returns the estimated count of a key.
func (s *sketchShard) estimate(hash uint64) uint32 {
	b, at := s.cells(hash)
	return uint32(min(b[at[0]], b[at[1]], b[at[2]], b[at[3]]))
}

// add counts an access that stands for weight accesses, and returns the estimate of those before it.
func (s *sketchShard) add(hash uint64, weight uint32) (before uint32) {
	b, at := s.cells(hash)
	n := min(b[at[0]], b[at[1]], b[at[2]], b[at[3]])
	more := uint8(min(uint32(n)+weight, 255))
	for _, i := range at {
		b[i] = max(b[i], more)
	}
	if s.added += uint64(weight); s.added >= s.period {
		s.halve()
	}
	return uint32(n)
}

// raise makes the estimate at least n.
func (s *sketchShard) raise(hash uint64, n float32) {
	b, at := s.cells(hash)
	least := uint8(min(n, 255))
	for _, i := range at {
		b[i] = max(b[i], least)
	}
}

func (s *sketchShard) halve() {
	s.added = 0
	for i := range s.blocks {
		for j := range s.blocks[i] {
			s.blocks[i][j] >>= 1
		}
	}
}
