package safetensors

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tensorcache/tensorcache/dtype"
)

// element is an element type of the format.
type element struct {
	name string
	of   dtype.Type
}

// elements are those that can be opened.
var elements = []element{
	{"F64", dtype.Float64}, {"F32", dtype.Float32}, {"F16", dtype.Float16}, {"BF16", dtype.BFloat16},
	{"I64", dtype.Int64}, {"I32", dtype.Int32}, {"I16", dtype.Int16}, {"I8", dtype.Int8},
	{"U64", dtype.Uint64}, {"U32", dtype.Uint32}, {"U16", dtype.Uint16}, {"U8", dtype.Uint8},
	{"BOOL", dtype.Bool}, {"F8_E4M3", dtype.Float8E4M3FN}, {"F8_E5M2", dtype.Float8E5M2}, {"F8_E8M0", dtype.Float8E8M0FNU},
}

// typeOf returns the element type of a name, Invalid for names that this package does not know.
func typeOf(name string) dtype.Type {
	if i := slices.IndexFunc(elements, func(e element) bool { return e.name == name }); i >= 0 {
		return elements[i].of
	}
	return dtype.Invalid
}

func errType(name string) error {
	var names []string
	for _, e := range elements {
		names = append(names, e.name)
	}
	return fmt.Errorf("dtype (%q) must be one of %s", name, strings.Join(names, ", "))
}
