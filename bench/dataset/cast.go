package dataset

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tensorcache/tensorcache/dtype"
)

// format is a binary floating-point format of 16 bits.
type format struct {
	dtype              dtype.Type
	exponent, mantissa int // bits
}

var casts = map[string]format{
	"bf16": {dtype.BFloat16, 8, 7},
	"f16":  {dtype.Float16, 5, 10},
}

// CheckCast returns an error when there is no such cast; "" is none.
func CheckCast(name string) error {
	if _, ok := casts[name]; !ok && name != "" {
		return fmt.Errorf("dataset: unknown cast (%q) must be bf16 or f16", name)
	}
	return nil
}

// Cast returns the table with every element rounded to bf16 or f16, nearest even. The table must be float32 or float64.
// NaNs stay NaNs, quiet, with the upper bits of their payload. An empty name returns the table itself. The table that was cast must not be
// used any more.
func (t *Table) Cast(name string) (*Table, error) {
	if name == "" {
		return t, nil
	}
	if err := CheckCast(name); err != nil {
		return nil, err
	}
	if t.DType != dtype.Float32 && t.DType != dtype.Float64 {
		return nil, fmt.Errorf("dataset: %s: element type (%s) must be float32 or float64 to be cast to %s", t.Name, t.DType, name)
	}
	f, size := casts[name], t.DType.Size()
	c := &Table{Name: t.Name, DType: f.dtype, Rows: t.Rows, RowBytes: t.RowBytes / size * 2}
	c.Data = make([]byte, 0, c.Rows*c.RowBytes)
	for i := 0; i < len(t.Data); i += size {
		var x float64
		if size == 4 {
			x = float64(math.Float32frombits(binary.LittleEndian.Uint32(t.Data[i:])))
		} else {
			x = math.Float64frombits(binary.LittleEndian.Uint64(t.Data[i:]))
		}
		c.Data = binary.LittleEndian.AppendUint16(c.Data, f.round(x))
	}
	if t.memory != nil {
		t.Data = nil
		t.memory.Free()
	}
	return c, nil
}

// round returns the bits of the value nearest to x, the even one of two.
func (f format) round(x float64) uint16 {
	b := math.Float64bits(x)
	sign := uint16(b>>63) << 15
	infinity := uint16(1<<f.exponent-1) << f.mantissa
	switch {
	case math.IsNaN(x):
		return sign | infinity | 1<<(f.mantissa-1) | uint16(b&(1<<52-1)>>(52-f.mantissa))
	case math.IsInf(x, 0):
		return sign | infinity
	case x == 0:
		return sign
	}
	// The exponent, that of subnormals at least, and the multiple of the last place, which with a carry raises the exponent.
	bias := 1<<(f.exponent-1) - 1
	_, e := math.Frexp(x)
	e = max(e-1, 1-bias)
	steps := uint64(math.RoundToEven(math.Ldexp(math.Abs(x), f.mantissa-e)))
	return sign | uint16(min(uint64(e+bias-1)<<f.mantissa+steps, uint64(infinity)))
}

// value returns what 16 bits of a format mean, by the definition of IEEE 754.
func (f format) value(h uint16) float64 {
	sign := 1 - 2*float64(h>>15)
	exponent, fraction := int(h&0x7fff)>>f.mantissa, float64(h&(1<<f.mantissa-1))
	bias, scale := 1<<(f.exponent-1)-1, math.Ldexp(1, -f.mantissa)
	switch {
	case exponent == 1<<f.exponent-1 && fraction != 0:
		return math.NaN()
	case exponent == 1<<f.exponent-1:
		return sign * math.Inf(1)
	case exponent == 0:
		return sign * math.Ldexp(fraction*scale, 1-bias)
	default:
		return sign * math.Ldexp(1+fraction*scale, exponent-bias)
	}
}
