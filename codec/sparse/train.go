package sparse

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
)

const (
	// Training looks at so many elements for the background, and at so many entries for the symbols.
	backgroundElements = 1 << 16
	trainEntries       = 1 << 15
)

// Train makes the codec that stores the sample in about the fewest bytes. The sample is rows back to back, of elements of
// elementBytes: 1, 2, 4 or 8.
//
// The background is zero, or the most frequent element if that is a quarter more frequent. Symbols of each length, with rotation and
// without, are the leading bits of entries; those count that make the sample's values shortest.
func Train(sample []byte, rowBytes, elementBytes int) (*Codec, error) {
	if err := rowcodec.CheckSample("sparse", sample, rowBytes); err != nil {
		return nil, err
	}
	if err := checkElement(elementBytes); err != nil {
		return nil, err
	}
	// A codec of the right lengths, to read elements by.
	c, err := New(rowBytes, Shape{ElementBytes: elementBytes, SymbolBits: 1})
	if err != nil {
		return nil, err
	}
	c.shape.Background = c.backgroundOf(sample)
	return New(rowBytes, c.symbolsOf(c.entriesOf(sample)))
}

// backgroundOf returns the element that most of a sample's are.
func (c *Codec) backgroundOf(sample []byte) (most uint64) {
	counts := map[uint64]int{}
	for row := range c.spread(sample, backgroundElements) {
		for i := range len(row) / c.shape.ElementBytes {
			counts[c.at(row, i)]++
		}
	}
	best := counts[0] + counts[0]/4
	for x, n := range counts {
		if n > best || n == best && most != 0 && x < most {
			best, most = n, x
		}
	}
	return most
}

// spread yields whole elements of rows at even distances, of at most about so many elements, at least one row.
func (c *Codec) spread(sample []byte, elements int) func(yield func([]byte) bool) {
	rows := len(sample) / c.rowBytes
	take := max(1, min(rows, elements/max(1, c.elements)))
	return func(yield func([]byte) bool) {
		for i := range take {
			if !yield(sample[i*rows/take*c.rowBytes:][:c.elements*c.shape.ElementBytes]) {
				return
			}
		}
	}
}

// entriesOf returns the entries of some segments of a sample.
func (c *Codec) entriesOf(sample []byte) (segments [][]uint64) {
	total := 0
	// Rows with few entries are many: as many elements as SpreadRows yields hold trainEntries of them, or all that there are.
	for row := range c.spread(sample, 1<<20) {
		for len(row) > 0 && total < trainEntries {
			part := row[:min(len(row), segmentElements*c.shape.ElementBytes)]
			row = row[len(part):]
			var of []uint64
			for i := range len(part) / c.shape.ElementBytes {
				if x := c.at(part, i); x != c.shape.Background {
					of = append(of, x)
				}
			}
			total += len(of)
			segments = append(segments, of)
		}
	}
	return segments
}

// paletteBits returns the bits of values as a palette and indices, or more than those of the values if there are too many.
func (c *Codec) paletteBits(values []uint64) int {
	known := map[uint64]bool{}
	for _, x := range values {
		if known[x] = true; len(known) > maxPalette {
			return (len(values) + 1) * int(c.width)
		}
	}
	return len(known)*int(c.width) + len(values)*bits.Len(uint(max(0, len(known)-1)))
}

// symbolsOf returns the shape with the symbols that make the values of the given segments shortest.
func (c *Codec) symbolsOf(segments [][]uint64) Shape {
	best := Shape{ElementBytes: c.shape.ElementBytes, Background: c.shape.Background, SymbolBits: 1}
	// What a segment's values take without digits.
	without, least := make([]int, len(segments)), 0
	for i, of := range segments {
		without[i] = min(len(of)*int(c.width), c.paletteBits(of))
		least += without[i]
	}
	for rotate := range 2 {
		for symbol := 1; symbol <= min(maxSymbol, int(c.width)); symbol++ {
			s := Shape{c.shape.ElementBytes, c.shape.Background, rotate, symbol, nil}
			t, err := New(c.rowBytes, s)
			if err != nil {
				continue
			}
			counts := make([]int, 1<<symbol)
			for _, of := range segments {
				for _, x := range of {
					counts[t.rotate(x)>>t.rest]++
				}
			}
			ranked := make([]uint16, 0, len(counts))
			for i, n := range counts {
				if n > 0 {
					ranked = append(ranked, uint16(i))
				}
			}
			slices.SortFunc(ranked, func(a, b uint16) int { return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b)) })
			s.Symbols = ranked[:min(len(ranked), maxSymbols)]
			rank := make([]int, len(counts)) // maxSymbols for those that have no digit
			for i := range rank {
				rank[i] = maxSymbols
			}
			for i, symbol := range s.Symbols {
				rank[symbol] = i
			}
			total := 0
			for i, of := range segments {
				largest := 0
				for _, x := range of {
					largest = max(largest, rank[t.rotate(x)>>t.rest])
				}
				n := without[i]
				if largest < maxSymbols {
					n = min(n, len(of)*(bits.Len(uint(largest))+int(t.rest)))
				}
				total += n
			}
			if total < least {
				best, least = s, total
			}
		}
	}
	return best
}
