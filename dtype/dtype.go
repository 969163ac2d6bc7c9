// Package dtype defines the element types of tables.
package dtype

import (
	"fmt"
	"slices"
	"strings"
)

// Type is an element type, or the type of a row of parts ([RowOf]). The zero value is Invalid.
type Type uint16

// The element types.
const (
	Invalid Type = iota
	Float16
	BFloat16
	Float32
	Float64
	Int8
	Int16
	Int32
	Int64
	Uint8
	Uint16
	Uint32
	Uint64
	Bool
	// Float8E4M3FN has a sign, 4 bits of exponent and 3 of mantissa, no infinities, and NaN where all but the sign are ones. Float8E5M2 has 5 and
	// 2, and both. Float8E8M0FNU is a power of two, 2^(x-127), without a sign and zero: the scale of a block of others. FN: finite; U: unsigned.
	Float8E4M3FN
	Float8E5M2
	Float8E8M0FNU
)

// types holds the name and the bytes of an element of each Type.
var types = [...]struct {
	name string
	size int
}{
	Invalid:  {"invalid", 0},
	Float16:  {"float16", 2},
	BFloat16: {"bfloat16", 2},
	Float32:  {"float32", 4},
	Float64:  {"float64", 8},
	Int8:     {"int8", 1},
	Int16:    {"int16", 2},
	Int32:    {"int32", 4},
	Int64:    {"int64", 8},
	Uint8:    {"uint8", 1},
	Uint16:   {"uint16", 2},
	Uint32:   {"uint32", 4},
	Uint64:   {"uint64", 8},
	Bool:     {"bool", 1},

	Float8E4M3FN:  {"float8_e4m3fn", 1},
	Float8E5M2:    {"float8_e5m2", 1},
	Float8E8M0FNU: {"float8_e8m0fnu", 1},
}

// Parse returns the type of a name, as String has it.
func Parse(name string) (Type, error) {
	if strings.ContainsAny(name, "*,") {
		return parseRow(name)
	}
	var names []string
	for t := Float16; int(t) < len(types); t++ {
		names = append(names, types[t].name)
	}
	if i := slices.Index(names, name); i >= 0 {
		return Float16 + Type(i), nil
	}
	return Invalid, fmt.Errorf("dtype: element type (%q) must be one of %s", name, strings.Join(names, ", "))
}

// Size returns the bytes of an element, or of a row of parts; 0 for Invalid and unknown values.
func (t Type) Size() int {
	if r := t.row(); r != nil {
		return r.size
	}
	if int(t) >= len(types) {
		return 0
	}
	return types[t].size
}

// String returns the name that NumPy, or its extension ml_dtypes, has for it, such as "float32"; of a row of parts all names, each with its
// number of elements, such as "int8*256,float32".
func (t Type) String() string {
	if r := t.row(); r != nil {
		return r.name
	}
	if int(t) >= len(types) {
		return fmt.Sprintf("DType(%d)", uint16(t))
	}
	return types[t].name
}

// IsInt reports whether t is a signed or unsigned integer type. Bool is not.
func (t Type) IsInt() bool { return t >= Int8 && t <= Uint64 }

// IsFloat reports whether t is a floating-point type.
func (t Type) IsFloat() bool {
	return t >= Float16 && t <= Float64 || t >= Float8E4M3FN && t <= Float8E8M0FNU
}
