package npy

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/dtype"
)

// codes has, for each DType, the code in a header's descr, "" where npy has none. V2, two void bytes, is what NumPy saves bfloat16 of ml_dtypes as.
var codes = []string{
	dtype.Float16: "f2", dtype.BFloat16: "V2", dtype.Float32: "f4", dtype.Float64: "f8", dtype.Int8: "i1", dtype.Int16: "i2", dtype.Int32: "i4", dtype.Int64: "i8", dtype.Uint8: "u1", dtype.Uint16: "u2",
	dtype.Uint32: "u4", dtype.Uint64: "u8", dtype.Bool: "b1",
}

// nativeBig says whether this machine is big-endian.
var nativeBig = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// parseDescr decodes the descr of a header; big is the byte order of its elements.
func parseDescr(descr string) (d dtype.Type, big bool, err error) {
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
		return dtype.Bool, big, nil
	case "V1": // ml_dtypes saves float8_e4m3fn, float8_e8m0fnu and others so
		return dtype.Uint8, big, nil
	case "f1": // and float8_e5m2 so
		return dtype.Float8E5M2, big, nil
	case "bfloat16":
		return dtype.BFloat16, big, nil
	}
	if d := slices.Index(codes, code); code != "" && d >= 0 {
		return dtype.Type(d), big, nil
	}
	return dtype.Invalid, false, errDescr(fmt.Sprintf("%q", clip(descr)))
}

func errDescr(shown string) error {
	var names []string
	for d, code := range codes {
		if code != "" {
			names = append(names, dtype.Type(d).String())
		}
	}
	return fmt.Errorf("dtype (%s) must be one of %s", shown, strings.Join(names, ", "))
}
