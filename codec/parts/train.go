package parts

import (
	"math"

	"github.com/tensorcache/tensorcache/codec/internal/huffman"
	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
	"github.com/tensorcache/tensorcache/dtype"
)

const (
	// codedShare is the share of a plane's bits up to which it is coded.
	codedShare = 0.98
	// lookupPrice is what reading one entry of a table costs in bits: shorter symbols are decoded faster, as an entry has more of them.
	lookupPrice = 0.18
)

// Train makes the codec for rows of these parts like those of the sample, which lie back to back in it.
func Train(sample []byte, of []dtype.Part) (*Codec, error) {
	rowBytes := 0
	for _, p := range of {
		rowBytes += p.Count * p.Type.Size()
	}
	if err := rowcodec.CheckSample(name, sample, rowBytes); err != nil {
		return nil, err
	}
	var parts []Part
	symbols, bits, at := 0, 0.0, 0 // coded symbols of a row, and the bits of their codes
	for _, p := range of {
		var best Part
		var least, bestBits float64
		rotations := 1
		if p.Type.IsFloat() && p.Type != dtype.Float8E8M0FNU { // those with a sign
			rotations = 2
		}
		for rotate := range rotations {
			counts := countPlanes(sample, rowBytes, at, p, rotate)
			part := Part{ElementBytes: p.Type.Size(), Elements: p.Count, Rotate: rotate, Planes: make([]Plane, len(counts))}
			cost, codes := 0.0, 0.0
			for i := range counts {
				var c, b float64
				part.Planes[i], c, b = choose(&counts[i], limitOf(p.Count, rowBytes))
				cost, codes = cost+c, codes+b
			}
			if rotate == 0 || cost < least {
				best, least, bestBits = part, cost, codes
			}
		}
		for _, plane := range best.Planes {
			if plane.Kind == Coded {
				symbols += p.Count
			}
		}
		bits += bestBits * float64(p.Count)
		at += p.Count * p.Type.Size()
		parts = append(parts, best)
	}
	field := 2
	regions := float64(min(max(1, symbols/regionOf), maxRegions))
	if 1.25*bits/8/regions+8 <= math.MaxUint8 { // rows that take a quarter more are rare
		field = 1
	}
	return New(field, parts)
}

// choose returns how to store a plane with these counts of bytes, with codes of at most limit bits, what it costs in bits an element, and what of
// these are bits of codes.
func choose(counts *[256]int64, limit int) (best Plane, cost, codes float64) {
	var all int64
	seen, last := 0, 0
	for value, n := range counts {
		all += n
		if n > 0 {
			seen, last = seen+1, value
		}
	}
	if seen == 1 {
		return Plane{Kind: Constant, Value: byte(last)}, 0, 0
	}
	cost = 8 * codedShare
	for bits := 1; bits <= 8; bits++ {
		var folded [huffman.Symbols]int64
		seen := 0
		for value, n := range counts {
			s := value >> (8 - bits)
			if n > 0 && folded[s] == 0 {
				seen++
			}
			folded[s] += n
		}
		if seen < 1<<bits {
			folded[huffman.Escape] = 1
		}
		lengths := huffman.Lengths(&folded, limit)
		var sum int64
		for s, n := range folded[:huffman.Escape] {
			sum += n * int64(lengths[s])
		}
		mean := float64(sum) / float64(all)
		lookups := max(1/float64(min(block, 20/bits)), mean/float64(limit-1))
		if c := mean + float64(8-bits) + lookupPrice*lookups; c < cost {
			best, cost, codes = Plane{Kind: Coded, SymbolBits: bits, Lengths: lengths}, c, mean
		}
	}
	if best.Kind == Raw {
		cost = 8
	}
	return best, cost, codes
}

// countPlanes counts the bytes of each plane of the part at byte at of the rows.
func countPlanes(sample []byte, rowBytes, at int, of dtype.Part, rotate int) [][256]int64 {
	size := of.Type.Size()
	counts := make([][256]int64, size)
	one := &Codec{parts: []Part{{ElementBytes: size, Elements: of.Count, Rotate: rotate}}}
	part := make([]byte, size*of.Count)
	for row := range rowcodec.SpreadRows(sample, rowBytes, 1) {
		copy(part, row[at:])
		one.rotate(part, 1)
		for i := range counts {
			for e := i; e < len(part); e += size {
				counts[i][part[e]]++
			}
		}
	}
	return counts
}
