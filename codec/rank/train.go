package rank

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
)

const (
	// topBits is the number of leading bits of an element that are counted: the longest symbol and the sign above it.
	topBits = maxSymbol + 1
	// A level must save at least 1/levelPrice bits an element, because it also costs decoding time.
	levelPrice = 64
)

// Train makes the codec that stores the sample in about the fewest bytes. The sample is rows back to back, of elements of
// elementBytes: 2, 4 or 8. Train tries every symbol length, with and without rotation, each with its best digit lengths, and bases for
// the columns.
func Train(sample []byte, rowBytes, elementBytes int) (*Codec, error) {
	if err := rowcodec.CheckSample("rank", sample, rowBytes); err != nil {
		return nil, err
	}
	if err := checkElement(elementBytes); err != nil {
		return nil, err
	}
	counts := countTops(sample, rowBytes, elementBytes)
	var best Shape
	var least int64
	for rotate := range 2 {
		for bits := minSymbol; bits <= min(maxSymbol, 8*elementBytes-1); bits++ {
			folded := fold(counts, rotate, bits)
			ranked := rank(folded)
			digits, cost := digitsFor(folded, ranked, bits)
			cost += int64(8*elementBytes-bits) * sum(folded) * levelPrice
			if best.Digits != nil && cost >= least {
				continue
			}
			best = Shape{elementBytes, rotate, bits, digits, ranked[:names(digits)], nil}
			least = cost
		}
	}
	if based, ok := trainBased(sample, rowBytes, elementBytes, best, least); ok {
		best = based
	}
	return New(rowBytes, best)
}

// rank returns the symbols, the most frequent first.
func rank(counts []int64) []uint16 {
	ranked := make([]uint16, len(counts))
	for i := range ranked {
		ranked[i] = uint16(i)
	}
	slices.SortFunc(ranked, func(a, b uint16) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	return ranked
}

// names returns how many symbols digits of these lengths name.
func names(digits []int) (n int) {
	for _, d := range digits {
		n += 1<<d - 1
	}
	return n
}

// countTops counts the sample's elements by their leading topBits bits.
func countTops(sample []byte, rowBytes, elementBytes int) []int64 {
	counts := make([]int64, 1<<topBits)
	for row := range rowcodec.SpreadRows(sample, rowBytes, elementBytes) {
		// The leading bits are in an element's last two bytes.
		for at := elementBytes - 2; at < len(row); at += elementBytes {
			counts[binary.LittleEndian.Uint16(row[at:])>>(16-topBits)]++
		}
	}
	return counts
}

// fold returns the number of occurrences of each symbol of the given length.
func fold(counts []int64, rotate, bits int) []int64 {
	folded := make([]int64, 1<<bits)
	for top, n := range counts {
		folded[top>>(topBits-rotate-bits)&(1<<bits-1)] += n
	}
	return folded
}

func sum(counts []int64) (n int64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// digitsFor returns the digit lengths, of at least one level, that cost the least for the ranked symbols, and their cost in
// bits × levelPrice. The cost is the bits of digits and of symbols stored as they are, over all counted elements, and the
// price of the levels. The first levels have the digit lengths that are given.
func digitsFor(counts []int64, ranked []uint16, symbolBits int, given ...int) ([]int, int64) {
	const ranks = maxLevels * (1<<maxDigitBits - 1)
	last := min(len(ranked), ranks)
	var beyond [ranks + 1]int64 // number of elements with at least this rank
	total := sum(counts)
	beyond[0] = total
	for i := range last {
		beyond[i+1] = beyond[i] - counts[ranked[i]]
	}
	// cost[l][i] is the cost of the elements of rank i and above with at most l levels. bits[l][i] is the digit length of the
	// first of these levels.
	var cost [maxLevels + 1][ranks + 1]int64
	var bits [maxLevels + 1][ranks + 1]int
	for l := range cost {
		for i := range last + 1 {
			cost[l][i] = beyond[i] * int64(symbolBits) * levelPrice
			for d := 1; l > 0 && d <= maxDigitBits && i+1<<d-1 <= last; d++ {
				if k := maxLevels - l; k < len(given) && d != given[k] {
					continue
				}
				c := beyond[i]*int64(d)*levelPrice + total + cost[l-1][i+1<<d-1]
				if c < cost[l][i] || i == 0 && bits[l][i] == 0 {
					cost[l][i], bits[l][i] = c, d
				}
			}
		}
	}
	var digits []int
	for l, i := maxLevels, 0; l > 0 && bits[l][i] != 0; l-- {
		d := bits[l][i]
		digits = append(digits, d)
		i += 1<<d - 1
	}
	return digits, cost[maxLevels][0]
}
