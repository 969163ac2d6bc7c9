package reduce

import (
	"encoding/binary"
	"math"

	"github.com/tensorcache/tensorcache/dtype"
)

// What follows does element i of a row. The functions with vectors do as many elements as they can, and leave the others.

// load sets the sums to a row's elements.
func load(sums []float32, row []byte, of dtype.Type) {
	switch n := loadVectors(sums, row, of); of {
	case dtype.Float32:
		for i := n; i < len(sums); i++ {
			sums[i] = float32At(row, i)
		}
	case dtype.Float16:
		for i := n; i < len(sums); i++ {
			sums[i] = float16At(row, i)
		}
	default:
		for i := n; i < len(sums); i++ {
			sums[i] = bfloat16At(row, i)
		}
	}
}

// addRow adds a row's elements to the sums.
func addRow(sums []float32, row []byte, of dtype.Type) {
	switch n := addVectors(sums, row, of); of {
	case dtype.Float32:
		for i := n; i < len(sums); i++ {
			sums[i] += float32At(row, i)
		}
	case dtype.Float16:
		for i := n; i < len(sums); i++ {
			sums[i] += float16At(row, i)
		}
	default:
		for i := n; i < len(sums); i++ {
			sums[i] += bfloat16At(row, i)
		}
	}
}

// addWeighted adds a row's elements times a weight to the sums. The conversions keep the compiler from fusing product and sum.
func addWeighted(sums []float32, row []byte, w float32, of dtype.Type) {
	switch n := addWeightedVectors(sums, row, w, of); of {
	case dtype.Float32:
		for i := n; i < len(sums); i++ {
			sums[i] += float32(w * float32At(row, i))
		}
	case dtype.Float16:
		for i := n; i < len(sums); i++ {
			sums[i] += float32(w * float16At(row, i))
		}
	default:
		for i := n; i < len(sums); i++ {
			sums[i] += float32(w * bfloat16At(row, i))
		}
	}
}

// maxRow replaces the elements than which a row's are greater.
func maxRow(sums []float32, row []byte, of dtype.Type) {
	n := maxVectors(sums, row, of)
	at := bfloat16At
	switch of {
	case dtype.Float32:
		at = float32At
	case dtype.Float16:
		at = float16At
	}
	for i := n; i < len(sums); i++ {
		if x := at(row, i); x > sums[i] {
			sums[i] = x
		}
	}
}

// store rounds the sums to elements of a type.
func store(out []byte, sums []float32, as dtype.Type) {
	switch n := storeVectors(out, sums, as); as {
	case dtype.Float32:
		for i := n; i < len(sums); i++ {
			binary.LittleEndian.PutUint32(out[4*i:], float32Bits(sums[i]))
		}
	case dtype.Float16:
		for i := n; i < len(sums); i++ {
			binary.LittleEndian.PutUint16(out[2*i:], float16Bits(sums[i]))
		}
	default:
		for i := n; i < len(sums); i++ {
			binary.LittleEndian.PutUint16(out[2*i:], bfloat16Bits(sums[i]))
		}
	}
}

func float32At(row []byte, i int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(row[4*i:]))
}

func bfloat16At(row []byte, i int) float32 {
	return math.Float32frombits(uint32(binary.LittleEndian.Uint16(row[2*i:])) << 16)
}

func float16At(row []byte, i int) float32 {
	x := uint32(binary.LittleEndian.Uint16(row[2*i:]))
	sign, exponent, fraction := x>>15<<31, x>>10&31, x&1023
	switch exponent {
	case 0: // zero or subnormal: a multiple of 2⁻²⁴
		f := float32(fraction) * 0x1p-24
		return math.Float32frombits(math.Float32bits(f) | sign)
	case 31:
		return math.Float32frombits(sign | 0xff<<23 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}

func float32Bits(x float32) uint32 {
	if x != x {
		return 0x7fc00000
	}
	return math.Float32bits(x)
}

func bfloat16Bits(x float32) uint16 {
	if x != x {
		return 0x7fc0
	}
	b := math.Float32bits(x)
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

func float16Bits(x float32) uint16 {
	b := math.Float32bits(x)
	sign, size := uint16(b>>16&0x8000), b&0x7fffffff
	switch {
	case size > 0x7f800000:
		return 0x7e00
	case size >= 0x47800000: // 2¹⁶ and more, infinity included
		return sign | 0x7c00
	case size < 0x38800000: // subnormal: adding 1/2 leaves multiples of 2⁻²⁴, rounded, in the low bits
		return sign | uint16(math.Float32bits(math.Float32frombits(size)+0.5)-0x3f000000)
	}
	size += 0xfff + size>>13&1
	return sign | uint16((size-(127-15)<<23)>>13)
}
