package safetensors

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tensorcache/tensorcache/dtype"
)

func TestOpen_EveryType(t *testing.T) {
	for name, want := range map[string]dtype.Type{
		"F64": dtype.Float64, "F32": dtype.Float32, "F16": dtype.Float16, "BF16": dtype.BFloat16, "I64": dtype.Int64, "I32": dtype.Int32,
		"I16": dtype.Int16, "I8": dtype.Int8, "U64": dtype.Uint64, "U32": dtype.Uint32, "U16": dtype.Uint16, "U8": dtype.Uint8,
		"BOOL": dtype.Bool, "F8_E4M3": dtype.Float8E4M3FN, "F8_E5M2": dtype.Float8E5M2, "F8_E8M0": dtype.Float8E8M0FNU,
	} {
		data := sequence(5 * 3 * want.Size())
		r, err := Open(save(t, file(header(entry("a", name, "[5,3]", 0, len(data))), data)), 2)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := readRows(r, 2)
		if err != nil || r.DType() != want || r.RowBytes() != 3*want.Size() || !bytes.Equal(got, data) {
			t.Errorf("%s: %v, %d bytes a row, %v, or other data", name, r.DType(), r.RowBytes(), err)
		}
		r.Close()
	}
	for _, name := range []string{"F4", "F8_E3M4", "C64", "f32", ""} {
		_, err := openBytes(file(header(entry("a", name, "[5,3]", 0, 15)), sequence(15)), "", 2)
		checkText(t, err, fmt.Sprintf("safetensors: mem:a: dtype (%q) must be one of F64, F32, F16, BF16, I64,", name))
	}
}

func TestOpen_ChoosesTensor(t *testing.T) {
	m := func(name string, from int) string { return entry(name, "U8", "[2,3]", from, from+6) }
	v := func(name string, from int) string { return entry(name, "U8", "[6]", from, from+6) }
	data := sequence(18)
	for _, c := range []struct {
		name    string
		entries []string
		suffix  string
		want    string // tensor, or
		wantErr string
	}{
		{"single", []string{m("a", 0)}, "", "a", ""},
		{"single, low rank", []string{v("a", 0)}, "", "", "a.safetensors:a: rank (1) of shape [6] must be at least 2"},
		{"single, no rows", []string{entry("a", "U8", "[0,3]", 0, 0)}, "", "", "a.safetensors:a: shape [0 3] must have axes of at least 1"},
		{"scalar", []string{entry("a", "U8", "[]", 0, 1)}, "", "", "a.safetensors:a: rank (0) of shape [] must be at least 2"},
		{"named", []string{m("a", 0), m("model.b", 6)}, ":model.b", "model.b", ""},
		{"named with colon", []string{m("a:b", 0), m("a", 6)}, ":a:b", "a:b", ""},
		{"named, absent", []string{m("a", 0), m("b", 6)}, ":c", "", `tensor ("c") must be one of "a", "b"`},
		{"named metadata", []string{m("a", 0), `"__metadata__":{"a":"b"}`}, ":__metadata__", "", `tensor ("__metadata__") must be one of "a"`},
		{"preferred", []string{m("a", 0), m("features", 6)}, "", "features", ""},
		{"only of the rank", []string{v("a", 0), m("b", 6), v("c", 12)}, "", "b", ""},
		{"only of a known type", []string{entry("a", "F4", "[2,6]", 0, 6), m("b", 6)}, "", "b", ""},
		{"several", []string{m("a", 0), m("b", 6), v("c", 12)}, "", "",
			`a.safetensors: tensors of rank 2 or more (2) must be one, or be chosen as FILE.safetensors:NAME from "a", "b", "c"`},
		{"none of the rank", []string{v("a", 0), v("b", 6)}, "", "", "tensors of rank 2 or more (0) must be one"},
	} {
		bytes := 0
		for _, e := range c.entries {
			var from, to int
			if at := bytesOf(e); at != "" {
				fmt.Sscanf(at, "[%d,%d]", &from, &to)
			}
			bytes = max(bytes, to)
		}
		path := save(t, file(header(c.entries...), data[:bytes]))
		r, err := Open(path+c.suffix, 2, "features")
		if c.wantErr != "" {
			checkText(t, err, c.wantErr)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if r.Name() != path+":"+c.want {
			t.Errorf("%s: opened %s, want tensor %s", c.name, r.Name(), c.want)
		}
		r.Close()
	}
}

// bytesOf returns the text of an entry's offsets.
func bytesOf(entry string) string {
	const key = `"data_offsets":`
	if i := bytes.Index([]byte(entry), []byte(key)); i >= 0 {
		return entry[i+len(key):]
	}
	return ""
}

func TestOpen_NamesTheFile(t *testing.T) {
	_, err := Open(filepath.Join(t.TempDir(), "absent.safetensors:a"), 2)
	checkText(t, err, "absent.safetensors: open: no such file")
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v is not fs.ErrNotExist", err)
	}
	_, err = Open(t.TempDir(), 2)
	checkText(t, err, "path (a directory) must be a file")
	// A file whose name has the colon is the file.
	path := filepath.Join(t.TempDir(), "a.safetensors:b")
	if err := os.WriteFile(path, file(header(entry("x", "U8", "[2,3]", 0, 6)), sequence(6)), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Open(path, 2)
	if err != nil || r.Name() != path+":x" {
		t.Fatalf("%v, %v", r, err)
	}
	r.Close()
}

// TestReader_AnyOrder: goroutines read the rows of each of several tensors in any order; reading in order and mapping give the same.
func TestReader_AnyOrder(t *testing.T) {
	const rows, rowBytes = 500, 24
	data := sequence(5 + rows*rowBytes + 40)
	path := save(t, file(header(entry("pad", "U8", "[5,1]", 0, 5), entry("x", "F32", "[10,50,6]", 5, 5+rows*rowBytes),
		entry("y", "F64", "[5,1]", 5+rows*rowBytes, len(data))), data))
	for name, want := range map[string][]byte{"pad": data[:5], "x": data[5:][:rows*rowBytes], "y": data[5+rows*rowBytes:]} {
		r, err := Open(path+":"+name, 2)
		if err != nil {
			t.Fatal(err)
		}
		if r.Rows()*r.RowBytes() != len(want) {
			t.Fatalf("%s: %d rows of %d bytes", name, r.Rows(), r.RowBytes())
		}
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(uint64(g), 1))
				for range 200 {
					from := random.IntN(r.Rows() + 1)
					got := make([]byte, random.IntN(r.Rows()-from+1)*r.RowBytes())
					if err := r.ReadFrom(int64(from), got); err != nil || !bytes.Equal(got, want[from*r.RowBytes():][:len(got)]) {
						t.Errorf("%s: %d bytes of rows from %d: %v, or others", name, len(got), from, err)
					}
				}
			})
		}
		wg.Wait()
		for _, bad := range []struct{ row, n int }{{-1, 1}, {r.Rows(), 1}, {r.Rows() - 1, 2}, {1 << 62, 1}} {
			checkText(t, r.ReadFrom(int64(bad.row), make([]byte, bad.n*r.RowBytes())), "must be whole rows of")
		}
		if _, err := r.Read(make([]byte, r.RowBytes()+1)); r.RowBytes() > 1 {
			checkText(t, err, "must be whole rows of")
			if got, err := readRows(r, 7); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: in order: %v, or others", name, err)
			}
		}
		if n, err := r.Read(make([]byte, r.RowBytes())); r.RowBytes() > 1 && (n != 0 || err != io.EOF) {
			t.Errorf("%s: after the last row: %d rows, %v", name, n, err)
		}
		if mapped, err := r.Map(); r.Maps() && (err != nil || !bytes.Equal(mapped, want)) {
			t.Errorf("%s: mapped: %v, or others", name, err)
		}
		if err := errors.Join(r.Close(), r.Close()); err != nil {
			t.Error(err)
		}
		checkText(t, r.ReadFrom(0, make([]byte, r.RowBytes())), "reader (closed) must be open")
	}
}

func TestReader_FileChangesAfterOpen(t *testing.T) {
	head := header(entry("x", "U8", "[1000,8]", 0, 8000))
	good := file(head, sequence(8000))
	begin := len(good) - 8000
	for _, c := range []struct {
		name   string
		size   int
		row, n int
		want   string
	}{
		{"shrinks", begin + 5000, 600, 100, fmt.Sprintf("a.safetensors:x: reading at byte %d: unexpected EOF", begin+5000)},
		{"grows", len(good) + 1, 990, 10, fmt.Sprintf("a.safetensors:x: file must end at byte %d", len(good))},
		{"grows, but not read there", len(good) + 1, 980, 10, ""},
	} {
		path := save(t, good)
		r, err := Open(path, 2)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, int64(c.size)); err != nil {
			t.Fatal(err)
		}
		if err := r.ReadFrom(int64(c.row), make([]byte, c.n*8)); c.want != "" {
			checkText(t, err, c.want)
		} else if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		r.Close()
	}
}

// TestOpenJoined joins tensors of as many rows to rows of parts.
func TestOpenJoined(t *testing.T) {
	const rows = 3000
	entry := func(name, of, shape string, from, to int) string {
		return fmt.Sprintf(`"%s":{"dtype":"%s","shape":%s,"data_offsets":[%d,%d]}`, name, of, shape, from*rows, to*rows)
	}
	path := save(t, file("{"+strings.Join([]string{
		entry("values", "F8_E4M3", "[3000,512]", 0, 512), entry("scales", "F8_E8M0", "[3000,16]", 512, 528), entry("bias", "F32", "[3000]", 528, 532),
		entry("two", "F8_E4M3", "[1000,3,2]", 532, 534), entry("short", "F32", "[1500,2]", 534, 538), entry("a+b", "U8", "[3000,1]", 538, 539),
	}, ",")+"}", sequence(539*rows)))
	data := sequence(539 * rows)
	part := func(row, from, to int) []byte { return data[from*rows+row*(to-from):][:to-from] }
	j, err := OpenJoined(path + ":values+scales+bias+two")
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if of := j.DType().String(); of != "float8_e4m3fn*512,float8_e8m0fnu*16,float32,float8_e4m3fn*2" || j.Rows() != rows || j.RowBytes() != 534 {
		t.Errorf("%s, %d rows of %d bytes", of, j.Rows(), j.RowBytes())
	}
	got := make([]byte, rows*534)
	if n, err := j.Read(got[:10*534]); n != 10 || err != nil {
		t.Fatalf("first rows: %d, %v", n, err)
	}
	if n, err := j.Read(got[10*534:]); n != rows-10 || err != nil {
		t.Fatalf("other rows: %d, %v", n, err)
	}
	if n, err := j.Read(got); n != 0 || err != io.EOF {
		t.Errorf("behind the last row: %d, %v", n, err)
	}
	for row := range rows {
		want := slices.Concat(part(row, 0, 512), part(row, 512, 528), part(row, 528, 532), part(row, 532, 534))
		if !bytes.Equal(got[row*534:][:534], want) {
			t.Fatalf("row %d: %x, want %x", row, got[row*534:][:534], want)
		}
	}
	if err := j.ReadFrom(2999, make([]byte, 2*534)); err == nil {
		t.Error("rows behind the last one were read")
	}
	for name, want := range map[string]string{
		":values+nothing": `tensor ("nothing") must be one of`, ":values+short": `rows (1500) of tensor "short" must be the 3000 of "values"`,
	} {
		_, err := OpenJoined(path + name)
		checkText(t, err, want)
	}
	for _, name := range []string{":values", ":a+b", ""} {
		if j, err := OpenJoined(path + name); j != nil || err != nil {
			t.Errorf("%s is joined: %v, %v", name, j, err)
		}
	}
}
