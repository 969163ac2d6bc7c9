package npy

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/realdata"
)

var everyDType = []dtype.Type{
	dtype.Float16, dtype.Float32, dtype.Float64, dtype.Int8, dtype.Int16, dtype.Int32, dtype.Int64, dtype.Uint8, dtype.Uint16, dtype.Uint32, dtype.Uint64, dtype.Bool,
}

func TestReader_EveryDTypeAndByteOrder(t *testing.T) {
	for _, d := range everyDType {
		for _, order := range []string{"<", ">", "=", "|", ""} {
			t.Run(d.String()+order, func(t *testing.T) {
				want := sequence(2 * 3 * d.Size())
				stored := bytes.Clone(want)
				if order == ">" {
					for i := 0; i < len(stored); i += d.Size() {
						slices.Reverse(stored[i : i+d.Size()])
					}
				}
				b := file(1, dict("'"+order+descrOf(d)[1:]+"'", "False", "(2, 3)"), stored)
				r, err := openBytes(b, choice{})
				if err != nil {
					t.Fatal(err)
				}
				if r.DType() != d || r.Rows() != 2 || r.RowBytes() != 3*d.Size() || !slices.Equal(r.Shape(), []int{2, 3}) {
					t.Errorf("got %v %v, %d rows of %d bytes", r.DType(), r.Shape(), r.Rows(), r.RowBytes())
				}
				got, err := readRows(r, 1)
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("data = %x, %v, want %x", got, err, want)
				}
			})
		}
	}
}

// TestReader_TypesOfMLDtypes opens what ml_dtypes saves: float8_e4m3fn and float8_e8m0fnu as void bytes, float8_e5m2 as f1, bfloat16 as two void bytes.
func TestReader_TypesOfMLDtypes(t *testing.T) {
	for descr, want := range map[string]dtype.Type{"<V1": dtype.Uint8, "|V1": dtype.Uint8, "<f1": dtype.Float8E5M2, "<V2": dtype.BFloat16, "|V2": dtype.BFloat16, "bfloat16": dtype.BFloat16} {
		columns := 3 / want.Size()
		r, err := openBytes(file(1, dict("'"+descr+"'", "False", fmt.Sprintf("(%d, %d)", 6/want.Size()/columns, columns)), sequence(6)), choice{})
		if err != nil {
			t.Errorf("%s: %v", descr, err)
			continue
		}
		got, err := readRows(r, 1)
		if err != nil || r.DType() != want || r.RowBytes() != columns*want.Size() || !bytes.Equal(got, sequence(6)) {
			t.Errorf("%s: %v, rows of %d bytes, %x, %v", descr, r.DType(), r.RowBytes(), got, err)
		}
	}
}

func TestReader_KeepsNaNPayloads(t *testing.T) {
	const payload = 0x7ff4_dead_beef_cafe // signalling, so arithmetic would change it
	b := file(1, dict("'>f8'", "False", "(1,)"), binary.BigEndian.AppendUint64(nil, payload))
	got, err := openAll(b, choice{})
	if err != nil || binary.LittleEndian.Uint64(got) != payload {
		t.Errorf("data = %x, %v, want %x", got, err, uint64(payload))
	}
}

func TestReader_AcceptsHeaderSyntax(t *testing.T) {
	data := sequence(24)
	long := dict("'<f4'", "False", "(2, 3)") + string(bytes.Repeat([]byte(" "), 60000))
	for _, c := range []struct {
		name    string
		version byte
		text    string
	}{
		{"version 2", 2, dict("'<f4'", "False", "(2, 3)")},
		{"version 3", 3, dict("'<f4'", "False", "(2, 3)")},
		{"order of keys", 1, "{'shape': (2, 3), 'descr': '<f4', 'fortran_order': False}"},
		{"double quotes", 1, `{"shape": (2, 3), "descr": "<f4", "fortran_order": False}`},
		{"no spaces", 1, "{'shape':(2,3),'descr':'<f4','fortran_order':False}"},
		{"many spaces", 1, "\n{ 'shape'\t: ( 2 , 3 , ) , 'descr' : '<f4' ,\n 'fortran_order' : False , } \r\n"},
		{"long padding", 1, long},
		{"list as shape", 1, dict("'<f4'", "False", "[2, 3]")},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := openAll(file(c.version, c.text, data), choice{minRank: 2})
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("data = %x, %v", got, err)
			}
		})
	}
}

func TestOpen_RejectsHeaders(t *testing.T) {
	shape := func(s string) string { return dict("'<f4'", "False", s) }
	descr := func(s string) string { return dict(s, "False", "(2, 3)") }
	const notDict = "must be a dict of descr, fortran_order and shape"
	const supported = "must be one of float16, bfloat16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool"
	for _, c := range []struct {
		name, text string
		want       string
	}{
		{"empty", "", notDict},
		{"list", "[]", notDict},
		{"no keys", "{}", notDict},
		{"missing key", "{'descr': '<f4', 'shape': (2, 3)}", notDict},
		{"unknown key", "{'descr': '<f4', 'order': 1}", notDict},
		{"duplicate key", "{'descr': '<f4', 'descr': '<f4'}", notDict},
		{"no colon", "{'descr' '<f4'}", notDict},
		{"no comma", "{'descr': '<f4' 'shape': (2, 3)}", notDict},
		{"open dict", "{'descr': '<f4', ", notDict},
		{"open string", "{'descr': '<f4", notDict},
		{"escape", `{'descr': '\x3cf4'}`, notDict},
		{"text after", shape("(2, 3)") + "x", notDict},
		{"NUL after", shape("(2, 3)") + "\x00", notDict},
		{"bool as number", dict("'<f4'", "0", "(2, 3)"), notDict},
		{"bool with tail", dict("'<f4'", "Falsey", "(2, 3)"), notDict},
		{"lone comma", shape("(,)"), "rank (0) of shape () must be at least 1"},
		{"float axis", shape("(2.0, 3)"), notDict},
		{"python 2 long", shape("(2L, 3L)"), notDict},
		{"octal axis", shape("(02, 3)"), notDict},
		{"open shape", "{'shape': (2, 3", notDict},
		{"negative axis", shape("(2, -3)"), "npy: mem: shape (2, -3) must have axes of at least 1"},
		{"zero rows", shape("(0, 3)"), "shape (0, 3) must have axes of at least 1"},
		{"zero axis", shape("(2, 0)"), "shape (2, 0) must"},
		{"large axis", shape("(99999999999999999999,)"), notDict},
		{"overflow", shape("(4294967296, 4294967296)"), "shape (4294967296, 4294967296) of float32 must need at most"},
		{"overflow by element size", shape("(4611686018427387904,)"), "must need at most"},
		{"large", shape("(1000000000000, 3)"), "data bytes (24) must be 12000000000000"},
		{"rank", shape("(" + string(bytes.Repeat([]byte("1,"), 65)) + ")"), "must be at most 64"},
		{"scalar", shape("()"), "rank (0) of shape () must be at least 1"},
		{"object", descr("'|O'"), `dtype ("|O") ` + supported},
		{"bytes", descr("'|S5'"), `("|S5") ` + supported},
		{"string", descr("'<U5'"), `("<U5") ` + supported},
		{"complex64", descr("'<c8'"), `("<c8") ` + supported},
		{"complex128", descr("'<c16'"), `("<c16") ` + supported},
		{"longdouble", descr("'<f16'"), `("<f16") ` + supported},
		{"datetime", descr("'<M8[ns]'"), `("<M8[ns]") ` + supported},
		{"void", descr("'|V7'"), `("|V7") ` + supported},
		{"empty descr", descr("''"), `("") ` + supported},
		{"order only", descr("'<'"), `("<") ` + supported},
		{"structured, nested", descr("[('a', [('b', '<f4')]), ('c', '<i4')]"), `structured dtype ([['a', [['b', '<f4']]], ['c', '<i4']]): field 0 ("a") must not be structured itself`},
		{"structured, padded", descr("[('a', '|i1'), ('', '|V3'), ('c', '<i4')]"), `field 1 ("|V3") must not be padding: fields follow each other without gaps`},
		{"structured, big-endian", descr("[('a', '|i1'), ('b', '>i4')]"), `field 1 ("b", ">i4") must be little-endian`},
		{"structured, of objects", descr("[('a', '|i1'), ('b', '|O')]"), `field 1 ("b"): dtype ("|O") ` + supported},
		{"structured, with a title", descr("[(('t', 'a'), '|i1'), ('b', '<i4')]"), "field 0 must be a name, a type and perhaps a shape"},
		{"structured, without elements", descr("[('a', '|i1', (2, 0)), ('b', '<i4')]"), `field 0 ("a"): shape (2, 0) must have axes of at least 1`},
		{"structured, no shape", descr("[('a', '|i1', 'x'), ('b', '<i4')]"), `field 0 ("a"): shape must be a tuple of numbers`},
		{"structured, too long", descr("[('a', '|i1', (2000, 2000)), ('b', '<i4')]"), "elements (4000000) of part 0 must be 1 to 1048576"},
		{"structured, of no fields", descr("[]"), `dtype ("[]") ` + supported},
		{"structured, Fortran order", dict("[('a', '|i1'), ('b', '<i4')]", "True", "(2, 3)"), "array of a structured dtype with shape (2, 3) must be in C order"},
		{"unprintable", descr("[('\x1b[2J', '<f4')]"), notDict},
		{"long", descr("'" + string(bytes.Repeat([]byte("x"), 1000)) + "'"), `xxx...") must`},
		{"structured, open", descr("[('a', '<f4'"), notDict},
		{"descr of no type", descr("None"), notDict},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := openBytes(file(1, c.text, sequence(24)), choice{})
			checkText(t, err, c.want)
		})
	}
}

func TestOpen_RejectsFiles(t *testing.T) {
	good := written(t, dtype.Float32, []int{2, 3}, sequence(24))
	patched := func(i int, v byte) []byte {
		b := bytes.Clone(good)
		b[i] = v
		return b
	}
	for _, c := range []struct {
		name string
		b    []byte
		want string
	}{
		{"empty", nil, "file (0 bytes) must not be empty"},
		{"text", []byte("hello world"), `first bytes ("hello ") must be "\x93NUMPY" of an .npy file or "PK" of an .npz archive`},
		{"version 4", patched(6, 4), "version (4.0) must be 1.0, 2.0 or 3.0"},
		{"version 0", patched(6, 0), "version (0.0) must be"},
		{"minor version", patched(7, 1), "version (1.1) must be"},
		{"header length", patched(9, 0xff), "header bytes (152) must be 65408: truncated"},
		{"absurd header length", append([]byte(magic+"\x02\x00\xff\xff\xff\xff"), good...), "header length (4294967295) must be at most 65536 bytes"},
		{"truncated header", good[:100], "header bytes (100) must be 128: truncated"},
		{"truncated data", good[:len(good)-5], "data bytes (19) must be 24 for shape (2, 3) of float32: truncated"},
		{"trailing bytes", append(bytes.Clone(good), 1, 2, 3), "trailing bytes (3) must be 0: shape (2, 3) of float32 needs 24 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := save(t, "a.npy", c.b)
			_, err := Open(path, 2)
			checkText(t, err, "npy: "+path+": ")
			checkText(t, err, c.want)
		})
	}
}

func TestOpen_RejectsPaths(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(dir, 1)
	checkText(t, err, "path (a directory) must be a file")
	for _, name := range []string{"no.npy", "no.npz", "no.npz:x"} {
		_, err := Open(filepath.Join(dir, name), 1)
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, want fs.ErrNotExist", name, err)
		}
	}
	path := save(t, "really.npz", written(t, dtype.Int8, []int{1}, []byte{1}))
	_, err = Open(path+":x", 1)
	checkText(t, err, `array ("x") must be asked of an .npz archive`)
	_, err = Open(path, 2)
	checkText(t, err, "rank (1) of shape (1,) must be at least 2")
}

func TestOpen_FileNameWithColon(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f.npz:x")
	if err := os.WriteFile(path, written(t, dtype.Int8, []int{2}, []byte{1, 2}), 0o600); err != nil {
		t.Skipf("no colons in names here: %v", err)
	}
	r, err := Open(path, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if r.Name() != path {
		t.Errorf("Name() = %q, want %q", r.Name(), path)
	}
}

func TestReader_Read(t *testing.T) {
	data := sequence(7 * 12)
	r, err := openBytes(written(t, dtype.Float32, []int{7, 3}, data), choice{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 13)); err == nil {
		t.Error("Read(13 bytes) of 12-byte rows succeeded")
	}
	if n, err := r.Read(nil); n != 0 || err != nil {
		t.Errorf("Read(nil) = %d, %v", n, err)
	}
	buf := make([]byte, 60)
	n, err := r.Read(buf)
	if n != 5 || err != nil || !bytes.Equal(buf, data[:60]) {
		t.Errorf("first Read = %d, %v", n, err)
	}
	n, err = r.Read(buf)
	if n != 2 || err != nil || !bytes.Equal(buf[:24], data[60:]) {
		t.Errorf("second Read = %d, %v", n, err)
	}
	for range 2 {
		if n, err := r.Read(buf); n != 0 || err != io.EOF {
			t.Errorf("Read at the end = %d, %v", n, err)
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := r.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	_, err = r.Read(buf)
	checkText(t, err, "reader (closed) must be open")
}

func TestReader_RankDefinesRows(t *testing.T) {
	for _, c := range []struct {
		shape          []int
		rows, rowBytes int
	}{{[]int{6}, 6, 2}, {[]int{6, 1}, 6, 2}, {[]int{1, 6}, 1, 12}, {[]int{2, 3, 5}, 6, 10}, {[]int{2, 1, 3, 1}, 6, 2}} {
		n := c.rows * c.rowBytes
		r, err := openBytes(written(t, dtype.Int16, c.shape, make([]byte, n)), choice{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Rows() != c.rows || r.RowBytes() != c.rowBytes {
			t.Errorf("shape %v: %d rows of %d bytes, want %d of %d", c.shape, r.Rows(), r.RowBytes(), c.rows, c.rowBytes)
		}
	}
}

// A file may change between Open and Read.
func TestReader_FileChangesAfterOpen(t *testing.T) {
	good := written(t, dtype.Uint8, []int{1000, 8}, sequence(8000))
	for _, c := range []struct {
		name string
		size int
		want string
	}{{"shrinks", len(good) - 3000, "data bytes (5000) must be 8000"}, {"grows", len(good) + 1, "trailing bytes (1) must be 0"}} {
		t.Run(c.name, func(t *testing.T) {
			path := save(t, "a.npy", good)
			r, err := Open(path, 2)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if err := os.Truncate(path, int64(c.size)); err != nil {
				t.Fatal(err)
			}
			got, err := readRows(r, 10)
			if len(got) >= 8000 {
				t.Errorf("%d bytes, error %v", len(got), err)
			}
			checkText(t, err, c.want)
			if _, again := r.Read(make([]byte, 8)); again != err {
				t.Errorf("error is not sticky: %v, then %v", err, again)
			}
		})
	}
}

// element returns the element at an index of a Fortran-ordered array.
func element(data []byte, shape, index []int, size int) []byte {
	offset, stride := 0, size
	for k, n := range shape {
		offset += index[k] * stride
		stride *= n
	}
	return data[offset : offset+size]
}

func TestReader_FortranOrder(t *testing.T) {
	for _, shape := range [][]int{{6}, {2, 3}, {5, 1}, {1, 5}, {2, 3, 4}, {3, 1, 2, 5}} {
		for _, d := range []dtype.Type{dtype.Int8, dtype.Float16, dtype.Float32, dtype.Float64} {
			for _, big := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v/%v/big=%t", shape, d, big), func(t *testing.T) {
					total, _ := shapeBytes(d, shape)
					data := sequence(total)
					var want []byte
					index := make([]int, len(shape))
					for range total / d.Size() {
						e := bytes.Clone(element(data, shape, index, d.Size()))
						if big {
							slices.Reverse(e)
						}
						want = append(want, e...)
						for k := len(shape) - 1; k >= 0; k-- {
							if index[k]++; index[k] < shape[k] {
								break
							}
							index[k] = 0
						}
					}
					order := "<"
					if big {
						order = ">"
					}
					b := file(1, dict("'"+order+descrOf(d)[1:]+"'", "True", shapeString(shape)), data)
					z := archiveOf(t, member{"a.npy", zip.Deflate, b})
					for name, b := range map[string][]byte{"npy": b, "npz": z} {
						r, err := openBytes(b, choice{})
						if err != nil {
							t.Fatal(err)
						}
						got, err := readRows(r, 2)
						if err != nil || !bytes.Equal(got, want) {
							t.Errorf("%s: %x, %v, want %x", name, got, err, want)
						}
					}
				})
			}
		}
	}
}

// TestReader_FortranOrderInBlocks: read block by block, an array has the rows that it has when it is read at once, of any rank and in an
// archive, and faults are found.
func TestReader_FortranOrderInBlocks(t *testing.T) {
	for _, shape := range [][]int{{5000, 3}, {3001, 2, 3}, {2500, 1}} {
		total, _ := shapeBytes(dtype.Float32, shape)
		data := make([]byte, total)
		for i := range data {
			data[i] = byte(i * i >> 3)
		}
		b := file(1, dict("'>f4'", "True", shapeString(shape)), data)
		stored := archiveOf(t, member{"pad.npy", zip.Store, b[:100]}, member{"a.npy", zip.Store, b})
		read := func(b []byte, inBlocks bool) ([]byte, error) {
			t.Helper()
			r, err := openBytes(b, choice{prefer: []string{"a"}})
			if err != nil {
				return nil, err
			}
			defer r.Close()
			if inBlocks {
				if err := r.loadFortran(1); err != nil {
					return nil, err
				}
				if r.block == 0 || len(r.array.Bytes()) > total/4 {
					t.Fatalf("%v: blocks of %d, %d of %d bytes in memory", shape, r.block, len(r.array.Bytes()), total)
				}
			}
			return readRows(r, 7)
		}
		want, err := read(b, false)
		if err != nil || len(want) != total {
			t.Fatalf("%d bytes, %v", len(want), err)
		}
		for name, b := range map[string][]byte{"npy": b, "npz": stored} {
			if got, err := read(b, true); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%v in %s: %d bytes differ, %v", shape, name, len(got), err)
			}
		}
		damaged := bytes.Clone(stored)
		damaged[bytes.LastIndex(stored, data)+total/2] ^= 1
		if _, err := read(damaged, true); !errors.Is(err, zip.ErrChecksum) {
			t.Errorf("damaged: %v", err)
		}
		// Of a file that shrinks or grows after it was opened.
		for _, change := range []int{-1, -total / 2, 1} {
			r, err := openBytes(b, choice{})
			if err != nil {
				t.Fatal(err)
			}
			if r.at = bytes.NewReader(append(bytes.Clone(b), 0)[:len(b)+change]); r.loadFortran(1) != nil {
				t.Fatal(err)
			}
			if _, err := readRows(r, 7); err == nil || !strings.Contains(err.Error(), fmt.Sprint(total)) {
				t.Errorf("%d bytes more: %v", change, err)
			}
			r.Close()
		}
	}
}

// The values of numpy.asfortranarray([[1, 2, 3], [4, 5, 6]]), by hand.
func TestReader_FortranOrderByHand(t *testing.T) {
	b := file(1, dict("'|u1'", "True", "(2, 3)"), []byte{1, 4, 2, 5, 3, 6})
	got, err := openAll(b, choice{})
	if err != nil || !bytes.Equal(got, []byte{1, 2, 3, 4, 5, 6}) {
		t.Errorf("data = %v, %v", got, err)
	}
}

func TestReader_ReadInts(t *testing.T) {
	le := binary.LittleEndian
	for _, c := range []struct {
		d    dtype.Type
		data []byte
		want []int64
	}{
		{dtype.Int8, []byte{0x80, 0x7f}, []int64{-128, 127}},
		{dtype.Int16, le.AppendUint16(nil, 0x8000), []int64{math.MinInt16}},
		{dtype.Int32, le.AppendUint32(nil, 0xffffffff), []int64{-1}},
		{dtype.Int64, le.AppendUint64(nil, 1<<63), []int64{math.MinInt64}},
		{dtype.Uint8, []byte{0x80, 0xff}, []int64{128, 255}},
		{dtype.Uint16, le.AppendUint16(nil, 0xffff), []int64{65535}},
		{dtype.Uint32, le.AppendUint32(nil, 0xffffffff), []int64{math.MaxUint32}},
		{dtype.Uint64, le.AppendUint64(nil, math.MaxInt64), []int64{math.MaxInt64}},
	} {
		b := written(t, c.d, []int{len(c.want)}, c.data)
		for _, b := range [][]byte{b, archiveOf(t, member{"a.npy", zip.Deflate, b})} {
			r, err := openBytes(b, choice{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := r.ReadInts()
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%v: %v, %v, want %v", c.d, got, err, c.want)
			}
		}
	}
}

func TestReader_ReadIntsReadsTheRest(t *testing.T) {
	const n = 100_000 // several buffers
	var data []byte
	for i := range n {
		data = binary.LittleEndian.AppendUint32(data, uint32(i))
	}
	r, err := openBytes(written(t, dtype.Int32, []int{n}, data), choice{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(make([]byte, 40)); err != nil {
		t.Fatal(err)
	}
	got, err := r.ReadInts()
	if err != nil || len(got) != n-10 || got[0] != 10 || got[n-11] != n-1 {
		t.Fatalf("%d ints, %v", len(got), err)
	}
	if got, err := r.ReadInts(); len(got) != 0 || err != nil {
		t.Errorf("at the end: %v, %v", got, err)
	}
}

func TestReader_ReadIntsRejects(t *testing.T) {
	large := make([]byte, 50_000*8)
	binary.LittleEndian.PutUint64(large[40_000*8:], math.MaxUint64)
	for _, c := range []struct {
		d     dtype.Type
		shape []int
		data  []byte
		want  string
	}{
		{dtype.Uint64, []int{50_000}, large, "value (18446744073709551615) at index 40000 must fit in int64"},
		{dtype.Float32, []int{1}, make([]byte, 4), "dtype (float32) must be an integer"},
		{dtype.Bool, []int{1}, make([]byte, 1), "dtype (bool) must be an integer"},
		{dtype.Int32, []int{1, 2}, make([]byte, 8), "rank (2) of shape (1, 2) must be 1"},
	} {
		r, err := openBytes(written(t, c.d, c.shape, c.data), choice{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.ReadInts()
		checkText(t, err, "npy: mem: "+c.want)
	}
}

// Every prefix of a file is truncated somewhere, whatever it lacks.
func TestOpen_EveryPrefixFails(t *testing.T) {
	array := written(t, dtype.Float32, []int{3, 4}, sequence(48))
	for name, b := range map[string][]byte{
		"npy":       array,
		"fortran":   file(2, dict("'<f4'", "True", "(3, 4)"), sequence(48)),
		"stored":    archiveOf(t, member{"a.npy", zip.Store, array}, member{"b.npy", zip.Store, array[:0]}),
		"deflated":  archiveOf(t, member{"a.npy", zip.Deflate, array}),
		"two files": archiveOf(t, member{"x", zip.Deflate, array}, member{"a.npy", zip.Deflate, array}),
	} {
		t.Run(name, func(t *testing.T) {
			c := choice{prefer: []string{"a"}}
			if _, err := openAll(b, c); err != nil {
				t.Fatalf("whole file: %v", err)
			}
			for n := range b {
				if _, err := openAll(b[:n], c); err == nil {
					t.Errorf("%d of %d bytes: no error", n, len(b))
				}
			}
		})
	}
}

func TestReader_RealFiles(t *testing.T) {
	for _, c := range []struct {
		file, array string
		d           dtype.Type
		shape       []int
	}{
		{"cora.npz", "features", dtype.Float32, []int{2708, 1433}},
		{"cora.npz", "indptr", dtype.Int64, []int{2709}},
		{"cora.npz", "indices", dtype.Int64, []int{10556}},
		{"pubmed_tx.npz", "features", dtype.Float32, []int{1000, 500}},
		{"pubmed_graph.npz", "indptr", dtype.Int64, []int{19718}},
		{"reddit.npz", "features", dtype.Float32, []int{10984, 64}},
		{"ncf_user.npy", "", dtype.Float32, []int{6040, 32}},
		{"sz_testfloat.npy", "", dtype.Float32, []int{8, 8, 128}},
		{"sz_testdouble.npy", "", dtype.Float64, []int{8, 8, 8, 128}},
	} {
		t.Run(c.file+":"+c.array, func(t *testing.T) {
			path := realdata.Table(t, c.file)
			name := path
			if c.array != "" {
				name += ":" + c.array
			}
			r, err := Open(name, 1)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if r.Name() != name || r.DType() != c.d || !slices.Equal(r.Shape(), c.shape) {
				t.Fatalf("%s is %v %v, want %v %v", r.Name(), r.DType(), r.Shape(), c.d, c.shape)
			}
			if c.d == dtype.Int64 {
				ints, err := r.ReadInts()
				if err != nil || len(ints) != c.shape[0] {
					t.Errorf("%d ints, %v", len(ints), err)
				}
				return
			}
			data, err := readRows(r, 100)
			if want, _ := shapeBytes(c.d, c.shape); err != nil || len(data) != want {
				t.Fatalf("%d bytes, %v, want %d", len(data), err, want)
			}
			if c.array != "" {
				return
			}
			// numpy wrote the file, so this pins that Write writes what numpy does.
			whole, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(written(t, c.d, c.shape, data), whole) {
				t.Errorf("Write differs from the file (%v)", err)
			}
		})
	}
	r, err := Open(realdata.Table(t, "cora.npz"), 2)
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
}

func BenchmarkRead(b *testing.B) {
	const rows, rowBytes = 1 << 15, 1 << 10
	data := sequence(rows * rowBytes)
	c := written(b, dtype.Float32, []int{rows, rowBytes / 4}, data)
	for _, k := range []struct {
		name string
		file []byte
	}{
		{"order=C", c},
		{"order=C/big", file(1, dict("'>f4'", "False", "(32768, 256)"), data)},
		{"order=Fortran", file(1, dict("'<f4'", "True", "(32768, 256)"), data)},
		{"order=C/npz=stored", archiveOf(b, member{"a.npy", zip.Store, c})},
		{"order=C/npz=deflated", archiveOf(b, member{"a.npy", zip.Deflate, c})},
	} {
		path := save(b, "a", k.file)
		b.Run(k.name, func(b *testing.B) {
			b.SetBytes(rows * rowBytes)
			buf := make([]byte, 1<<20)
			for b.Loop() {
				r, err := Open(path, 2)
				if err != nil {
					b.Fatal(err)
				}
				for {
					if _, err = r.Read(buf); err != nil {
						break
					}
				}
				if err != io.EOF {
					b.Fatal(err)
				}
				r.Close()
			}
		})
	}
}

// TestOpen_Fields reads rows of a structured type as rows of parts, and of fields of one type as rows of that type.
func TestOpen_Fields(t *testing.T) {
	for _, c := range []struct {
		descr, shape, want string
		rows, rowBytes     int
	}{
		{"[('values', '|i1', (256,)), ('scale', '<f4')]", "(3,)", "int8*256,float32", 3, 260},
		{"[('v', '|V1', (2, 4)), ('s', '<f1', 2), ('t)', '|u1')]", "(2, 3)", "uint8*8,float8_e5m2*2,uint8", 6, 11},
		{"[('x', '<f4'), ('y', '<f4', (3,))]", "(5,)", "float32", 5, 16},
		{"[('id', '<i8'), ('x', '=f2', (3,)), ('on', '?')]", "(1,)", "int64,float16*3,bool", 1, 15},
	} {
		data := sequence(c.rows * c.rowBytes)
		r, err := openBytes(file(1, dict(c.descr, "False", c.shape), data), choice{minRank: 2})
		if err != nil {
			t.Errorf("%s: %v", c.descr, err)
			continue
		}
		got := make([]byte, len(data))
		n, err := r.Read(got)
		if r.DType().String() != c.want || r.RowBytes() != c.rowBytes || n != c.rows || err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %v, %d rows of %d bytes, %v, %x", c.descr, r.DType(), n, r.RowBytes(), err, got)
		}
	}
}
