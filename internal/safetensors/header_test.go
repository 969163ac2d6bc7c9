package safetensors

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// entry is a header's member.
func entry(name, dtype, shape string, from, to int) string {
	return fmt.Sprintf(`%q:{"dtype":%q,"shape":%s,"data_offsets":[%d,%d]}`, name, dtype, shape, from, to)
}

func header(entries ...string) string { return "{" + strings.Join(entries, ",") + "}" }

func TestOpen_RejectsHeaders(t *testing.T) {
	a := entry("a", "F32", "[2,3]", 0, 24)
	length := func(n uint64) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, n), header(a)...)
	}
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"empty file":          {nil, "mem: file (0 bytes) must have 8 bytes with the header's length: truncated"},
		"short length":        {make([]byte, 7), "file (7 bytes) must have 8 bytes"},
		"no header":           {file("", nil), "header length (0) must be 2 to 100000000 bytes"},
		"long header":         {length(100_000_001), "header length (100000001) must be 2 to 100000000 bytes"},
		"huge header":         {length(1 << 63), "header length (9223372036854775808) must be 2 to"},
		"truncated header":    {length(100_000_000), fmt.Sprintf("header bytes (%d) must be 100000000: truncated", len(header(a)))},
		"cut in the header":   {file(header(a)[:40], make([]byte, 24)), "unexpected EOF"},
		"space before":        {file(" "+header(a), make([]byte, 24)), "must begin with '{'"},
		"list":                {file("[]", nil), `header ("[]") must begin with '{'`},
		"text after":          {file(header(a)+"  x", make([]byte, 24)), `header must end after its object, not in "  x"`},
		"another object":      {file(header(a)+header(a), make([]byte, 24)), "header must end after its object"},
		"no JSON":             {file(`{"a":}`, nil), "header at byte 4: invalid character '}'"},
		"no comma":            {file(`{"a":{"dtype":"F32" "shape":[2]}}`, nil), "header at byte"},
		"no UTF-8":            {file("{\"a\xff\":{}}", nil), "header must be valid UTF-8"},
		"no tensors":          {file("{}", nil), "file (0 tensors) must have a tensor"},
		"metadata only":       {file(`{"__metadata__":{"a":"b"}}`, nil), "file (0 tensors) must have a tensor"},
		"same name twice":     {file(header(a, entry("a", "F32", "[2,3]", 24, 48)), make([]byte, 48)), `key ("a") of header must occur once`},
		"same, escaped":       {file(header(a, strings.Replace(a, `"a"`, `"\u0061"`, 1)), make([]byte, 24)), `key ("a") of header must occur once`},
		"metadata twice":      {file(`{"__metadata__":{},"__metadata__":{}}`, nil), `key ("__metadata__") of header must occur once`},
		"metadata key twice":  {file(`{"__metadata__":{"k":"a","k":"b"}}`, nil), `key ("k") of __metadata__ must occur once`},
		"metadata of numbers": {file(`{"__metadata__":{"k":1}}`, nil), `__metadata__ of k ("1" at byte`},
		"metadata is a list":  {file(`{"__metadata__":[]}`, nil), `__metadata__ ("[") must be an object`},
		"dtype twice":         {file(`{"a":{"dtype":"F32","dtype":"F32","shape":[],"data_offsets":[0,4]}}`, make([]byte, 4)), `key ("dtype") of tensor "a" must occur once`},
		"shape is missing":    {file(`{"a":{"dtype":"F32","data_offsets":[0,4]}}`, make([]byte, 4)), `tensor "a" must have dtype, shape and data_offsets`},
		"another key":         {file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"order":"F"}}`, make([]byte, 4)), `key ("order") of tensor "a" must be`},
		"entry is a list":     {file(`{"a":[1]}`, nil), `tensor "a" ("[") must be an object`},
		"entry is null":       {file(`{"a":null}`, nil), `must be an object`},
		"dtype is a number":   {file(`{"a":{"dtype":4,"shape":[1],"data_offsets":[0,4]}}`, nil), `dtype of tensor "a" ("4" at byte`},
		"shape is a number":   {file(`{"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}}`, nil), `shape of tensor "a" ("1" at byte`},
		"shape of texts":      {file(header(entry("a", "F32", `["2"]`, 0, 8)), make([]byte, 8)), `shape of tensor "a" ("2" at byte`},
		"nested shape":        {file(header(entry("a", "F32", `[[2]]`, 0, 8)), make([]byte, 8)), `must be a list of integers`},
		"fraction":            {file(header(entry("a", "F32", `[2.0]`, 0, 8)), make([]byte, 8)), `shape of tensor "a" (2.0) must be integers of 0 to`},
		"exponent":            {file(header(entry("a", "F32", `[2e0]`, 0, 8)), make([]byte, 8)), `(2e0) must be integers`},
		"negative":            {file(header(entry("a", "F32", `[-2]`, 0, 8)), make([]byte, 8)), `(-2) must be integers`},
		"more than 64 bits":   {file(header(entry("a", "F32", `[99999999999999999999]`, 0, 8)), make([]byte, 8)), `(99999999999999999999) must be integers`},
		"product overflows":   {file(header(entry("a", "F32", `[4294967296,4294967296,4]`, 0, 0)), nil), "must need at most"},
		"product is 2^64":     {file(header(entry("a", "U8", `[4294967296,4294967296]`, 0, 0)), nil), "must need at most"},
		"one offset":          {file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4]}}`, make([]byte, 4)), `data_offsets ([4]) of tensor "a" must be begin and end`},
		"offsets reversed":    {file(header(entry("a", "F32", "[1]", 4, 0)), make([]byte, 4)), `data_offsets ([4 0]) of tensor "a" must be begin and end, in this order`},
		"too few bytes":       {file(header(entry("a", "F32", "[2,3]", 0, 20)), make([]byte, 20)), `data_offsets ([0 20]) of tensor "a" must span the 24 bytes of shape [2 3] of F32`},
		"too many bytes":      {file(header(entry("a", "BF16", "[2,3]", 0, 24)), make([]byte, 24)), `must span the 12 bytes of shape [2 3] of BF16`},
		"bad, not asked for":  {file(header(a, entry("b", "F32", "[2]", 24, 28)), make([]byte, 28)), `tensor "b" must span the 8 bytes`},
		"overlap":             {file(header(a, entry("b", "U8", "[8]", 16, 24)), make([]byte, 24)), `data_offsets ([16 24]) of tensor "b" must begin at 24`},
		"the same bytes":      {file(header(a, entry("b", "F32", "[2,3]", 0, 24)), make([]byte, 24)), `of tensor "b" must begin at 24`},
		"unknown type inside": {file(header(a, entry("b", "F4", "[8]", 4, 8)), make([]byte, 24)), `of tensor "b" must begin at 24`},
		"gap":                 {file(header(a, entry("b", "U8", "[2]", 25, 27)), make([]byte, 27)), `of tensor "b" must begin at 24`},
		"gap in front":        {file(header(entry("a", "F32", "[2,3]", 8, 32)), make([]byte, 32)), `of tensor "a" must begin at 0`},
		"data are cut":        {file(header(a), make([]byte, 23)), "data bytes (23) must be 24: truncated"},
		"trailing bytes":      {file(header(a), make([]byte, 25)), "trailing bytes (1) must be 0: the tensors need 24 bytes"},
		"unprintable":         {file(header("\"\\u001b[2J\":1"), nil), `tensor "\x1b[2J"`},
	} {
		if r, err := openBytes(c.file, "a", 1); err == nil {
			t.Errorf("%s: opened %s", name, r.Name())
		} else if !strings.HasPrefix(err.Error(), "safetensors: mem: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

func TestOpen_TakesHeaders(t *testing.T) {
	a := entry("a", "F32", "[2,3]", 0, 24)
	for name, b := range map[string][]byte{
		"plain":                      file(header(a), make([]byte, 24)),
		"padded":                     file(header(a)+"    \n", make([]byte, 24)),
		"metadata":                   file(header(`"__metadata__":{"format":"pt","":""}`, a), make([]byte, 24)),
		"keys in another order":      file(`{ "a" : {"data_offsets":[0, 24], "shape":[2, 3], "dtype":"F32"} }`, make([]byte, 24)),
		"data in another order":      file(header(entry("b", "I64", "[1]", 24, 32), a), make([]byte, 32)),
		"scalar":                     file(header(a, entry("b", "F64", "[]", 24, 32)), make([]byte, 32)),
		"empty tensors":              file(header(entry("e", "F32", "[0,3]", 0, 0), a, entry("f", "F32", "[3,0]", 24, 24), entry("g", "U8", "[0]", 24, 24)), make([]byte, 24)),
		"unknown type, not asked of": file(header(a, entry("b", "F4", "[8]", 24, 28)), make([]byte, 28)),
	} {
		r, err := openBytes(b, "a", 2)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if r.Rows() != 2 || r.RowBytes() != 12 || !slices.Equal(r.Shape(), []int{2, 3}) || r.Name() != "mem:a" {
			t.Errorf("%s: %s has %d rows of %d bytes, shape %v", name, r.Name(), r.Rows(), r.RowBytes(), r.Shape())
		}
	}
}

// TestParse_ManyTensors: the time for a header grows with its length, not faster.
func TestParse_ManyTensors(t *testing.T) {
	const n = 50_000
	entries := make([]string, n)
	for i := range entries {
		entries[i] = entry(fmt.Sprint("layer.", n-i), "U8", "[2,1]", 2*(n-1-i), 2*(n-i))
	}
	b := file(header(entries...), sequence(2*n))
	r, err := openBytes(b, "layer.17", 2)
	if err != nil {
		t.Fatal(err)
	}
	if want := int64(len(b) - 2*n + 2*16); r.begin != want {
		t.Errorf("begins at %d, want %d", r.begin, want)
	}
	_, err = openBytes(b, "", 2)
	checkText(t, err, `tensors of rank 2 or more (50000) must be one, or be chosen as FILE.safetensors:NAME from "layer.50000", "layer.49999"`)
	checkText(t, err, `"layer.49985", and 49984 more`)
}
