package rank

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
)

const (
	// fineBits is the precision of bases: they are found from the elements' leading fineBits bits.
	fineBits = 12
	fineMask = 1<<fineBits - 1
	// Bases are tried from this many sampled rows on: fewer say little about one column.
	leastBasedRows = 256
	// basedRounds bounds how often all columns' bases are searched anew, and laterRounds the same where they are about right.
	basedRounds, laterRounds = 8, 3
	// leastStep is the least step that a search begins with.
	leastStep = 16
	// searchElements is the most elements by which symbol length and rotation are chosen, and classes are found. The bases of the choice are
	// then found by all.
	searchElements = 1 << 17

	// What shapes must save more than others, in thousandths of the row: those with bases, those with several classes of rows besides, which
	// take longer to encode, and those that GPUs have no fast decoder for.
	basedGain, classesGain, slowGain = 3, 3, 30
)

// topRows are rows of the leading 13 bits of elements: a symbol's bits, and the one above that rotation by 1 moves to the bottom.
type topRows [][]uint16

// topRowsOf reads rows of at most so many elements of the sample.
func topRowsOf(sample []byte, rowBytes, elementBytes int) topRows {
	var rows topRows
	for row := range rowcodec.SpreadRows(sample, rowBytes, elementBytes) {
		tops := make([]uint16, rowBytes/elementBytes)
		for j := range tops {
			tops[j] = binary.LittleEndian.Uint16(row[(j+1)*elementBytes-2:]) >> (16 - topBits)
		}
		rows = append(rows, tops)
	}
	return rows
}

// some returns rows at even distances, of at most so many elements, but at least one.
func (rows topRows) some(elements int) topRows {
	take := min(len(rows), max(1, elements/len(rows[0])))
	some := make(topRows, take)
	for i := range some {
		some[i] = rows[i*len(rows)/take]
	}
	return some
}

// counted is how often a column has a value of the leading fineBits bits.
type counted struct {
	fine uint16
	n    float32
}

// columns counts the values of each column of the rows of each class: those of class k are columns k × C to k × C + C - 1. nil classes: one.
func (rows topRows) columns(classes []uint8, count, rotate int) (columns [][]counted) {
	members := make([]topRows, count)
	for i, row := range rows {
		k := 0
		if classes != nil {
			k = int(classes[i])
		}
		members[k] = append(members[k], row)
	}
	var of [1 << fineBits]int32 // position in the column's list, plus 1
	shift := 1 - rotate
	for _, in := range members {
		for j := range rows[0] {
			var list []counted
			for _, row := range in {
				fine := row[j] >> shift & fineMask
				if of[fine] == 0 {
					list = append(list, counted{fine: fine})
					of[fine] = int32(len(list))
				}
				list[of[fine]-1].n++
			}
			for _, x := range list {
				of[x.fine] = 0
			}
			columns = append(columns, list)
		}
	}
	return columns
}

// priceOf returns the bits of each value of the leading fineBits bits if symbols are coded by their frequencies.
func priceOf(counts []int64, price *[1 << fineBits]float32) {
	total := float64(sum(counts)) + float64(len(counts))/2
	each := len(price) / len(counts)
	for symbol, n := range counts {
		bits := float32(math.Log2(total / (float64(n) + 0.5)))
		for i := range each {
			price[symbol*each+i] = bits
		}
	}
}

// countSymbols counts the symbols of all columns, with these bases subtracted.
func countSymbols(columns [][]counted, bases []uint16, counts []int64) {
	clear(counts)
	shift := fineBits - log2(len(counts))
	for j, column := range columns {
		for _, x := range column {
			counts[(x.fine-bases[j])&fineMask>>shift] += int64(x.n)
		}
	}
}

func log2(n int) (bits int) {
	for 1<<bits < n {
		bits++
	}
	return bits
}

// trainBases finds bases by which all columns together have few symbols of the given length, and returns them, in units of
// 2^-fineBits, with the number of occurrences of each symbol. It begins with the bases given, or else with each column's most frequent
// symbol at 0. Then, round by round, each column takes the base by which the frequencies of the round before would code it
// shortest, as k-means does with one cluster.
func trainBases(columns [][]counted, symbolBits int, from []uint16, rounds int) ([]uint16, []int64) {
	shift := fineBits - symbolBits
	bases, counts := slices.Clone(from), make([]int64, 1<<symbolBits)
	if from == nil {
		bases = mostFrequent(columns, symbolBits)
	}
	var price [1 << fineBits]float32
	for round := range rounds {
		countSymbols(columns, bases, counts)
		priceOf(counts, &price)
		moved := false
		for j, column := range columns {
			s := baseSearch{bases[j], 0, func(base uint16) (sum float32) {
				for _, x := range column {
					sum += x.n * price[(x.fine-base)&fineMask]
				}
				return sum
			}}
			s.least = s.cost(s.base)
			for step := -4; from == nil && round == 0 && step <= 4; step++ { // whole symbols
				s.try(step << shift)
			}
			s.try(1 << (fineBits - 1)) // the other sign
			s.nearby(max(2<<shift, leastStep))
			moved = moved || s.base != bases[j]
			bases[j] = s.base
		}
		if !moved {
			break
		}
	}
	countSymbols(columns, bases, counts)
	return bases, counts
}

// mostFrequent returns the bases that move each column's most frequent symbol to 0.
func mostFrequent(columns [][]counted, symbolBits int) []uint16 {
	shift := fineBits - symbolBits
	bases, counts := make([]uint16, len(columns)), make([]int64, 1<<symbolBits)
	for j, column := range columns {
		for _, x := range column {
			counts[x.fine>>shift] += int64(x.n)
		}
		most := 0
		for symbol, n := range counts {
			if n > counts[most] {
				most = symbol
			}
		}
		bases[j] = uint16(most << shift)
		clear(counts)
	}
	return bases
}

// baseSearch looks for the base of a column that costs the least.
type baseSearch struct {
	base  uint16
	least float32
	cost  func(base uint16) float32
}

// try takes the base that is step away if it costs less.
func (s *baseSearch) try(step int) bool {
	base := (s.base + uint16(step)) & fineMask
	c := s.cost(base)
	if c >= s.least {
		return false
	}
	s.base, s.least = base, c
	return true
}

// nearby tries smaller and smaller steps in both directions.
func (s *baseSearch) nearby(step int) {
	for ; step > 0; step /= 2 {
		if !s.try(step) {
			s.try(-step)
		}
	}
}

// based is a shape with bases, in the course of training: what Shape has, the bases in units of 2^-fineBits and class after class, and its
// cost in bits × levelPrice.
type based struct {
	rotate, symbolBits int
	digits             []int
	symbols            []uint16
	bases              []uint16
	cost, elements     int64
	fast               bool // GPUs have a fast decoder, RankBytes
}

// center moves all bases so that the most frequent symbol, of narrowBits bits, has 64 in its bits below the sign, which is its leading bit: those
// near it have a 0 in bit 7, of both signs. It returns the counts of the symbols then.
func center(columns [][]counted, bases []uint16, counts []int64) []int64 {
	most := 0
	for symbol, n := range counts {
		if n > counts[most] {
			most = symbol
		}
	}
	for j := range bases {
		bases[j] = (bases[j] + uint16(most-64)<<(fineBits-narrowBits)) & fineMask
	}
	countSymbols(columns, bases, counts)
	return counts
}

// An element that comes to level 2 costs as much time as 1/laterPrice bits.
const laterPrice = 8

// narrowBits is the longest symbol that RankBytes decodes as a byte: its bit 7 must be 0 in all symbols that digits name.
const narrowBits = 9

// basedShape finds the bases of a shape. quads says that rows are whole quads.
func basedShape(columns [][]counted, rotate, symbolBits, elementBytes int, quads bool, from []uint16, rounds int) based {
	b := based{rotate: rotate, symbolBits: symbolBits}
	var counts []int64
	b.bases, counts = trainBases(columns, symbolBits, from, rounds)
	if symbolBits == narrowBits {
		counts = center(columns, b.bases, counts)
	}
	b.elements = sum(counts)
	ranked := rank(counts)
	b.digits, b.cost = digitsFor(counts, ranked, symbolBits)
	if quads && (symbolBits == 8 || symbolBits == narrowBits || elementBytes == 2 && symbolBits < 8) {
		digits, cost := fastDigits(counts, ranked, symbolBits, elementBytes)
		b.fast = len(digits) > 1 &&
			(symbolBits < narrowBits || !slices.ContainsFunc(ranked[:names(digits)], func(symbol uint16) bool { return symbol&0x80 != 0 }))
		if b.fast {
			b.digits, b.cost = digits, cost
		}
	}
	b.symbols = ranked[:names(b.digits)]
	b.cost += int64(8*elementBytes-symbolBits) * b.elements * levelPrice
	return b
}

// fastDigits is digitsFor restricted to what RankBytes (kernels/coder_rank_bytes.h) decodes: levels 0 to 2 have 1 or 2 bits, and at most 2/9 of
// elements of 2 bytes or 4/9 of those of 4 come to level 2, unless more do whatever the levels are. Its fast path has room for 1/4 and 1/2.
func fastDigits(counts []int64, ranked []uint16, symbolBits, elementBytes int) (digits []int, cost int64) {
	var least int64
	for _, given := range [][]int{{2, 2, 2}, {2, 2, 1}, {2, 1, 2}, {2, 1, 1}, {1, 2, 2}, {1, 2, 1}, {1, 1, 2}, {1, 1, 1}} {
		later := sum(counts)
		for _, symbol := range ranked[:names(given[:2])] {
			later -= counts[symbol]
		}
		if given[0]+given[1] < 4 && 9*later > int64(elementBytes)*sum(counts) {
			continue
		}
		d, c := digitsFor(counts, ranked, symbolBits, given...)
		if price := c + later*levelPrice/laterPrice; digits == nil || price < least {
			digits, cost, least = d, c, price
		}
	}
	return digits, cost
}

// shape returns the shape of a table of elements of the given length whose rows have so many columns.
func (b *based) shape(elementBytes, columns int) Shape {
	s := Shape{ElementBytes: elementBytes, Rotate: b.rotate, SymbolBits: b.symbolBits, Digits: b.digits, Symbols: b.symbols}
	for bases := range slices.Chunk(b.bases, columns) {
		leading := make([]uint16, columns)
		for j, base := range bases {
			leading[j] = base << (16 - fineBits)
		}
		s.Bases = append(s.Bases, leading)
	}
	return s
}

// symbolLengths are the lengths that are tried with bases.
func symbolLengths(elementBytes int) []int {
	if elementBytes == 2 {
		return []int{8, 7, 6, 5, 9, 10, 12} // those below 8 serve float16
	}
	return []int{8, 9, 10, 12}
}

// trainBased returns the shape with bases that stores the sample in the fewest bits, if that saves enough against a shape without, plain, of
// the given cost, which is in bits × levelPrice. Otherwise it returns false.
func trainBased(sample []byte, rowBytes, elementBytes int, plain Shape, cost int64) (Shape, bool) {
	width := rowBytes / elementBytes
	if elementBytes > 4 || rowBytes > maxBasedRow || width < 2 || len(sample)/rowBytes < leastBasedRows {
		return Shape{}, false
	}
	all := topRowsOf(sample, rowBytes, elementBytes)
	some := all.some(searchElements)
	quads := rowBytes%16 == 0
	total := int64(len(all) * width * 8 * elementBytes * levelPrice)
	// price is what shapes are compared by, for as many elements as all rows have.
	price := func(b *based, classes int) int64 {
		p := int64(float64(b.cost)/float64(b.elements)*float64(len(all)*width)) + basedGain*total/1000
		if classes > 1 {
			p += classesGain * total / 1000
		}
		if quads && !b.fast {
			p += slowGain * total / 1000
		}
		return p
	}
	best, classes := based{}, (*classed)(nil)
	least := cost
	if quads && !plainFast(&plain) {
		least += slowGain * total / 1000
	}
	better := func(b based, by *classed) {
		if p := price(&b, by.count()); p < least {
			best, classes, least = b, by, p
		}
	}
	for rotate := range 2 {
		var from []uint16
		rounds, columns := basedRounds, some.columns(nil, 1, rotate)
		for _, bits := range symbolLengths(elementBytes) {
			b := basedShape(columns, rotate, bits, elementBytes, quads, from, rounds)
			better(b, nil)
			if from == nil {
				from, rounds = b.bases, laterRounds
			}
		}
	}
	if by := findClasses(all, rowBytes, elementBytes); by != nil {
		of, _ := by.assign(some)
		for rotate := range 2 {
			columns, from := some.columns(of, by.count(), rotate), by.basesFor(rotate)
			for _, bits := range symbolLengths(elementBytes) {
				b := basedShape(columns, rotate, bits, elementBytes, quads, from, laterRounds)
				b.cost += by.frontCost(rowBytes, len(some))
				better(b, by)
				if from == nil {
					from = b.bases
				}
			}
		}
	}
	if best.digits == nil {
		return Shape{}, false
	}
	// The same with the bases that suit all rows.
	var of []uint8
	if classes != nil {
		of, _ = classes.assign(all)
	}
	final := basedShape(all.columns(of, classes.count(), best.rotate), best.rotate, best.symbolBits, elementBytes, quads, best.bases, laterRounds)
	return final.shape(elementBytes, width), true
}

// plainFast says whether RankBytes decodes a shape without bases.
func plainFast(s *Shape) bool {
	return s.SymbolBits == 8 && s.Rotate == 1 && len(s.Digits) >= 2 && s.Digits[0] == 2 && s.Digits[1] <= 2
}
