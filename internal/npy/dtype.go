package npy

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// DType is the type of an array's elements. The zero value is Invalid.
type DType uint8

// The element types. A .npy file holds all of them but BFloat16, which exists for
// callers that cast.
const (
	Invalid DType = iota
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

// dtypes has, for each DType, numpy's name, the bytes of an element and the code in a
// header's descr ("" where npy has none).
var dtypes = [...]struct {
	name string
	size int
	code string
}{
	Invalid:  {"invalid", 0, ""},
	Float16:  {"float16", 2, "f2"},
	BFloat16: {"bfloat16", 2, ""},
	Float32:  {"float32", 4, "f4"},
	Float64:  {"float64", 8, "f8"},
	Int8:     {"int8", 1, "i1"},
	Int16:    {"int16", 2, "i2"},
	Int32:    {"int32", 4, "i4"},
	Int64:    {"int64", 8, "i8"},
	Uint8:    {"uint8", 1, "u1"},
	Uint16:   {"uint16", 2, "u2"},
	Uint32:   {"uint32", 4, "u4"},
	Uint64:   {"uint64", 8, "u8"},
	Bool:     {"bool", 1, "b1"},
}

// Size returns the bytes of one element, 0 for Invalid and unknown values.
func (d DType) Size() int {
	if int(d) >= len(dtypes) {
		return 0
	}
	return dtypes[d].size
}

// String returns numpy's name, "float32" for example.
func (d DType) String() string {
	if int(d) >= len(dtypes) {
		return fmt.Sprintf("DType(%d)", uint8(d))
	}
	return dtypes[d].name
}

// isInt says whether d is a signed or unsigned integer; bool is not.
func (d DType) isInt() bool { return d >= Int8 && d <= Uint64 }

// descr returns what numpy writes for d in little-endian order, "" where npy has
// no code for d.
func (d DType) descr() string {
	if int(d) >= len(dtypes) || dtypes[d].code == "" {
		return ""
	}
	if dtypes[d].size == 1 {
		return "|" + dtypes[d].code
	}
	return "<" + dtypes[d].code
}

// nativeBig says whether this machine is big-endian.
var nativeBig = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// parseDescr decodes the descr of a header; big is the byte order of its elements.
func parseDescr(descr string) (d DType, big bool, err error) {
	code, big := descr, nativeBig
	if descr != "" {
		switch descr[0] {
		case '<':
			code, big = descr[1:], false
		case '>':
			code, big = descr[1:], true
		case '=', '|': // as numpy, which takes both for the machine's own order
			code = descr[1:]
		}
	}
	switch code {
	case "?":
		return Bool, big, nil
	case "V2", "bfloat16":
		return Invalid, false, errBFloat16(descr)
	}
	for d := range dtypes {
		if code != "" && code == dtypes[d].code {
			return DType(d), big, nil
		}
	}
	return Invalid, false, errDescr(fmt.Sprintf("%q", clip(descr)))
}

// errBFloat16 explains the one unsupported type whose files look nearly right:
// ml_dtypes saves bfloat16 as two void bytes.
func errBFloat16(descr string) error {
	return faultf(ErrDType, "dtype (%q) must not be void: npy cannot hold bfloat16; store float32 and use --cast bf16", descr)
}

func errDescr(shown string) error {
	var names []string
	for _, t := range dtypes {
		if t.code != "" {
			names = append(names, t.name)
		}
	}
	return faultf(ErrDType, "dtype (%s) must be one of %s", shown, strings.Join(names, ", "))
}
