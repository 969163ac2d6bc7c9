package dataset

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/dtype"
)

func TestWithin_EveryFloatType(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, of := range []dtype.Type{dtype.Float64, dtype.Float32, dtype.Float16, dtype.BFloat16} {
		put := func(x float64) []byte {
			switch of {
			case dtype.Float64:
				return binary.LittleEndian.AppendUint64(nil, math.Float64bits(x))
			case dtype.Float32:
				return binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(x)))
			case dtype.Float16:
				return binary.LittleEndian.AppendUint16(nil, casts["f16"].round(x))
			default:
				return binary.LittleEndian.AppendUint16(nil, casts["bf16"].round(x))
			}
		}
		for _, c := range []struct {
			want, got, bound float64
			within           bool
		}{
			{1, 1, 0, true}, {1, 1.5, 0, false}, {1, 1.5, 0.5, true}, {1, 1.5, 0.25, false}, {-1, 1, 2, true}, {0, math.Copysign(0, -1), 1, true},
			{nan, nan, 1, true}, {nan, 1, 1, false}, {1, nan, 9, false}, {inf, inf, 1, true}, {inf, -inf, 1, false}, {1, inf, 9, false},
		} {
			table := &Table{DType: of, Rows: 2, RowBytes: 2 * of.Size()}
			table.Data = append(append(append(put(7), put(7)...), put(7)...), put(c.want)...)
			if got := table.Within(1, append(put(7), put(c.got)...), c.bound); got != c.within {
				t.Errorf("%v: %g for %g within %g: %v", of, c.got, c.want, c.bound, got)
			}
		}
	}
	ints := &Table{DType: dtype.Uint8, Rows: 1, RowBytes: 2, Data: []byte{1, 2}}
	if ints.Within(0, []byte{1, 3}, 5) || !ints.Within(0, []byte{1, 2}, 5) {
		t.Error("integers have no bound")
	}
}

func TestSample_IsTheCodecs(t *testing.T) {
	table, err := Generate(9000, 8, 3)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := table.Sample(7), codec.Sample(table.Data, 9000, 32, 32, 7); len(got) == 0 || !bytes.Equal(got, want) {
		t.Errorf("%d bytes differ from %d", len(got), len(want))
	}
}
