package reduce

import (
	"encoding/binary"
	"math"
)

// float8Block is how many float8 values share a scale.
const float8Block = 32

// Float8Columns returns the elements of a row of float8 values with scales: so many e4m3 bytes, then an e8m0 byte for each 32 of them. It returns 0 if no row
// has that length.
func Float8Columns(rowBytes int) int {
	if rowBytes%(float8Block+1) != 0 {
		return 0
	}
	return rowBytes / (float8Block + 1) * float8Block
}

// LoadFloat8 writes the elements of a row of float8 values with scales as float32. They are exact, unless one is beyond float32 and becomes an infinity.
// REQUIRES: to has 4 bytes for each of Float8Columns(len(row)) elements.
func LoadFloat8(to, row []byte) {
	columns := Float8Columns(len(row))
	values, scales := row[:columns], row[columns:]
	for k, s := range scales {
		scale := e8m0(s)
		block, out := values[k*float8Block:][:float8Block], to[k*float8Block*4:][:float8Block*4]
		for i, v := range block {
			binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(e4m3[v]*scale))
		}
	}
}

// e8m0 returns what a scale means: 2^(s - 127), or NaN for 255.
func e8m0(s byte) float32 {
	switch s {
	case 0: // subnormal
		return 0x1p-127
	case 255:
		return float32(math.NaN())
	}
	return math.Float32frombits(uint32(s) << 23)
}

// e4m3 has the value of each byte: a sign, four bits of exponent, biased by 7, and three of mantissa. There are no infinities; all ones are a NaN.
var e4m3 = func() (all [256]float32) {
	for b := range all {
		exponent, mantissa := b>>3&15, b&7
		x := math.Ldexp(float64(8+mantissa), exponent-7-3)
		switch {
		case b&0x7f == 0x7f:
			x = math.NaN()
		case exponent == 0:
			x = math.Ldexp(float64(mantissa), 1-7-3)
		}
		if b >= 0x80 {
			x = math.Copysign(x, -1)
		}
		all[b] = float32(x)
	}
	return all
}()
