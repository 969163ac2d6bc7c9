package zipnn

import (
	"github.com/tensorcache/tensorcache/codec/internal/huffman"
	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
)

const (
	// A plane is coded if its codes take at most this share of its bytes.
	codedShare = 0.95
)

// Train makes the codec that stores the sample in the fewest bytes, with one of the given layouts. The sample is rows back to
// back.
func Train(sample []byte, rowBytes int, layouts ...Layout) (*Codec, error) {
	if err := rowcodec.CheckSample("zipnn", sample, rowBytes); err != nil {
		return nil, err
	}
	var best []Plane
	var chosen Layout
	var fewest int64
	for _, layout := range layouts {
		if err := layout.check(); err != nil {
			return nil, err
		}
		counts := countPlanes(sample, rowBytes, layout)
		planes := make([]Plane, layout.ElementBytes)
		var bits int64
		for i := range planes {
			var n int64
			planes[i], n = choose(&counts[i])
			bits += n
		}
		if best == nil || bits < fewest {
			best, chosen, fewest = planes, layout, bits
		}
	}
	return New(rowBytes, chosen, best)
}

// choose returns how to store a plane with these counts of values, and the bits that this takes.
func choose(counts *[symbols]int64) (Plane, int64) {
	var all int64
	seen, last := 0, 0
	for value, n := range counts[:escape] {
		all += n
		if n > 0 {
			seen, last = seen+1, value
		}
	}
	switch seen {
	case 0:
		return Plane{Kind: Raw}, 0
	case 1:
		return Plane{Kind: Constant, Value: byte(last)}, 0
	}
	if seen < escape {
		counts[escape] = 1
	}
	lengths := huffman.Lengths(counts, maxCode)
	var bits int64
	for value, n := range counts[:escape] {
		bits += n * int64(lengths[value])
	}
	if float64(bits) > codedShare*8*float64(all) {
		return Plane{Kind: Raw}, 8 * all
	}
	return Plane{Kind: Coded, Lengths: lengths}, bits
}

// countPlanes counts the values of each byte plane.
func countPlanes(sample []byte, rowBytes int, layout Layout) [][symbols]int64 {
	size := layout.ElementBytes
	counts := make([][symbols]int64, size)
	o := layout.order()
	row := make([]byte, rowBytes/size*size)
	for part := range rowcodec.SpreadRows(sample, rowBytes, size) {
		copy(row, part)
		o.applyAll(row)
		for p := range counts {
			for at := p; at < len(row); at += size {
				counts[p][row[at]]++
			}
		}
	}
	return counts
}
