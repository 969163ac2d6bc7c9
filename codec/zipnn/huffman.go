package zipnn

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

const (
	maxCode = 12  // bits of the longest code: tables of 2^12 entries
	escape  = 256 // the symbol for values without a code; the 8 bits of the value follow
	symbols = 257
)

// codeLengths returns the code lengths of an optimal prefix code for these counts, at most maxCode, and 0 for symbols that do not
// occur. At least two symbols must occur. The algorithm is package-merge (Larmore and Hirschberg, 1990).
func codeLengths(counts *[symbols]int64) (lengths [symbols]uint8) {
	type leaf struct {
		weight int64
		symbol int
	}
	leaves := make([]leaf, 0, symbols)
	for s, n := range counts {
		if n > 0 {
			leaves = append(leaves, leaf{n, s})
		}
	}
	slices.SortStableFunc(leaves, func(a, b leaf) int { return cmp.Compare(a.weight, b.weight) })
	// The first list is the leaves. Each other one is the leaves merged with packages, of two items each, of the list before.
	var isPackage [maxCode][2 * symbols]bool
	var memory [2][2 * symbols]int64
	list := memory[0][:0]
	for _, l := range leaves {
		list = append(list, l.weight)
	}
	for level := 1; level < maxCode; level++ {
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
	for level := maxCode - 1; take > 0; level-- {
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

// code is the code of a symbol. Its first bit is the highest of the length bits of msb and the lowest of lsb.
type code struct {
	msb, lsb uint16
	length   uint8
}

// entry is an entry of a decoding table: length of the code << 9 | symbol.
type entry uint16

func (e entry) symbol() int { return int(e & 511) }
func (e entry) length() int { return int(e >> 9) }

// codebook is a canonical prefix code: codes are in the order of length, and codes of equal length in the order of symbols.
type codebook struct {
	codes [symbols]code
	// The index of ahead is the next maxCode bits, the first being the lowest. In the index of back the first is the highest.
	ahead, back [1 << maxCode]entry
	// The index of runs is the next runBits bits, the first being the lowest. A run has at most 1 << shift values.
	runs  *[1 << runBits]run
	shift uint
}

// newCodebook returns the code with these lengths. It returns an error if they do not make a complete prefix code.
func newCodebook(lengths *[symbols]uint8) (*codebook, error) {
	var of [maxCode + 1]int
	used := 0
	for s, n := range lengths {
		if n > maxCode {
			return nil, fmt.Errorf("zipnn: code of %d (%d bits) must have at most %d", s, n, maxCode)
		}
		if n > 0 {
			used += 1 << (maxCode - n)
			of[n]++
		}
	}
	if used > 1<<maxCode {
		return nil, errors.New("zipnn: code lengths must not be over-subscribed")
	}
	if used < 1<<maxCode {
		return nil, errors.New("zipnn: code lengths must make a complete code")
	}
	var next [maxCode + 2]int
	for n := 1; n <= maxCode; n++ {
		next[n+1] = (next[n] + of[n]) << 1
	}
	b := &codebook{}
	for s, n := range lengths {
		if n == 0 {
			continue
		}
		c := code{msb: uint16(next[n]), length: n}
		c.lsb = bits.Reverse16(c.msb) >> (16 - n)
		next[n]++
		b.codes[s] = c
		e := entry(int(n)<<9 | s)
		for rest := range 1 << (maxCode - n) {
			b.ahead[int(c.lsb)|rest<<n] = e
			b.back[int(c.msb)<<(maxCode-n)|rest] = e
		}
	}
	return b, nil
}
