package dataset

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/tensorcache/tensorcache/dtype"
)

// format is a binary floating-point format of at most 16 bits.
type format struct {
	dtype              dtype.Type
	exponent, mantissa int  // bits
	finite             bool // there are no infinities, and one NaN of each sign: all ones
}

var casts = map[string]format{
	"bf16":   {dtype.BFloat16, 8, 7, false},
	"f16":    {dtype.Float16, 5, 10, false},
	"f8e4m3": {dtype.Float8E4M3FN, 4, 3, true},
	"f8e5m2": {dtype.Float8E5M2, 5, 2, false},
}

// powers is the format of elements that are powers of two: powerOfTwo rounds to them.
var powers = format{dtype: dtype.Float8E8M0FNU}

// castOf returns the format of a cast, and how many elements share a scale behind the values of a row: 0 for none.
func castOf(name string) (f format, block int, err error) {
	if name == "f8e8m0" {
		return powers, 0, nil
	}
	of, scales, scaled := strings.Cut(name, "/e8m0:")
	f, ok := casts[of]
	if scaled {
		if block, err = strconv.Atoi(scales); err != nil || block < 1 || f.dtype.Size() != 1 {
			ok = false
		}
	}
	if !ok {
		return f, 0, fmt.Errorf("dataset: unknown cast (%q) must be bf16, f16, f8e4m3, f8e5m2, f8e8m0, or f8e4m3 or f8e5m2 with scales, as in f8e4m3/e8m0:32", name)
	}
	return f, block, nil
}

// CheckCast returns an error when there is no such cast; "" is none.
func CheckCast(name string) error {
	if name == "" {
		return nil
	}
	_, _, err := castOf(name)
	return err
}

// Cast returns the table with every element rounded to bf16, f16, f8e4m3 (float8_e4m3fn), f8e5m2 or f8e8m0, nearest even. The table must be float32 or
// float64. f8e8m0 is for tables of scales: it has powers of two only, and loses signs. NaNs stay NaNs, quiet, with the upper bits of their payload. What is too large for f8e4m3, which has no infinity, becomes its largest number, 448,
// as in torch. With scales, "f8e4m3/e8m0:32", each 32 elements of a row are divided by a power of two first, so that the largest has the largest
// exponent of the format; these scales follow the values as float8_e8m0fnu, and the rows are rows of parts. An empty name returns the table
// itself. The table that was cast must not be used any more.
func (t *Table) Cast(name string) (*Table, error) {
	if name == "" {
		return t, nil
	}
	f, block, err := castOf(name)
	if err != nil {
		return nil, err
	}
	if t.DType != dtype.Float32 && t.DType != dtype.Float64 {
		return nil, fmt.Errorf("dataset: %s: element type (%s) must be float32 or float64 to be cast to %s", t.Name, t.DType, name)
	}
	size := t.DType.Size()
	columns := t.RowBytes / size
	c := &Table{Name: t.Name, DType: f.dtype, Rows: t.Rows, RowBytes: columns * f.dtype.Size()}
	if block > 0 {
		if columns%block != 0 {
			return nil, fmt.Errorf("dataset: %s: columns (%d) must be a multiple of the %d that share a scale", t.Name, columns, block)
		}
		if c.DType, err = dtype.RowOf(dtype.Part{Type: f.dtype, Count: columns}, dtype.Part{Type: dtype.Float8E8M0FNU, Count: columns / block}); err != nil {
			return nil, err
		}
		c.RowBytes += columns / block
	}
	c.Data = make([]byte, 0, c.Rows*c.RowBytes)
	row := make([]float64, columns)
	for i := 0; i < len(t.Data); i += t.RowBytes {
		for k := range row {
			row[k] = Value(t.DType, t.Data[i+k*size:])
		}
		var scales []byte
		for k := 0; block > 0 && k < columns; k += block {
			scales = append(scales, f.scale(row[k:][:block]))
		}
		for _, x := range row {
			if f == powers {
				c.Data = append(c.Data, powerOfTwo(x))
			} else if h := f.round(x); f.dtype.Size() == 1 {
				c.Data = append(c.Data, byte(h))
			} else {
				c.Data = binary.LittleEndian.AppendUint16(c.Data, h)
			}
		}
		c.Data = append(c.Data, scales...)
	}
	if t.memory != nil {
		t.Data = nil
		t.memory.Free()
	}
	return c, nil
}

// scale divides elements by the power of two with which the largest has the format's largest exponent, and returns that power as
// float8_e8m0fnu. Infinities and NaNs do not count. What would be rounded to an infinity becomes the largest number.
func (f format) scale(elements []float64) byte {
	largest := 0.0
	for _, x := range elements {
		if a := math.Abs(x); a > largest && !math.IsInf(a, 0) {
			largest = a
		}
	}
	most := 1 << (f.exponent - 1) // the exponent of the largest numbers
	if !f.finite {
		most-- // above are infinities
	}
	_, e := math.Frexp(largest)
	scale := min(max(e-1-most, -127), 127)
	if largest == 0 {
		scale = 0
	}
	last := math.Ldexp(2-math.Ldexp(1, -f.mantissa), most) // beyond which elements would be rounded to infinity
	for i, x := range elements {
		if x = math.Ldexp(x, -scale); math.Abs(x) > last && !math.IsInf(x, 0) {
			x = math.Copysign(last, x)
		}
		elements[i] = x
	}
	return byte(scale + 127)
}

// powerOfTwo returns the power of two nearest to |x|, of two the one whose exponent, biased by 127, is even, as float8_e8m0fnu and as torch does it. 0 becomes
// the least, 2^-127; infinities become NaN.
func powerOfTwo(x float64) byte {
	x = math.Abs(x)
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 255
	}
	fraction, e := math.Frexp(x)
	e += 126
	if fraction > 0.75 || fraction == 0.75 && e&1 != 0 {
		e++
	}
	if x == 0 {
		e = 0
	}
	return byte(min(max(e, 0), 254))
}

// CheckDType returns an error when there is no such element type; "" is the table's own.
func CheckDType(name string) error {
	if name == "" {
		return nil
	}
	_, err := dtype.Parse(name)
	return err
}

// As returns the table with its elements taken for those of the named type, of the same length. An empty name returns the table itself.
func (t *Table) As(name string) (*Table, error) {
	if name == "" {
		return t, nil
	}
	of, err := dtype.Parse(name)
	if err != nil {
		return nil, err
	}
	if err := of.CheckAs(t.DType, t.RowBytes); err != nil {
		return nil, fmt.Errorf("dataset: %s: %w", t.Name, err)
	}
	as := *t
	as.DType = of
	return &as, nil
}

// round returns the bits of the value nearest to x, the even one of two.
func (f format) round(x float64) uint16 {
	b := math.Float64bits(x)
	sign := uint16(b>>63) << (f.exponent + f.mantissa)
	infinity := uint16(1<<f.exponent-1) << f.mantissa
	nan := infinity | 1<<(f.mantissa-1) | uint16(b&(1<<52-1)>>(52-f.mantissa))
	if f.finite {
		nan = infinity | (1<<f.mantissa - 1)
		infinity = nan - 1 // the largest number
	}
	switch {
	case math.IsNaN(x):
		return sign | nan
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

// value returns what the bits of a format mean, by the definition of IEEE 754, or of ml_dtypes for the finite one.
func (f format) value(h uint16) float64 {
	sign := 1 - 2*float64(h>>(f.exponent+f.mantissa))
	exponent, fraction := int(h)>>f.mantissa&(1<<f.exponent-1), float64(h&(1<<f.mantissa-1))
	bias, scale := 1<<(f.exponent-1)-1, math.Ldexp(1, -f.mantissa)
	switch {
	case exponent == 1<<f.exponent-1 && (!f.finite && fraction != 0 || f.finite && fraction == float64(uint(1)<<f.mantissa-1)):
		return math.NaN()
	case exponent == 1<<f.exponent-1 && !f.finite:
		return sign * math.Inf(1)
	case exponent == 0:
		return sign * math.Ldexp(fraction*scale, 1-bias)
	default:
		return sign * math.Ldexp(1+fraction*scale, exponent-bias)
	}
}
