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
	"github.com/tensorcache/tensorcache/codec/internal/huffman"
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
		t.Logf("%s: saves %.1f %%, %d of 200 rows raw, %d regions, %d bytes a field", name, 100*(1-float64(stored)/float64(len(data))), raw, c.regions, c.field)
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

// model decodes a row by the words of docs/format/parts.md.
func model(c *Codec, src []byte) []byte {
	bit := func(i int) int { return int(src[i/8]) >> (i % 8) & 1 }
	type symbol struct{ part, plane, element int }
	var numbered []symbol // -1: none
	planes := map[[2]int][]int{}
	rest := 8 * c.head
	for i, part := range c.parts {
		for k, p := range part.Planes {
			values := make([]int, part.Elements)
			for e := range values {
				bits := map[PlaneKind]int{Raw: 8, Coded: 8 - p.SymbolBits}[p.Kind]
				values[e] = int(p.Value)
				for b := range bits {
					values[e] |= bit(rest) << b
					rest++
				}
				if p.Kind == Coded {
					numbered = append(numbered, symbol{i, k, e})
				}
			}
			for len(numbered)%4 != 0 {
				numbered = append(numbered, symbol{part: -1})
			}
			planes[[2]int{i, k}] = values
		}
	}
	known := map[[2]int]map[string]int{}
	words := func(p Plane) map[string]int { // codes as text, first bit first
		codes, next := map[string]int{}, 0
		for length := 1; length <= 12; length++ {
			for s, n := range p.Lengths {
				if int(n) == length {
					codes[fmt.Sprintf("%0*b", length, next)] = s
					next++
				}
			}
			next <<= 1
		}
		return codes
	}
	at := (rest + 7) / 8
	for g := range c.regions {
		end := at
		for i := range c.field {
			end += int(src[g*c.field+i]) << (8 * i)
		}
		blocks := len(numbered) / 4
		first, last := g*blocks/c.regions, (g+1)*blocks/c.regions
		middle := (first + last + 1) / 2
		for _, down := range []bool{false, true} {
			from, to, pos := first, middle, 8*at
			if down {
				from, to, pos = middle, last, 8*end
			}
			next := func() int {
				if down {
					pos--
					return bit(pos)
				}
				pos++
				return bit(pos - 1)
			}
			for _, s := range numbered[4*from : 4*to] {
				if s.part < 0 {
					continue
				}
				p := c.parts[s.part].Planes[s.plane]
				if known[[2]int{s.part, s.plane}] == nil {
					known[[2]int{s.part, s.plane}] = words(p)
				}
				codes, text, value := known[[2]int{s.part, s.plane}], "", -1
				for value < 0 {
					text += fmt.Sprint(next())
					if v, ok := codes[text]; ok {
						value = v
					}
				}
				if value == huffman.Escape {
					value = 0
					for b := range p.SymbolBits {
						if down {
							value = value<<1 | next()
						} else {
							value |= next() << b
						}
					}
				}
				planes[[2]int{s.part, s.plane}][s.element] |= value << (8 - p.SymbolBits)
			}
		}
		at = end
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
	values := Plane{Kind: Coded, SymbolBits: 5}
	values.Lengths[0xe], values.Lengths[0xf], values.Lengths[huffman.Escape] = 1, 2, 2
	scale := Plane{Kind: Coded, SymbolBits: 8}
	scale.Lengths[0x7f], scale.Lengths[huffman.Escape] = 1, 1
	return []Part{{1, 8, 1, []Plane{values}}, {1, 2, 0, []Plane{scale}}, {2, 1, 0, []Plane{{}, {Kind: Constant, Value: 0x3c}}}}
}

func TestCodec_Golden(t *testing.T) {
	row := []byte{0x3a, 0xbd, 0x39, 0x3c, 0x38, 0x3f, 0x08, 0xbb, 0x7f, 0x80, 0x55, 0x3c}
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
const goldenStored = "049c00e35592160060"

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
		"parts: field (3 bytes) must be 1 or 2":                                   func() (*Codec, error) { return New(3, goldenParts()) },
		"parts: parts (0) must be 1 to 64":                                        func() (*Codec, error) { return New(1, nil) },
		"parts: element (3 bytes) of part 2 must be 1, 2, 4 or 8":                 with(func(p []Part) { p[2].ElementBytes = 3 }),
		"parts: elements (0) of part 1 must be 1 to 8191":                         with(func(p []Part) { p[1].Elements = 0 }),
		"parts: rotation (2 bits) of part 0 must be 0 or 1":                       with(func(p []Part) { p[0].Rotate = 2 }),
		"parts: planes (1) of part 1 must be one for each byte of an element (2)": with(func(p []Part) { p[1].ElementBytes = 2 }),
		"parts: row (8193 bytes and more) must have at most 8191":                 with(func(p []Part) { p[0].Elements = 8191 }),
		"parts: symbol (9 bits) of plane 0 of part 0 must be 1 to 8":              with(func(p []Part) { p[0].Planes[0].SymbolBits = 9 }),
		"parts: symbol (15) must have 3 bits (plane 0 of part 0)": with(func(p []Part) {
			p[0].Planes[0].SymbolBits = 3
			p[0].Planes[0].Lengths[0xe], p[0].Planes[0].Lengths[1] = 0, 1
		}),
		"parts: there must be an escape code: symbol 0 has none (plane 0 of part 1)": with(func(p []Part) { p[1].Planes[0].Lengths[huffman.Escape], p[1].Planes[0].Lengths[3] = 0, 1 }),
		"parts: code lengths must make a complete code (plane 0 of part 0)":          with(func(p []Part) { p[0].Planes[0].Lengths[0xf] = 3 }),
		"parts: code of 4 (13 bits) must have at most 12 (plane 0 of part 0)":        with(func(p []Part) { p[0].Planes[0].Lengths[4] = 13 }),
		"parts: kind (3) of plane 1 of part 2 must be 0 to 2":                        with(func(p []Part) { p[2].Planes[1].Kind = 3 }),
		"parts: sample (0 rows) must have at least one row":                          func() (*Codec, error) { return Train(nil, of(rowTypes[0])) },
		"parts: sample (265 bytes) must be a multiple of the row (264 bytes)":        func() (*Codec, error) { return Train(make([]byte, 265), of(rowTypes[0])) },
	})
	for _, c := range []struct {
		of       dtype.Type
		rowBytes int
	}{{dtype.Float32, 264}, {mustParse(t, rowTypes[0]), 528}, {mustParse(t, "int8*8190,int16"), 8192}} {
		if _, err := Family.Train(make([]byte, c.rowBytes), c.rowBytes, c.of); !errors.Is(err, codec.ErrDType) {
			t.Errorf("%v in rows of %d bytes: %v, want ErrDType", c.of, c.rowBytes, err)
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
		"metadata byte 7 (01) is not 0":                                           func(b []byte) { b[7] = 1 },
		"metadata end before part 3 of 4":                                         func(b []byte) { b[6] = 4 },
		"metadata has 10 bytes after its 2 parts":                                 func(b []byte) { b[6] = 2 },
		"plane 0 of part 2 has a value (5) but is not constant":                   func(b []byte) { b[len(b)-7] = 5 },
		"parts: field (0 bytes) must be 1 or 2":                                   func(b []byte) { b[5] = 0 },
		"parts: rotation (7 bits) of part 0 must be 0 or 1":                       func(b []byte) { b[9] = 7 },
		"metadata has no code lengths of plane 0 of part 0 for symbols of 0 bits": func(b []byte) { b[15] = 0 },
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
