package workload

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/tensorcache/tensorcache/dtype"
)

// Float8Block is how many float8 values share a scale.
const Float8Block = 32

// Float8Row returns the type of the rows of Float8Rows: values, then scales. It panics for elements that Float8Rows refuses.
func Float8Row(elements int) dtype.Type {
	of, err := dtype.RowOf(dtype.Part{Type: dtype.Float8E4M3FN, Count: elements}, dtype.Part{Type: dtype.Float8E8M0FNU, Count: elements / Float8Block})
	if err != nil {
		panic(err)
	}
	return of
}

// Float8Rows generates a table of rows of float8 values with scales, as n-gram tables have them, row after row: elements bytes of e4m3 values,
// then elements ÷ Float8Block bytes of e8m0 scales. Value j of a row is e4m3(j) × 2^(scale(j ÷ Float8Block) - 127); scales are the powers of two
// that take the largest value of a block to 256 or more, below 512, where e4m3 ends at 448. The values are N(0,1), multiplied by exp(z) of the
// column and exp(z ÷ 2) of the row, each z from N(0,1). elements must be a multiple of Float8Block. The same seed gives the same bytes.
func Float8Rows(rows, elements int, seed uint64) ([]byte, error) {
	if rows < 1 || elements < Float8Block || elements%Float8Block != 0 || rows > math.MaxInt/2/elements {
		return nil, fmt.Errorf("workload: float8: rows × elements (%d × %d) must be at least 1 × %d, and elements a multiple of %d", rows, elements, Float8Block, Float8Block)
	}
	columns := columnScales(elements, seed)
	rowBytes := elements + elements/Float8Block
	table := make([]byte, rows*rowBytes)
	blockRows := max(featureBlock/elements, 1)
	forEachBlock((rows-1)/blockRows+1, func(b int) {
		r := rand.New(newStream(seed, purposeFloat8, uint64(b)))
		values := make([]float32, elements)
		for row := b * blockRows; row < min((b+1)*blockRows, rows); row++ {
			scale := float64(float32(math.Exp(r.NormFloat64() / 2)))
			for j := range values {
				values[j] = float32(r.NormFloat64() * columns[j] * scale)
			}
			out := table[row*rowBytes:][:rowBytes]
			for k := range elements / Float8Block {
				out[elements+k] = quantise(out[k*Float8Block:][:Float8Block], values[k*Float8Block:])
			}
		}
	})
	return table, nil
}

// quantise writes a block of values as e4m3 and returns their scale as e8m0.
func quantise(dst []byte, values []float32) byte {
	largest := float32(0)
	for _, v := range values[:len(dst)] {
		largest = max(largest, float32(math.Abs(float64(v))))
	}
	exponent := max(int(math.Float32bits(largest)>>23)-8, 1) // biased by 127, as e8m0 is
	inverse := math.Ldexp(1, 127-exponent)
	for i, v := range values[:len(dst)] {
		dst[i] = e4m3(float32(float64(v) * inverse))
	}
	return byte(exponent)
}

// e4m3 returns the value nearest to x, the even one of two: four bits of exponent, biased by 7, and three of mantissa. Beyond 448 it is ±448.
// REQUIRES: x is no NaN.
func e4m3(x float32) byte {
	bits := math.Float32bits(x)
	sign, bits := byte(bits>>31)<<7, bits&0x7fffffff
	switch x := math.Float32frombits(bits); {
	case x >= 448:
		return sign | 0x7e
	case x < 1.0/64: // subnormal: multiples of 2^-9
		return sign | byte(math.RoundToEven(float64(x)*512))
	}
	bits += 1<<19 - 1 + bits>>20&1
	return sign | byte(bits>>20-(127-7)<<3)
}
