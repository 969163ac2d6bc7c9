package gpu

import (
	"encoding/binary"
	"math"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync"
)

// A table repeats after patternBytes bytes. That makes no batch faster: the device caches bytes by their addresses, and caches of such tables are opened
// with HostOptions.NoEqualRows. Packed tiers store equal rows once all the same: pattern.fillApart.
const patternBytes = 64 << 20

// A pattern is what a table consists of, repeated.
type pattern []byte

// patternPart is what the length of a pattern is a multiple of.
const patternPart = 1 << 20

// emptyPattern returns zeros for a table of so many bytes: of a shorter table than patternBytes, no more than that.
func emptyPattern(bytes int64) pattern {
	return make(pattern, min(patternBytes, (bytes+patternPart-1)/patternPart*patternPart))
}

// newPattern makes a pattern of 32-bit elements for a table of so many bytes.
func newPattern(bytes int64, value func(*rand.Rand) float32) pattern {
	p := emptyPattern(bytes)
	parallel(len(p)/patternPart, func(from, to int) {
		for k := from; k < to; k++ {
			rng := rand.New(rand.NewPCG(uint64(k), 1))
			for i := k * patternPart; i < (k+1)*patternPart; i += 4 {
				binary.LittleEndian.PutUint32(p[i:], math.Float32bits(value(rng)))
			}
		}
	})
	return p
}

// density is the share of ones among the elements of sparse rows.
const density = 0.05

// sparse returns elements that are 0 or 1.
func sparse(bytes int64) pattern {
	return newPattern(bytes, func(r *rand.Rand) float32 {
		if r.Float64() < density {
			return 1
		}
		return 0
	})
}

// fill fills a table.
func (p pattern) fill(table []byte) {
	parallel((len(table)+len(p)-1)/len(p), func(from, to int) {
		for k := from; k < to; k++ {
			copy(table[k*len(p):], p)
		}
	})
}

// fillApart fills a table of rows of float8 values, with other signs of the first 16 values of a row in each repetition. So rows of different repetitions differ, and are
// compressed like those of the first. REQUIRES: p consists of whole rows of at least 16 values.
func (p pattern) fillApart(table []byte, rowBytes int) {
	parallel((len(table)+len(p)-1)/len(p), func(from, to int) {
		for k := from; k < to; k++ {
			part := table[k*len(p):]
			part = part[:copy(part, p)]
			for ; len(part) >= rowBytes; part = part[rowBytes:] {
				for bit := range 16 {
					part[bit] ^= byte(k>>bit&1) << 7
				}
			}
		}
	})
}

// powerLawRows returns row numbers of [from, to). Their ranks follow a power law of exponent 1 over ranks from 1 on, cut to ranks of
// [from, to), and are scattered over the rows. REQUIRES: 0 < from < to.
func powerLawRows(n int, from, to int64, seed uint64) []int64 {
	rng := rand.New(rand.NewPCG(seed, 4))
	rows := make([]int64, n)
	octaves := math.Log(float64(to) / float64(from))
	for i := range rows {
		rank := int64(float64(from) * math.Exp(rng.Float64()*octaves))
		rows[i] = from + scatter(min(max(rank, from), to-1)-from, to-from)
	}
	return rows
}

// scatter is a permutation of [0, n) that looks random: a bijection of the next power of two, repeated until the result is below n.
func scatter(x, n int64) int64 {
	width := max(2, bits.Len64(uint64(n-1)))
	mask := uint64(1)<<width - 1
	v := uint64(x)
	for {
		for _, odd := range [...]uint64{0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9, 0x94d049bb133111eb} {
			v = v * odd & mask
			v ^= v >> (width / 2)
		}
		if v < uint64(n) {
			return int64(v)
		}
	}
}

// sectorBytes is the unit in which a GPU reads host memory.
const sectorBytes = 32

// sectors returns the bytes of the sectors that [addr, addr+n) touches.
func sectors(addr uintptr, n int) int64 {
	if n == 0 {
		return 0
	}
	return int64((addr+uintptr(n)+sectorBytes-1)&^(sectorBytes-1) - addr&^(sectorBytes-1))
}

// parallel runs body for consecutive parts of [0, n).
func parallel(n int, body func(from, to int)) {
	var wg sync.WaitGroup
	part := (n + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0)
	for from := 0; from < n; from += part {
		wg.Go(func() { body(from, min(from+part, n)) })
	}
	wg.Wait()
}
