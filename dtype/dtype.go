// Package dtype defines the element types of tables.
package dtype

import "fmt"

// Type is an element type. The zero value is Invalid.
type Type uint8

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
)

// types holds the NumPy name and the bytes of an element of each Type.
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
}

// Size returns the bytes of an element, 0 for Invalid and unknown values.
func (t Type) Size() int {
	if int(t) >= len(types) {
		return 0
	}
	return types[t].size
}

// String returns the NumPy name, such as "float32".
func (t Type) String() string {
	if int(t) >= len(types) {
		return fmt.Sprintf("DType(%d)", uint8(t))
	}
	return types[t].name
}

// IsInt reports whether t is a signed or unsigned integer type. Bool is not.
func (t Type) IsInt() bool { return t >= Int8 && t <= Uint64 }

// IsFloat reports whether t is a floating-point type.
func (t Type) IsFloat() bool { return t >= Float16 && t <= Float64 }
