package experiment

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"github.com/tensorcache/tensorcache/bench/dataset"
)

// Bounds are estimates of what codecs of four kinds save of a table, in % of its bytes, however they store what they count. They are entropies of
// the table's own elements, rows at even distances of at most 2^22 elements, with Miller and Madow's correction for short samples. They are no limits for other kinds:
// a codec saves more if it codes bits behind the 13 leading ones, or uses what elements have in common, such as repeats, differences of neighbours or classes of rows.
type Bounds struct {
	// Order0 is of codecs that code the leading bits of all elements alike, at most 13 bits, as many as suit the table best, and store the others
	// as they are.
	Order0 float64 `json:"order0"`
	// Columns is the same with statistics of its own for each column. Those of few rows promise too much: they know what is to be coded.
	Columns float64 `json:"columns"`
	// HeldOut is Columns for rows that the statistics are not of: half of the rows are coded by those of the others, and the others by theirs,
	// mixed with the statistics of all columns as suits best. A codec that is trained on a sample cannot expect more of columns.
	HeldOut float64 `json:"held_out"`
	// Sparse is of codecs that store where the elements of a row lie that are not the table's most frequent one, and then these elements: coded
	// like Order0's, or as a palette of the row's own.
	Sparse float64 `json:"sparse"`
}

// highest returns the highest of the estimates.
func (b *Bounds) highest() float64 { return max(b.Order0, b.Columns, b.HeldOut, b.Sparse) }

const (
	boundBits     = 13
	boundElements = 1 << 22
)

// boundsOf computes the estimates of a table. Those of rows of parts are the parts', each by its share of the row.
func boundsOf(t *dataset.Table) (b Bounds) {
	parts := t.DType.Parts()
	if parts == nil {
		return elementBounds(t)
	}
	rows, at := max(1, min(t.Rows, boundElements/t.RowBytes)), 0
	for _, p := range parts {
		bytes := p.Count * p.Type.Size()
		part := &dataset.Table{DType: p.Type, Rows: rows, RowBytes: bytes}
		for r := range rows {
			part.Data = append(part.Data, t.Data[r*t.Rows/rows*t.RowBytes+at:][:bytes]...)
		}
		of, share := elementBounds(part), float64(bytes)/float64(t.RowBytes)
		b.Order0, b.Columns, b.Sparse = b.Order0+share*of.Order0, b.Columns+share*of.Columns, b.Sparse+share*of.Sparse
		b.HeldOut += share * of.HeldOut
		at += bytes
	}
	return b
}

// elementBounds computes the estimates of a table of elements of one type.
func elementBounds(t *dataset.Table) Bounds {
	size := t.DType.Size()
	columns := t.RowBytes / size
	rows := max(1, min(t.Rows, boundElements/max(1, columns)))
	at := func(row, column int) uint64 { return wordAt(t.Data[row*t.Rows/rows*t.RowBytes+column*size:], size) }
	b := bounder{width: 8 * size, leading: min(boundBits, 8*size)}
	var whole, sparse bounder
	whole, sparse = b, b
	counts := map[uint64]int{}
	for r := range rows {
		for c := range columns {
			counts[at(r, c)]++
		}
		if len(counts) > 1<<16 { // no element is frequent
			break
		}
	}
	background, most := uint64(0), counts[0]
	for x, n := range counts {
		if n > most {
			background, most = x, n
		}
	}
	for c := range columns {
		for r := range rows {
			x := at(r, c)
			b.count(x)
			whole.count(x)
			if x != background {
				sparse.count(x)
			}
		}
		b.end()
	}
	whole.end()
	sparse.end()
	each := sparse.least() / max(1, float64(sparse.elements)) // bits of an entry that is no part of a palette
	total := 0.0
	palette := map[uint64]int{}
	for r := range rows {
		clear(palette)
		entries := 0
		for c := range columns {
			if x := at(r, c); x != background {
				palette[x]++
				entries++
			}
		}
		own := float64(len(palette) * b.width)
		for _, n := range palette {
			own += float64(n) * math.Log2(float64(entries)/float64(n))
		}
		total += choices(columns, entries) + min(own, float64(entries)*each)
	}
	all := float64(rows * columns * b.width)
	saving := func(bits float64) float64 { return max(0, 100*(1-bits/all)) }
	return Bounds{Order0: saving(whole.least()), Columns: saving(b.least()), HeldOut: saving(heldOut(at, rows, columns, b.width, b.leading)), Sparse: saving(total)}
}

// heldOut returns the bits of all elements, at gives one, if the leading bits of every other row's are coded by the frequencies that they have
// in their column in the rows between, mixed with those of all columns, with the number of leading bits that suits best.
func heldOut(at func(row, column int) uint64, rows, columns, width, leading int) float64 {
	weights := []float64{1, 4, 16, 64, 256} // of the frequencies of all columns, in elements
	cost := make([][]float64, leading+1)
	for n := range cost {
		cost[n] = make([]float64, len(weights))
	}
	// Both halves of the rows; of a number of leading bits n, symbols are counted from 2^n on.
	var all, own [2][]float64
	for half := range 2 {
		all[half], own[half] = make([]float64, 2<<leading), make([]float64, 2<<leading)
	}
	var seen []int
	count := func(counts []float64, x uint64) {
		for n := range leading + 1 {
			i := 1<<n + int(x>>(width-n))
			if counts[i] == 0 {
				seen = append(seen, i)
			}
			counts[i]++
		}
	}
	for c := range columns {
		for r := range rows {
			count(all[r%2], at(r, c))
		}
	}
	for c := range columns {
		seen = seen[:0]
		for r := range rows {
			count(own[r%2], at(r, c))
		}
		slices.Sort(seen)
		for half, of := range own {
			by, of, whole := own[1-half], of, all[1-half]
			for _, i := range slices.Compact(slices.Clone(seen)) {
				if of[i] == 0 {
					continue
				}
				n := bits.Len(uint(i)) - 1
				share := (whole[i] + 0.5) / (whole[1] + 0.5*float64(int(1)<<n))
				for w, weight := range weights {
					cost[n][w] += of[i] * math.Log2((by[1]+weight)/(by[i]+weight*share))
				}
			}
		}
		for _, i := range seen {
			own[0][i], own[1][i] = 0, 0
		}
	}
	least := math.Inf(1)
	for n, costs := range cost {
		least = min(least, slices.Min(costs)+float64(rows*columns*(width-n)))
	}
	return least
}

// wordAt returns the little-endian element at the front of b.
func wordAt(b []byte, size int) uint64 {
	switch size {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(b))
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	}
	return binary.LittleEndian.Uint64(b)
}

// choices returns the logarithm to base 2 of the ways to choose k of n.
func choices(n, k int) float64 {
	log := func(x int) float64 { y, _ := math.Lgamma(float64(x + 1)); return y }
	return max(0, (log(n)-log(k)-log(n-k))/math.Ln2)
}

// A bounder sums, for each number of leading bits, the bits that groups of elements take whose leading bits are coded at their entropy.
type bounder struct {
	width, leading int
	counts         [1 << boundBits]int32
	seen           []uint16 // leading bits that are counted
	elements       int
	bits           [boundBits + 1]float64
}

func (b *bounder) count(x uint64) {
	top := x >> (b.width - b.leading)
	if b.counts[top] == 0 {
		b.seen = append(b.seen, uint16(top))
	}
	b.counts[top]++
	b.elements++
}

// end ends a group, whose elements have statistics of their own.
func (b *bounder) end() {
	slices.Sort(b.seen)
	total := 0.0
	for _, top := range b.seen {
		total += float64(b.counts[top])
	}
	for n := range b.leading + 1 {
		entropy, symbols := 0.0, 0
		for i := 0; i < len(b.seen); symbols++ {
			symbol, k := b.seen[i]>>(b.leading-n), 0.0
			for ; i < len(b.seen) && b.seen[i]>>(b.leading-n) == symbol; i++ {
				k += float64(b.counts[b.seen[i]])
			}
			entropy += k * math.Log2(total/k)
		}
		b.bits[n] += entropy + float64(max(0, symbols-1))/2/math.Ln2 + total*float64(b.width-n)
	}
	for _, top := range b.seen {
		b.counts[top] = 0
	}
	b.seen = b.seen[:0]
}

// least returns the bits of all groups with the number of leading bits that suits them best.
func (b *bounder) least() float64 { return slices.Min(b.bits[:b.leading+1]) }
