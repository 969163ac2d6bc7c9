package dataset

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/tensorcache/tensorcache/dtype"
)

// Within says whether got is row i, but for elements that differ from the row's by at most bound. NaNs and infinities must be the row's.
// The elements of a row that differs must be floating-point numbers.
func (t *Table) Within(i int64, got []byte, bound float64) bool {
	want := t.Row(i)
	if bound == 0 || bytes.Equal(got, want) {
		return bytes.Equal(got, want)
	}
	for size := t.DType.Size(); len(want) > 0; got, want = got[size:], want[size:] {
		if bytes.Equal(got[:size], want[:size]) {
			continue
		}
		if !t.DType.IsFloat() || !(math.Abs(Value(t.DType, got)-Value(t.DType, want)) <= bound) {
			return false
		}
	}
	return true
}

// Value returns the first element of b, a floating-point number.
func Value(of dtype.Type, b []byte) float64 {
	switch of {
	case dtype.Float64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	case dtype.Float32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case dtype.Float16:
		return casts["f16"].value(binary.LittleEndian.Uint16(b))
	default:
		return casts["bf16"].value(binary.LittleEndian.Uint16(b))
	}
}
