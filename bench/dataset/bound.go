package dataset

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"

	"github.com/tensorcache/tensorcache/dtype"
)

// Within says whether got is row i, but for elements that differ from the row's by at most bound. NaNs and infinities must be the row's.
// The elements of a row that differs must be floating-point numbers.
func (t *Table) Within(i int64, got []byte, bound float64) bool {
	return t.within(t.Row(i), got, bound)
}

// within is Within for a row with so many bytes.
func (t *Table) within(want, got []byte, bound float64) bool {
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

// Mismatches returns how many of rows differ from got, which has them one after the other, by more than bound.
func (t *Table) Mismatches(ctx context.Context, rows []int64, got []byte, bound float64) (n int64, err error) {
	var all []byte
	if t.pages != nil {
		all = make([]byte, len(rows)*t.RowBytes)
		if err := t.ReadRows(ctx, rows, all); err != nil {
			return 0, err
		}
	}
	for i, row := range rows {
		var want []byte
		if all != nil {
			want = all[i*t.RowBytes:][:t.RowBytes]
		} else {
			want = t.Row(row)
		}
		if !t.within(want, got[i*t.RowBytes:][:t.RowBytes], bound) {
			n++
		}
	}
	return n, nil
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
	case dtype.Float8E4M3FN:
		return casts["f8e4m3"].value(uint16(b[0]))
	case dtype.Float8E5M2:
		return casts["f8e5m2"].value(uint16(b[0]))
	case dtype.Float8E8M0FNU:
		if b[0] == 255 {
			return math.NaN()
		}
		return math.Ldexp(1, int(b[0])-127)
	default:
		return casts["bf16"].value(binary.LittleEndian.Uint16(b))
	}
}
