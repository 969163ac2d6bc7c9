package workload

import (
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
)

// purpose keeps the streams of one seed apart. The values are part of the
// output: changing one changes what every seed produces.
type purpose uint64

const (
	purposeSources     purpose = iota + 1 // edge sources, one stream a block of edges
	purposeTargets                        // edge targets, one stream a block of edges
	purposeRanks                          // the permutation of ranks, one stream
	purposeScales                         // column scales, one stream
	purposeFeatures                       // table elements, one stream a block of rows
	purposePermutation                    // epoch shuffles, one stream an epoch
	purposeNeighbors                      // sampled neighbours, one stream a batch
	_                                     // of a generator that is no more
	purposeWeights                        // edge weights, one stream a block of edges
	purposeEmbedding                      // DLRM lookups, one stream a batch
	purposeTurnover                       // when a DLRM rank gets another row
	_                                     // of another one
	purposeMix                            // lookups of mixes, one stream a batch
	purposePopularity                     // lookups by popularity buckets, one stream a batch
	purposeSizes                          // row sizes by distribution
	purposeWords                          // words of generated texts, one stream a block of rows
	purposeText                           // texts drawn from another's statistics, one stream
	purposeFloat8                         // float8 table elements, one stream a block of rows
	purposeStandIns                       // stand-ins, one stream a block of rows, and one for what is of columns
)

// gamma is the increment of splitmix64, 2^64 over the golden ratio.
const gamma = 0x9e3779b97f4a7c15

// mix64 is the output step of splitmix64, a bijection on 64-bit words in which
// every input bit reaches every output bit.
func mix64(x uint64) uint64 {
	x += gamma
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// streamSeeds returns the two PCG seeds of stream (seed, p, index).
func streamSeeds(seed uint64, p purpose, index uint64) (uint64, uint64) {
	h := mix64(seed ^ mix64(uint64(p)))
	return mix64(h + index*gamma), mix64(^h ^ mix64(index))
}

// newStream returns the generator of stream (seed, p, index).
func newStream(seed uint64, p purpose, index uint64) *rand.PCG {
	return rand.NewPCG(streamSeeds(seed, p, index))
}

// below draws from [0, n). It takes the high word of a 64 by 64 bit product,
// so the probabilities differ by less than n/2^64.
func below(r *rand.PCG, n uint64) uint64 {
	hi, _ := bits.Mul64(r.Uint64(), n)
	return hi
}

// forEachBlock calls fn once for every block in [0, blocks), on GOMAXPROCS
// goroutines, and returns when all calls have. The result is deterministic if
// what fn(b) writes depends on b only.
func forEachBlock(blocks int, fn func(b int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), blocks) {
		wg.Go(func() {
			for b := int(next.Add(1)) - 1; b < blocks; b = int(next.Add(1)) - 1 {
				fn(b)
			}
		})
	}
	wg.Wait()
}
