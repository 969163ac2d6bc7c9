// Package huffman makes canonical prefix codes of bytes.
package huffman

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

const (
	// MaxCode is the most bits of a code.
	MaxCode = 12
	// Escape is the symbol for values without a code.
	Escape = 256
	// Symbols is the number of symbols: values of a byte, and Escape.
	Symbols = 257
)

// Lengths returns the code lengths of an optimal prefix code for these counts, at most limit, and 0 for symbols that do not occur. At least two
// symbols must occur, and at most 2^limit. The algorithm is package-merge (Larmore and Hirschberg, 1990).
func Lengths(counts *[Symbols]int64, limit int) (lengths [Symbols]uint8) {
	type leaf struct {
		weight int64
		symbol int
	}
	leaves := make([]leaf, 0, Symbols)
	for s, n := range counts {
		if n > 0 {
			leaves = append(leaves, leaf{n, s})
		}
	}
	slices.SortStableFunc(leaves, func(a, b leaf) int { return cmp.Compare(a.weight, b.weight) })
	// The first list is the leaves. Each other one is the leaves merged with packages, of two items each, of the list before.
	var isPackage [MaxCode][2 * Symbols]bool
	var memory [2][2 * Symbols]int64
	list := memory[0][:0]
	for _, l := range leaves {
		list = append(list, l.weight)
	}
	for level := 1; level < limit; level++ {
		merged, packages, next := memory[level%2][:0], list, leaves
		for len(next) > 0 || len(packages) > 1 {
			if len(packages) < 2 || len(next) > 0 && next[0].weight <= packages[0]+packages[1] {
				merged, next = append(merged, next[0].weight), next[1:]
				continue
			}
			isPackage[level][len(merged)] = true
			merged, packages = append(merged, packages[0]+packages[1]), packages[2:]
		}
		list = merged
	}
	// A symbol's code is as long as the items that hold it are many, of those taken: the first of the last list, and what is in them.
	take := 2*len(leaves) - 2
	for level := limit - 1; take > 0; level-- {
		leaf, packages := 0, 0
		for _, is := range isPackage[level][:take] {
			if is {
				packages++
			} else {
				lengths[leaves[leaf].symbol]++
				leaf++
			}
		}
		take = 2 * packages
	}
	return lengths
}

// Code is the code of a symbol, without bits if it has none. Its first bit is the highest of the Length bits of MSB and the lowest of LSB.
type Code struct {
	MSB, LSB uint16
	Length   uint8
}

// Codes returns the canonical codes with these lengths: in the order of length, and codes of equal length in the order of symbols. It returns
// an error if a length is above limit, or if they do not make a complete prefix code.
func Codes(lengths *[Symbols]uint8, limit int) (codes [Symbols]Code, err error) {
	var of [MaxCode + 1]int
	used := 0
	for s, n := range lengths {
		if int(n) > limit {
			return codes, fmt.Errorf("code of %d (%d bits) must have at most %d", s, n, limit)
		}
		if n > 0 {
			used += 1 << (limit - int(n))
			of[n]++
		}
	}
	if used > 1<<limit {
		return codes, errors.New("code lengths must not be over-subscribed")
	}
	if used < 1<<limit {
		return codes, errors.New("code lengths must make a complete code")
	}
	var next [MaxCode + 2]int
	for n := 1; n <= limit; n++ {
		next[n+1] = (next[n] + of[n]) << 1
	}
	for s, n := range lengths {
		if n == 0 {
			continue
		}
		codes[s] = Code{MSB: uint16(next[n]), LSB: bits.Reverse16(uint16(next[n])) >> (16 - n), Length: n}
		next[n]++
	}
	return codes, nil
}
