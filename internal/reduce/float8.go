package reduce

import (
	"encoding/binary"
	"math"

	"github.com/tensorcache/tensorcache/dtype"
)

// Float8 says what the bytes of a row are if they are float8 values: all values, then, unless Block is 0, a scale for each Block of them. An element is
// value × scale × Factor, each product rounded to float32. The zero value says that rows are not float8.
type Float8 struct {
	Values dtype.Type // Float8E4M3FN or Float8E5M2
	Scales dtype.Type // Float8E8M0FNU, a byte, or Float32
	Block  int
	Factor float32
}

// Float8Unit is what Block must be a multiple of: so scales of float32 are aligned, and GPUs convert values of one scale together.
const Float8Unit = 8

// Is says whether rows are float8.
func (f *Float8) Is() bool { return f.Values != dtype.Invalid }

// Complete fills in what the type of a table says of its rows, unless f says it: values without scales, or values and a scale for each block as parts.
func (f *Float8) Complete(of dtype.Type) {
	if f.Is() {
		return
	}
	if float8(of) {
		f.Values = of
		return
	}
	parts := of.Parts()
	if len(parts) == 2 && float8(parts[0].Type) && scales(parts[1].Type) && parts[0].Count%parts[1].Count == 0 {
		f.Values, f.Scales, f.Block = parts[0].Type, parts[1].Type, parts[0].Count/parts[1].Count
	}
}

func float8(t dtype.Type) bool { return t == dtype.Float8E4M3FN || t == dtype.Float8E5M2 }

func scales(t dtype.Type) bool { return t == dtype.Float8E8M0FNU || t == dtype.Float32 }

// Fills says whether rows of these parts are values and then a scale for each block.
func (f *Float8) Fills(parts []dtype.Part) bool {
	return len(parts) == 2 && parts[0].Type == f.Values && parts[1].Type == f.Scales && f.Block > 0 && parts[0].Count == parts[1].Count*f.Block
}

// Columns returns the elements of a row of so many bytes, 0 if no row has that length. REQUIRES: the types are right, and Block is not negative.
func (f *Float8) Columns(rowBytes int) int {
	if f.Block == 0 {
		return rowBytes
	}
	if part := f.Block + f.Scales.Size(); rowBytes%part == 0 {
		return rowBytes / part * f.Block
	}
	return 0
}

// Load writes the elements of a row as float32. REQUIRES: to has 4 bytes for each of Columns(len(row)) elements.
func (f *Float8) Load(to, row []byte) {
	values := &e4m3
	if f.Values == dtype.Float8E5M2 {
		values = &e5m2
	}
	columns := f.Columns(len(row))
	scales, block := row[columns:], f.Block
	if block == 0 {
		block = columns
	}
	for first := 0; first < columns; first += block {
		scale := float32(1)
		switch {
		case f.Block == 0:
		case f.Scales == dtype.Float32:
			scale = float32At(scales, first/block)
		default:
			scale = e8m0(scales[first/block])
		}
		in, out := row[first:][:block], to[first*4:][:block*4]
		if f.Factor == 1 {
			for i, v := range in {
				binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(values[v]*scale))
			}
			continue
		}
		for i, v := range in {
			binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(float32(values[v]*scale)*f.Factor))
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
// e5m2 is the upper half of a float16.
var e4m3, e5m2 = func() (e4m3, e5m2 [256]float32) {
	for b := range e4m3 {
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
		e4m3[b], e5m2[b] = float32(x), float16At([]byte{0, byte(b)}, 0)
	}
	return e4m3, e5m2
}()
