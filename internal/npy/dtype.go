package npy

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/tensorcache/tensorcache/internal/dtype"
)

// DType is the type of an array's elements. A .npy file holds all of them but BFloat16, which exists for callers that cast.
type DType = dtype.Type

// The element types.
const (
	Invalid  = dtype.Invalid
	Float16  = dtype.Float16
	BFloat16 = dtype.BFloat16
	Float32  = dtype.Float32
	Float64  = dtype.Float64
	Int8     = dtype.Int8
	Int16    = dtype.Int16
	Int32    = dtype.Int32
	Int64    = dtype.Int64
	Uint8    = dtype.Uint8
	Uint16   = dtype.Uint16
	Uint32   = dtype.Uint32
	Uint64   = dtype.Uint64
	Bool     = dtype.Bool
)

// codes has, for each DType, the code in a header's descr, "" where npy has none.
var codes = [...]string{
	Float16: "f2", Float32: "f4", Float64: "f8", Int8: "i1", Int16: "i2", Int32: "i4", Int64: "i8", Uint8: "u1", Uint16: "u2",
	Uint32: "u4", Uint64: "u8", Bool: "b1",
}

// descrOf returns what numpy writes for d in little-endian order, "" where npy has
// no code for d.
func descrOf(d DType) string {
	if int(d) >= len(codes) || codes[d] == "" {
		return ""
	}
	if d.Size() == 1 {
		return "|" + codes[d]
	}
	return "<" + codes[d]
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
	for d := range codes {
		if code != "" && code == codes[d] {
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
	for d, code := range codes {
		if code != "" {
			names = append(names, DType(d).String())
		}
	}
	return faultf(ErrDType, "dtype (%s) must be one of %s", shown, strings.Join(names, ", "))
}
