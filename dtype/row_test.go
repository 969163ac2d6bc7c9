package dtype_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/dtype"
)

func TestRowOf_NamesParseToTheSameType(t *testing.T) {
	values, scales := dtype.Part{Type: dtype.Float8E4M3FN, Count: 256}, dtype.Part{Type: dtype.Float8E8M0FNU, Count: 8}
	for want, parts := range map[string][]dtype.Part{
		"float8_e4m3fn*256,float8_e8m0fnu*8": {values, scales},
		"int8*3,float32,int64*2":             {{dtype.Int8, 1}, {dtype.Int8, 2}, {dtype.Float32, 1}, {dtype.Int64, 1}, {dtype.Int64, 1}},
		"float32":                            {{dtype.Float32, 3}, {dtype.Float32, 1}},
	} {
		of, err := dtype.RowOf(parts...)
		if err != nil || of.String() != want {
			t.Errorf("%v: %v, %v, want %s", parts, of, err, want)
			continue
		}
		if again, err := dtype.Parse(want); err != nil || again != of {
			t.Errorf("%s parses to %v, %v", want, again, err)
		}
		size := 0
		for _, p := range of.Parts() {
			size += p.Count * p.Type.Size()
		}
		if of.IsRow() != (size > 0) || of.IsRow() && of.Size() != size || of.IsFloat() && of.IsRow() || of.IsInt() {
			t.Errorf("%v: %v, %d bytes, parts of %d", of, of.IsRow(), of.Size(), size)
		}
	}
	of, _ := dtype.RowOf(values, scales)
	parts := of.Parts()
	parts[0].Count = 1
	if !slices.Equal(of.Parts(), []dtype.Part{values, scales}) {
		t.Errorf("parts changed to %v", of.Parts())
	}
}

func TestRowOf_Errors(t *testing.T) {
	row, err := dtype.Parse("int8,int16")
	if err != nil {
		t.Fatal(err)
	}
	var many []dtype.Part
	for i := range 65 {
		many = append(many, dtype.Part{Type: dtype.Int8 + dtype.Type(i%2), Count: 1})
	}
	for want, parts := range map[string][]dtype.Part{
		"dtype: parts (0) of a row must be 1 to 64":                              nil,
		"dtype: parts (65) of a row must be 1 to 64":                             many,
		"dtype: type (invalid) of part 0 must be an element's":                   {{dtype.Invalid, 1}},
		"dtype: type (int8,int16) of part 1 must be an element's":                {{dtype.Int8, 1}, {row, 1}},
		"dtype: elements (0) of part 0 must be 1 to 1048576":                     {{dtype.Int8, 0}},
		"dtype: row of parts (1048577 bytes and more) must have at most 1048576": {{dtype.Int8, 1<<20 - 3}, {dtype.Int32, 1}},
	} {
		if _, err := dtype.RowOf(parts...); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for name, want := range map[string]string{
		"int8*256,float31": "float31", "int8*0,float32": `elements ("0") of a part must be a number from 1 on`, "int8*+1,float32": `elements ("+1")`,
		"int8*,float32": `elements ("")`, "int8*5": `row of parts ("int8*5") must have elements of different types; rows of one type are int8`, ",": `element type ("") must be one of`,
		"int8*2*2,float32": `elements ("2*2")`,
	} {
		if _, err := dtype.Parse(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

func TestCheckAs(t *testing.T) {
	row, err := dtype.Parse("int8*256,float32")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		as, of   dtype.Type
		rowBytes int
		want     string
	}{
		{row, dtype.Uint8, 260, ""}, {row, dtype.Float32, 260, ""}, {dtype.Uint8, row, 260, ""}, {dtype.BFloat16, dtype.Uint16, 260, ""},
		{row, dtype.Uint8, 256, "row of parts (int8*256,float32, 260 bytes) must have the row's 256 bytes"},
		{dtype.Float64, row, 260, "element type (float64) must have the 260 bytes of int8*256,float32"},
		{dtype.Invalid, row, 260, "element type (invalid) must have the 260 bytes of int8*256,float32"},
		{dtype.Float32, dtype.Uint16, 260, "element type (float32) must have the 2 bytes of uint16"},
	} {
		if err := c.as.CheckAs(c.of, c.rowBytes); fmt.Sprint(err) != c.want && (err != nil || c.want != "") {
			t.Errorf("%v as %v: %v, want %q", c.of, c.as, err, c.want)
		}
	}
}
