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
	// Bases are tried from this many sampled rows on: fewer say little about one column.
	leastBasedRows = 256
	// basedRounds bounds how often all columns' bases are searched anew.
	basedRounds = 8
	// basedGain is the share of the row, in thousandths, that bases must save, and longGain what symbols of more bits than a byte must save
	// besides in rows of whole quads: for bytes, GPUs have faster decoders.
	basedGain, longGain = 5, 30
)

// counted is how often a column has a value of the leading fineBits bits.
type counted struct {
	fine uint16
	n    float32
}

// countColumns counts the rotated elements of each column of the sample by their leading fineBits bits.
func countColumns(sample []byte, rowBytes, elementBytes, rotate int) [][]counted {
	rows := slices.Collect(rowcodec.SpreadRows(sample, rowBytes, elementBytes))
	columns := make([][]counted, rowBytes/elementBytes)
	var counts [1 << fineBits]int32
	for j := range columns {
		for _, row := range rows {
			// Up to rotation by 1, the bits are in the element's last two bytes.
			top := binary.LittleEndian.Uint16(row[(j+1)*elementBytes-2:])
			counts[top>>(16-fineBits-rotate)&(1<<fineBits-1)]++
		}
		for fine, n := range counts {
			if n != 0 {
				columns[j] = append(columns[j], counted{uint16(fine), float32(n)})
			}
		}
		clear(counts[:])
	}
	return columns
}

// trainBases finds bases by which all columns together have few symbols of the given length, and returns them, in units of
// 2^-fineBits, with the number of occurrences of each symbol. Each column begins with its most frequent symbol at 0. Then, round by
// round, it takes the base by which the frequencies of the round before would code it shortest, as k-means does with one cluster.
func trainBases(columns [][]counted, symbolBits int) ([]uint16, []int64) {
	const mask = 1<<fineBits - 1
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
	price := make([]float32, len(counts))
	for round := 0; ; round++ {
		clear(counts)
		total := 0.0
		for j, column := range columns {
			for _, x := range column {
				counts[(x.fine-bases[j])&mask>>shift] += int64(x.n)
				total += float64(x.n)
			}
		}
		if round == basedRounds {
			return bases, counts
		}
		for symbol, n := range counts {
			price[symbol] = float32(math.Log2((total + float64(len(counts))/2) / (float64(n) + 0.5)))
		}
		moved := false
		for j, column := range columns {
			cost := func(base uint16) (sum float32) {
				for _, x := range column {
					sum += x.n * price[(x.fine-base)&mask>>shift]
				}
				return sum
			}
			least := cost(bases[j])
			try := func(step int) bool {
				base := (bases[j] + uint16(step)) & mask
				c := cost(base)
				if c >= least {
					return false
				}
				bases[j], least, moved = base, c, true
				return true
			}
			if round == 0 { // whole symbols, and the other sign
				for step := -4; step <= 4; step++ {
					try(step << shift)
				}
				try(1 << (fineBits - 1))
			}
			for step := 2 << shift; step > 0; step /= 2 {
				if !try(step) {
					try(-step)
				}
			}
		}
		if !moved {
			round = basedRounds - 1
		}
	}
}

// fastDigits is digitsFor restricted to the levels of RankBytes (kernels/coder_rank_bytes.h) of which few elements come to level 2.
func fastDigits(counts []int64, ranked []uint16, symbolBits int) (digits []int, cost int64) {
	for i, given := range [][]int{{2, 1}, {2, 2}, {1, 2}} {
		if d, c := digitsFor(counts, ranked, symbolBits, given...); i == 0 || c < cost {
			digits, cost = d, c
		}
	}
	return digits, cost
}

// trainBased returns the shape with bases that stores the sample in the fewest bits, if that saves enough against a shape without of
// the given cost, which is in bits × levelPrice. Otherwise it returns false.
func trainBased(sample []byte, rowBytes, elementBytes int, cost int64) (Shape, bool) {
	columns := rowBytes / elementBytes
	if elementBytes > 4 || rowBytes > maxBasedRow || columns < 2 || len(sample)/rowBytes < leastBasedRows {
		return Shape{}, false
	}
	counted := [2][][]counted{countColumns(sample, rowBytes, elementBytes, 0), countColumns(sample, rowBytes, elementBytes, 1)}
	var best Shape
	quads := rowBytes%16 == 0
	for symbolBits := 8; symbolBits <= 10; symbolBits++ {
		for rotate := range 2 {
			bases, counts := trainBases(counted[rotate], symbolBits)
			total, ranked, fast := sum(counts), rank(counts), quads && symbolBits == 8
			digits, c := digitsFor(counts, ranked, symbolBits)
			if fast {
				digits, c = fastDigits(counts, ranked, symbolBits)
			}
			c += int64(8*elementBytes-symbolBits) * total * levelPrice
			thousandth, gain := total*int64(8*elementBytes)*levelPrice/1000, int64(0)
			if best.Digits == nil {
				gain = basedGain * thousandth
			}
			if quads && !fast && (best.Digits == nil || best.SymbolBits == 8) {
				gain += longGain * thousandth
			}
			if c >= cost-gain {
				continue
			}
			for j := range bases {
				bases[j] <<= 16 - fineBits
			}
			best, cost = Shape{elementBytes, rotate, symbolBits, digits, ranked[:names(digits)], bases}, c
		}
	}
	return best, best.Digits != nil
}
