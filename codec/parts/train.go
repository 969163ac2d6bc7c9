package parts

import (
	"cmp"
	"math"
	"slices"

	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
	"github.com/tensorcache/tensorcache/dtype"
)

// codedShare is the share of a plane's bits up to which it is coded.
const codedShare = 0.98

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
	bits, at := 0.0, 0 // of level 1 and the escapes of a row
	for _, p := range of {
		var best Part
		var least, bestBits float64
		rotations := 1
		if p.Type.IsFloat() && p.Type != dtype.Float8E8M0FNU { // those with a sign
			rotations = 2
		}
		for rotate := range rotations {
			part := Part{ElementBytes: p.Type.Size(), Elements: p.Count, Rotate: rotate}
			cost, more := 0.0, 0.0
			for i := range part.ElementBytes {
				plane, c, m := choose(countPlane(sample, rowBytes, at, part, i), part.ElementBytes == 1)
				part.Planes = append(part.Planes, plane)
				cost, more = cost+c, more+m
			}
			if rotate == 0 || cost < least {
				best, least, bestBits = part, cost, more
			}
		}
		bits += bestBits * float64(p.Count)
		at += p.Count * p.Type.Size()
		parts = append(parts, best)
	}
	field := 2
	if 1.5*bits/8+8 <= math.MaxUint8 { // rows that take half more are rare
		field = 1
	}
	return New(field, parts)
}

// columns count how often each element of a plane has each byte.
type columns [][256]int32

// countPlane counts the bytes of plane i of the part at byte at of the rows.
func countPlane(sample []byte, rowBytes, at int, of Part, i int) columns {
	counts := make(columns, of.Elements)
	one := &Codec{parts: []Part{of}}
	part := make([]byte, of.ElementBytes*of.Elements)
	for row := range rowcodec.SpreadRows(sample, rowBytes, 1) {
		copy(part, row[at:])
		one.rotate(part, 1)
		for e := range counts {
			counts[e][part[i+e*of.ElementBytes]]++
		}
	}
	return counts
}

// choose returns how to store a plane, what it costs in bits an element, and what of these are bits of level 1 and escapes. based says whether it may have bases.
func choose(counts columns, based bool) (best Plane, cost, more float64) {
	var all [256]int64
	for e := range counts {
		for value, n := range counts[e] {
			all[value] += int64(n)
		}
	}
	seen := slices.Index(all[:], sum(all[:]))
	if seen >= 0 {
		return Plane{Kind: Constant, Value: byte(seen)}, 0, 0
	}
	cost = 8 * codedShare
	for bits := minSymbol; bits <= 8; bits++ {
		folded := make([]int64, 1<<bits)
		for value, n := range all {
			folded[value>>(8-bits)] += n
		}
		if p, c, m := levels(folded); c < cost {
			best, cost, more = p, c, m
		}
	}
	if based && sum(all[:]) >= leastBasedRows*int64(len(counts)) {
		for bits := minSymbol; bits <= mostBasedBits; bits++ {
			bases, folded := trainBases(counts, bits)
			if p, c, m := levels(folded); c < cost*(1-basedGain) {
				best, cost, more = p, c, m
				best.Bases = bases
			}
		}
	}
	if best.Kind == Raw {
		cost = 8
	}
	return best, cost, more
}

// levels returns the coded plane of symbols that occur so often, its bits an element, and what of these are level 1 and escapes.
func levels(counts []int64) (best Plane, cost, more float64) {
	bits := int(math.Log2(float64(len(counts))))
	ranked := make([]byte, len(counts))
	for s := range ranked {
		ranked[s] = byte(s)
	}
	slices.SortStableFunc(ranked, func(a, b byte) int { return cmp.Compare(counts[b], counts[a]) })
	all := float64(sum(counts))
	for d0 := 1; d0 <= 2; d0++ {
		for d1 := 1; d1 <= 2; d1++ {
			p := Plane{Kind: Coded, SymbolBits: bits, Digits: [2]int{d0, d1}}
			m, left, next := 0.0, all, 0
			for level, digits := range p.Digits {
				if level == 1 {
					m += float64(digits) * left / all
				}
				for digit := range 1<<digits - 1 {
					p.Symbols[level][digit] = ranked[next]
					left -= float64(counts[ranked[next]])
					next++
				}
			}
			m += float64(bits) * left / all
			if c := m + float64(d0) + float64(8-bits); best.Kind != Coded || c < cost {
				best, cost, more = p, c, m
			}
		}
	}
	return best, cost, more
}

func sum(counts []int64) (all int64) {
	for _, n := range counts {
		all += n
	}
	return all
}
