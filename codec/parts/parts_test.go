package parts

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/codectest"
	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
	"github.com/tensorcache/tensorcache/dtype"
)

// rowTypes are rows that differ in what decoders look at: lengths and places of elements, numbers of regions, fields of two bytes, rests that
// end within a byte.
var rowTypes = []string{
	"float8_e4m3fn*256,float8_e8m0fnu*8", "float8_e5m2*31,float8_e8m0fnu", "int8*256,float32", "int8*3,float32*2,int64,bool*5", "float32,int64*3",
	"float8_e8m0fnu*16,float8_e4m3fn*512", "float16*33,bfloat16*30,uint8", "float64*20,int16*7,float8_e4m3fn*600", "uint8,float32*1000", "float8_e4m3fn*7900,float32*62",
}

// rowsOf returns rows like those that are quantised: normal numbers, scales that hardly vary, small integers. Every seventh row is noise.
func rowsOf(r *rand.Rand, of dtype.Type, rows int) (data []byte) {
	for i := range rows {
		begin := len(data)
		for _, p := range of.Parts() {
			for range p.Count {
				x := r.NormFloat64()
				switch p.Type {
				case dtype.Float8E4M3FN, dtype.Float8E5M2, dtype.Int8:
					data = append(data, byte(int8(20*x)))
				case dtype.Float8E8M0FNU:
					data = append(data, byte(120+x))
				case dtype.Float16, dtype.BFloat16:
					data = binary.LittleEndian.AppendUint16(data, uint16(math.Float32bits(float32(x))>>16))
				case dtype.Float32:
					data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(x)))
				case dtype.Float64:
					data = binary.LittleEndian.AppendUint64(data, math.Float64bits(x))
				default: // integers from 0 to 99
					data = append(append(data, byte(r.IntN(100))), make([]byte, p.Type.Size()-1)...)
				}
			}
		}
		if i%7 == 6 {
			for k := range data[begin:] {
				data[begin+k] = byte(r.Uint32())
			}
		}
	}
	return data
}

func train(t testing.TB, name string, rows int) (*Codec, []byte) {
	t.Helper()
	of, err := dtype.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	data := rowsOf(rand.New(rand.NewPCG(uint64(of.Size()), 3)), of, rows)
	c, err := Train(data, of.Parts())
	if err != nil {
		t.Fatal(err)
	}
	return c, data
}

func TestCodec_RowsComeBack(t *testing.T) {
	for _, name := range rowTypes {
		c, data := train(t, name, 200)
		size := c.RowBytes()
		raw, stored := 0, 0
		dst, row := bytes.Repeat([]byte{0xa5}, c.EncodeBound()), make([]byte, size)
		for at := 0; at < len(data); at += size {
			n, err := c.Encode(dst, data[at:][:size])
			if errors.Is(err, codec.ErrIncompressible) {
				raw, stored = raw+1, stored+size
				continue
			}
			if err != nil || n >= size {
				t.Fatalf("%s: encoded to %d bytes, %v", name, n, err)
			}
			stored += n
			for i := range row {
				row[i] = 0x5a
			}
			if m, err := c.Decode(row, dst); err != nil || m != n || !bytes.Equal(row, data[at:][:size]) {
				t.Fatalf("%s: row %d of %d stored bytes: decoded %d, %v", name, at/size, n, m, err)
			}
			if m, err := c.Stored(dst[:n]); err != nil || m != n {
				t.Fatalf("%s: Stored %d, %v, want %d", name, m, err, n)
			}
			if at == 0 {
				codectest.Cut(t, c, dst[:n])
				codectest.NoAllocations(t, c, data[:size])
			}
		}
		t.Logf("%s: saves %.1f %%, %d of 200 rows raw, %d bytes a field", name, 100*(1-float64(stored)/float64(len(data))), raw, c.head)
		if raw == 200 {
			t.Errorf("%s: no row shrinks", name)
		}
		codectest.Metadata(t, c, Unmarshal)
	}
}

// TestCodec_ModelBitByBit compares stored rows with the format's description, read bit by bit.
func TestCodec_ModelBitByBit(t *testing.T) {
	for _, name := range rowTypes[:8] {
		c, data := train(t, name, 21)
		dst := make([]byte, c.EncodeBound())
		for at := 0; at < len(data); at += c.RowBytes() {
			n, err := c.Encode(dst, data[at:][:c.RowBytes()])
			if err != nil {
				continue
			}
			if got := model(c, dst[:n]); !bytes.Equal(got, data[at:][:c.RowBytes()]) {
				t.Fatalf("%s: row %d: the model reads %x, want %x", name, at/c.RowBytes(), got, data[at:][:c.RowBytes()])
			}
		}
	}
}

// TestTrain_Bases: columns whose values differ by powers of two save more with bases; columns that do not differ have none.
func TestTrain_Bases(t *testing.T) {
	of := []dtype.Part{{Type: dtype.Float8E4M3FN, Count: 64}}
	for _, unequal := range []bool{false, true} {
		r := rand.New(rand.NewPCG(1, 5))
		var data []byte
		for range 400 {
			for j := range 64 {
				x := math.Abs(r.NormFloat64())
				if unequal {
					x = math.Ldexp(x, j%8-4)
				}
				e := min(15, max(0, math.Ilogb(x)+8))
				data = append(data, byte(e<<3|r.IntN(8)|r.IntN(2)<<7))
			}
		}
		c, err := Train(data, of)
		if err != nil {
			t.Fatal(err)
		}
		p := c.parts[0].Planes[0]
		if got := len(p.Bases) > 0; got != unequal {
			t.Errorf("unequal columns %v: bases %v", unequal, got)
		}
		dst, stored := make([]byte, c.EncodeBound()), 0
		for at := 0; at < len(data); at += 64 {
			n, err := c.Encode(dst, data[at:][:64])
			if err != nil {
				n = 64
			} else if got := model(c, dst[:n]); !bytes.Equal(got, data[at:][:64]) {
				t.Fatalf("row %d: the model reads %x", at/64, got)
			}
			stored += n
		}
		if saving := 100 * (1 - float64(stored)/float64(len(data))); saving < 14 {
			t.Errorf("unequal columns %v: saving %.1f %%, want 14", unequal, saving)
		}
	}
}

// model decodes a row by the words of docs/format/parts.md.
func model(c *Codec, src []byte) []byte {
	at := 0
	next := func(n int) (x int) {
		for b := range n {
			x |= int(src[at/8]) >> (at % 8) & 1 << b
			at++
		}
		return x
	}
	next(8 * c.head)
	planes := map[[2]int][]int{}
	passed := map[[2]int][]int{}
	for i, part := range c.parts {
		for k, p := range part.Planes {
			values, on := make([]int, part.Elements), []int(nil)
			if p.Kind == Coded {
				for e := range values {
					if digit := next(p.Digits[0]); digit < 1<<p.Digits[0]-1 {
						values[e] = int(p.Symbols[0][digit]) << (8 - p.SymbolBits)
					} else {
						on = append(on, e)
					}
				}
			}
			word := 0
			for e := range values {
				if p.Kind == Coded && p.SymbolBits == 4 && e|7 < len(values) {
					if e%8 == 0 {
						word = next(32)
					}
					// The rest is in byte e mod 4, of elements 4 to 7 after a rotation left by four bits.
					turned := uint32(word)
					if e%8 >= 4 {
						turned = turned<<4 | turned>>28
					}
					b := byte(turned >> (8 * (e % 4)))
					if part.Rotate == 1 && part.ElementBytes == 1 {
						b = b<<1 | b>>7
					}
					values[e] |= int(b & 15)
				} else {
					values[e] |= next(map[PlaneKind]int{Raw: 8, Coded: 8 - p.SymbolBits}[p.Kind])
				}
				if p.Kind == Constant {
					values[e] = int(p.Value)
				}
			}
			planes[[2]int{i, k}], passed[[2]int{i, k}] = values, on
		}
	}
	for i, part := range c.parts {
		for k, p := range part.Planes {
			values, on := planes[[2]int{i, k}], passed[[2]int{i, k}]
			for first := 0; p.Kind == Coded && first < part.Elements; first += 512 {
				var escapes []int
				for len(on) > 0 && on[0] < first+512 {
					if digit := next(p.Digits[1]); digit < 1<<p.Digits[1]-1 {
						values[on[0]] |= int(p.Symbols[1][digit]) << (8 - p.SymbolBits)
					} else {
						escapes = append(escapes, on[0])
					}
					on = on[1:]
				}
				for _, e := range escapes {
					values[e] |= next(p.SymbolBits) << (8 - p.SymbolBits)
				}
			}
			for e, base := range p.Bases {
				values[e] = (values[e] + int(base)) % 256
			}
		}
	}
	var row []byte
	for i, part := range c.parts {
		for e := range part.Elements {
			var x uint64
			for k := range part.Planes {
				x |= uint64(planes[[2]int{i, k}][e]) << (8 * k)
			}
			if part.Rotate == 1 {
				x = x>>1 | x&1<<(8*part.ElementBytes-1)
			}
			row = append(row, binary.LittleEndian.AppendUint64(nil, x)[:part.ElementBytes]...)
		}
	}
	return row
}

// goldenParts are those of docs/format/parts.md.
func goldenParts() []Part {
	values := Plane{Kind: Coded, SymbolBits: 4, Digits: [2]int{2, 1}, Symbols: [2][3]byte{{7, 6, 8}, {5}}}
	scale := Plane{Kind: Coded, SymbolBits: 8, Digits: [2]int{1, 1}, Symbols: [2][3]byte{{0x7f}, {0x80}}, Bases: []byte{0, 3}}
	return []Part{{1, 8, 1, []Plane{values}}, {1, 2, 0, []Plane{scale}}, {2, 1, 0, []Plane{{}, {Kind: Constant, Value: 0x3c}}}}
}

func TestCodec_Golden(t *testing.T) {
	row := []byte{0x3a, 0xbd, 0x31, 0x44, 0x38, 0x2f, 0x08, 0xbb, 0x7f, 0x80, 0x55, 0x3c}
	c, err := New(1, goldenParts())
	if err != nil {
		t.Fatal(err)
	}
	dst := make([]byte, c.EncodeBound())
	if n, err := c.Encode(dst, row); err != nil || fmt.Sprintf("%x", dst[:n]) != goldenStored {
		t.Errorf("stored as %x, %v, want %s", dst[:n], err, goldenStored)
	}
	codecs, rows := []codec.Codec{c}, [][]byte{row}
	for _, name := range rowTypes[:7] {
		c, data := train(t, name, 50)
		codecs, rows = append(codecs, c), append(rows, data[:c.RowBytes()])
	}
	codectest.Golden(t, Family.Unmarshal, codecs, rows)
}

// goldenStored is the golden row of docs/format/parts.md.
const goldenStored = "02903c7285310c5619fb00"

func TestNew_Errors(t *testing.T) {
	with := func(change func(p []Part)) func() (*Codec, error) {
		return func() (*Codec, error) {
			p := goldenParts()
			change(p)
			return New(1, p)
		}
	}
	of := func(name string) []dtype.Part {
		t, _ := dtype.Parse(name)
		return t.Parts()
	}
	codectest.Errors(t, map[string]func() (*Codec, error){
		"parts: field (3 bytes) must be 1 or 2":                                                              func() (*Codec, error) { return New(3, goldenParts()) },
		"parts: parts (0) must be 1 to 64":                                                                   func() (*Codec, error) { return New(1, nil) },
		"parts: element (3 bytes) of part 2 must be 1, 2, 4 or 8":                                            with(func(p []Part) { p[2].ElementBytes = 3 }),
		"parts: elements (0) of part 1 must be 1 to 8191":                                                    with(func(p []Part) { p[1].Elements = 0 }),
		"parts: rotation (2 bits) of part 0 must be 0 or 1":                                                  with(func(p []Part) { p[0].Rotate = 2 }),
		"parts: planes (1) of part 1 must be one for each byte of an element (2)":                            with(func(p []Part) { p[1].ElementBytes = 2 }),
		"parts: row (8193 bytes and more) must have at most 8191":                                            with(func(p []Part) { p[0].Elements = 8191 }),
		"parts: symbol (9 bits) must be 3 to 8 (plane 0 of part 0)":                                          with(func(p []Part) { p[0].Planes[0].SymbolBits = 9 }),
		"parts: symbol (8) must have 3 bits (plane 0 of part 0)":                                             with(func(p []Part) { p[0].Planes[0].SymbolBits = 3 }),
		"parts: symbol (7) must be named once (plane 0 of part 0)":                                           with(func(p []Part) { p[0].Planes[0].Symbols[1][0] = 7 }),
		"parts: digits (3 bits) of level 1 must have 1 or 2 (plane 0 of part 1)":                             with(func(p []Part) { p[1].Planes[0].Digits[1] = 3 }),
		"parts: bases (1) must be none or one for each of 2 elements (plane 0 of part 1)":                    with(func(p []Part) { p[1].Planes[0].Bases = []byte{1} }),
		"parts: symbol (4) of digit 1 of level 1 must be 0: the level has no such digit (plane 0 of part 0)": with(func(p []Part) { p[0].Planes[0].Symbols[1][1] = 4 }),
		"parts: kind (3) of plane 1 of part 2 must be 0 to 2":                                                with(func(p []Part) { p[2].Planes[1].Kind = 3 }),
		"parts: sample (0 rows) must have at least one row":                                                  func() (*Codec, error) { return Train(nil, of(rowTypes[0])) },
		"parts: sample (265 bytes) must be a multiple of the row (264 bytes)":                                func() (*Codec, error) { return Train(make([]byte, 265), of(rowTypes[0])) },
	})
	const list = "must be a list of the row's parts, such as float8_e4m3fn*256,float8_e8m0fnu*8"
	for _, c := range []struct {
		of       dtype.Type
		rowBytes int
		want     string
	}{{dtype.Float32, 264, list}, {mustParse(t, rowTypes[0]), 528, list}, {mustParse(t, "int8*8190,int16"), 8192, "row (8192 bytes) must have at most 8191"}} {
		if _, err := Family.Train(make([]byte, c.rowBytes), c.rowBytes, c.of); !errors.Is(err, codec.ErrDType) || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("%v in rows of %d bytes: %v, want %q", c.of, c.rowBytes, err, c.want)
		}
	}
}

func mustParse(t testing.TB, name string) dtype.Type {
	t.Helper()
	of, err := dtype.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return of
}

func TestUnmarshal_Hostile(t *testing.T) {
	c, err := New(1, goldenParts())
	if err != nil {
		t.Fatal(err)
	}
	seal := func(b []byte) []byte { return rowcodec.Seal(b[:len(b)-4]) }
	codectest.HostileMetadata(t, c, name, Unmarshal, seal, map[string]func([]byte){
		"metadata byte 7 (01) is not 0":                                                     func(b []byte) { b[7] = 1 },
		"metadata end before part 3 of 4":                                                   func(b []byte) { b[6] = 4 },
		"metadata has 10 bytes after its 2 parts":                                           func(b []byte) { b[6] = 2 },
		"plane 0 of part 2 has a value (5) but is not constant":                             func(b []byte) { b[len(b)-7] = 5 },
		"parts: field (0 bytes) must be 1 or 2":                                             func(b []byte) { b[5] = 0 },
		"parts: rotation (7 bits) of part 0 must be 0 or 1":                                 func(b []byte) { b[9] = 7 },
		"parts: symbol (0 bits) must be 3 to 8 (plane 0 of part 0)":                         func(b []byte) { b[15] = 0 },
		"digits (3 bits) of level 1 must have 1 or 2 (plane 0 of part 0)":                   func(b []byte) { b[16] = 0x32 },
		"metadata must have the digits of levels, and 0 or 1 for bases (plane 0 of part 0)": func(b []byte) { b[17] = 2 },
	})
}

// FuzzDecode feeds arbitrary metadata and stored bytes: never a panic, and what decodes encodes to no more.
func FuzzDecode(f *testing.F) {
	for _, name := range rowTypes[:7] {
		c, data := train(f, name, 20)
		b, err := c.MarshalBinary()
		if err != nil {
			f.Fatal(err)
		}
		dst := make([]byte, c.EncodeBound())
		n, err := c.Encode(dst, data[:c.RowBytes()])
		if err != nil {
			continue
		}
		f.Add(b[:len(b)-4], dst[:n])
		f.Add(b[:len(b)-4], bytes.Repeat([]byte{0xff}, n))
	}
	f.Fuzz(func(t *testing.T, body, src []byte) {
		if len(body) < metadataHeader || !strings.HasPrefix(string(body), frame.Magic) {
			return
		}
		c, err := parse(body)
		if err != nil {
			if !errors.Is(err, codec.ErrCorrupt) {
				t.Fatalf("%v, want ErrCorrupt", err)
			}
			return
		}
		row, _, ok := codectest.Decodes(t, c, src)
		if !ok {
			return
		}
		dst, again := make([]byte, c.EncodeBound()), make([]byte, c.RowBytes())
		n, err := c.Encode(dst, row)
		if errors.Is(err, codec.ErrIncompressible) {
			return // an encoder writes no escapes of symbols with codes
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Decode(again, dst[:n]); err != nil || !bytes.Equal(again, row) {
			t.Fatalf("decoded to %x, %v, want %x", again, err, row)
		}
	})
}
