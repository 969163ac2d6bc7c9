package zipnn

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"github.com/tensorcache/tensorcache/codec/internal/huffman"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/codectest"
)

var _ codec.Codec = (*Codec)(nil)

var (
	bf16 = Layout{2, 8}
	f32  = Layout{4, 8}
	f64  = Layout{8, 11}
)

// normal returns N(0,1) elements.
func normal(seed uint64, n int, layout Layout) []byte {
	r := rand.New(rand.NewPCG(seed, 8))
	var b []byte
	for range n {
		x := r.NormFloat64()
		switch layout.ElementBytes {
		case 1:
			b = append(b, byte(int8(20*x)))
		case 2:
			u := math.Float32bits(float32(x))
			b = binary.LittleEndian.AppendUint16(b, uint16((u+0x7fff+u>>16&1)>>16))
		case 4:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(x)))
		default:
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
		}
	}
	return b
}

// model writes the stored form one bit at a time, as docs/format/zipnn.md describes it; nil if a constant plane is not.
func model(t *testing.T, rowBytes int, layout Layout, planes []Plane, row []byte) []byte {
	w := 8 * layout.ElementBytes
	n := rowBytes / layout.ElementBytes
	value := func(e, plane int) byte { // of the reordered element
		bit := func(i int) int { return int(row[e*layout.ElementBytes+i/8]) >> (i % 8) & 1 }
		mantissa := w - 1 - layout.ExponentBits
		v := 0
		for i := range 8 {
			from := 8*plane + i
			switch {
			case layout.ExponentBits == 0 || from < mantissa:
			case from == mantissa:
				from = w - 1
			default:
				from--
			}
			v |= bit(from) << i
		}
		return byte(v)
	}
	words := make([]map[int]string, len(planes)) // codes as text, first bit first
	codedPlanes := 0
	for i, p := range planes {
		if p.Kind != Coded {
			continue
		}
		codedPlanes++
		words[i] = map[int]string{}
		next := 0
		for length := 1; length <= maxCode; length++ {
			for s, l := range p.Lengths {
				if int(l) == length {
					words[i][s] = fmt.Sprintf("%0*b", length, next)
					next++
				}
			}
			next <<= 1
		}
	}
	element := func(e int) (text string) {
		for i, p := range planes {
			if p.Kind != Coded {
				continue
			}
			v := value(e, i)
			if word, ok := words[i][int(v)]; ok {
				text += word
			} else {
				text += words[i][escape] + "@" + string(rune(0x1000+int(v))) // eight bits in their own order
			}
		}
		return text
	}
	reverse := func(s string) string {
		r := []rune(s)
		for i, j := 0, len(r)-1; i < j; i, j = i+1, j-1 {
			r[i], r[j] = r[j], r[i]
		}
		return string(r)
	}
	// expand puts an escaped value's eight bits, lowest at the lowest position, where its mark is: before it or, turned round, behind it.
	expand := func(s string, down bool) string {
		var out strings.Builder
		r := []rune(s)
		for i := 0; i < len(r); i++ {
			mark, v := r[i] == '@', 0
			if down && i+1 < len(r) && r[i+1] == '@' {
				mark, v = true, int(r[i])-0x1000
			} else if mark {
				v = int(r[i+1]) - 0x1000
			}
			if !mark {
				out.WriteRune(r[i])
				continue
			}
			i++
			for b := range 8 {
				fmt.Fprint(&out, v>>b&1)
			}
		}
		return out.String()
	}
	var text string
	var ends []int
	regions := 1 + rowBytes/512
	field := 2
	if rowBytes >= 8192 {
		regions, field = 1+rowBytes/1024, 3
	}
	regions = min(regions, 16)
	for g := range regions {
		first, end := g*n/regions, (g+1)*n/regions
		middle := first + (end-first+1)/2
		var down string
		for e := first; e < middle; e++ {
			text += expand(element(e), false)
		}
		for e := middle; e < end; e++ {
			down += element(e)
		}
		text += expand(reverse(down), true)
		ends = append(ends, len(text))
	}
	var out []byte
	if codedPlanes > 0 {
		for _, x := range append([]int{ends[regions-1]}, ends[:regions-1]...) {
			for i := range field {
				out = append(out, byte(x>>(8*i)))
			}
		}
		code := make([]byte, (len(text)+7)/8)
		for i, c := range text {
			code[i/8] |= byte(c-'0') << (i % 8)
		}
		out = append(out, code...)
	}
	for i, p := range planes {
		for e := range n {
			v := value(e, i)
			if p.Kind == Raw {
				out = append(out, v)
			} else if p.Kind == Constant && v != p.Value {
				return nil
			}
		}
	}
	if out = append(out, row[n*layout.ElementBytes:]...); len(out) == 0 {
		out = []byte{0}
	}
	return out
}

// randomLengths are code lengths of k values and an escape.
func randomLengths(r *rand.Rand, k int) [symbols]uint8 {
	var counts [symbols]int64
	for _, v := range r.Perm(256)[:k] {
		counts[v] = int64(math.Exp(r.Float64() * 12))
	}
	if k < 256 {
		counts[escape] = 1
	}
	return huffman.Lengths(&counts, maxCode)
}

// TestRoundTrip_ModelAllLengths compares with a bit-at-a-time model.
func TestRoundTrip_ModelAllLengths(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	lengths := []int{1023, 1024, 1025, 4096, 8191, 8192, 17000}
	for n := 1; n <= 530; n += 1 + n/64 {
		lengths = append(lengths, n, n)
	}
	shrunk := 0
	for _, n := range lengths {
		layout := []Layout{{1, 0}, {2, 0}, bf16, f32, f64, {2, 5}, {8, 3}}[r.IntN(7)]
		planes := make([]Plane, layout.ElementBytes)
		for i := range planes {
			switch r.IntN(4) {
			case 0:
				planes[i] = Plane{Kind: Constant, Value: byte(r.Uint32())}
			case 1, 2:
				planes[i] = Plane{Kind: Coded, Lengths: randomLengths(r, []int{1, 2, 3, 20, 256}[r.IntN(5)])}
			}
		}
		c, err := New(n, layout, planes)
		if err != nil {
			t.Fatal(err)
		}
		row, got, dst := make([]byte, n), make([]byte, n), make([]byte, c.EncodeBound())
		for try := range 4 {
			// Elements put together from the planes' frequent values, seldom others.
			reordered := make([]byte, n/layout.ElementBytes*layout.ElementBytes)
			for i := range reordered {
				p := planes[i%layout.ElementBytes]
				reordered[i] = byte(r.Uint32())
				if p.Kind == Constant {
					reordered[i] = p.Value
				}
				for p.Kind == Coded && p.Lengths[reordered[i]] == 0 && r.IntN(300) > try {
					reordered[i] = byte(r.Uint32())
				}
				for range 3 {
					if v := byte(r.Uint32()); p.Kind == Coded && p.Lengths[v] > 0 && p.Lengths[v] < p.Lengths[reordered[i]] {
						reordered[i] = v
					}
				}
			}
			var element [8]byte
			for i := 0; i < len(reordered); i += layout.ElementBytes {
				copy(element[:], reordered[i:][:layout.ElementBytes])
				binary.LittleEndian.PutUint64(element[:], c.order.undo(binary.LittleEndian.Uint64(element[:])))
				copy(reordered[i:][:layout.ElementBytes], element[:])
			}
			for i := copy(row, reordered); i < n; i++ {
				row[i] = byte(r.Uint32())
			}
			want := model(t, n, layout, planes, row)
			stored, err := c.Encode(dst, row)
			if want == nil || len(want) >= n {
				if err != codec.ErrIncompressible {
					t.Fatalf("%v row %d: got %d, %v, want ErrIncompressible", layout, n, stored, err)
				}
				continue
			}
			shrunk++
			if err != nil || !bytes.Equal(dst[:stored], want) {
				t.Fatalf("%v row %d: stored form (%v) differs from the model's:\n%x\n%x", layout, n, err, dst[:stored], want)
			}
			for _, src := range [][]byte{dst[:stored:stored], append(bytes.Clone(dst[:stored]), bytes.Repeat([]byte{0xff}, 100)...)} {
				clear(got)
				if m, err := c.Decode(got, src); err != nil || m != stored || !bytes.Equal(got, row) {
					t.Fatalf("%v row %d: does not decode (%d of %d bytes, %v)", layout, n, m, stored, err)
				}
				if m, err := c.Stored(src); err != nil || m != stored {
					t.Fatalf("%v row %d: Stored = %d, %v, want %d", layout, n, m, err, stored)
				}
			}
		}
	}
	if shrunk < 60 {
		t.Errorf("only %d rows were stored: the test tests little", shrunk)
	}
}

func TestRoundTrip_ArbitraryBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rowBytes := rapid.IntRange(1, 1200).Draw(t, "row bytes")
		table := rapid.SliceOfN(rapid.Byte(), rowBytes, rowBytes*4).Draw(t, "table")
		for i := range table { // else nothing shrinks
			table[i] &= 0xc7 >> (i & 7)
		}
		rows := len(table) / rowBytes
		table = table[:rows*rowBytes]
		sampled := rapid.IntRange(1, rows).Draw(t, "sampled")
		layout := rapid.SampledFrom([]Layout{{1, 0}, {2, 0}, bf16, f32, f64}).Draw(t, "layout")
		c, err := Train(table[:sampled*rowBytes], rowBytes, layout)
		if err != nil {
			t.Fatal(err)
		}
		codectest.RoundTrip(t, c, table)
	})
}

func TestRoundTrip_LongestRow(t *testing.T) {
	table := normal(5, 1<<18, f32)[:1<<20-1]
	c, err := Train(table, len(table), f32)
	if err != nil {
		t.Fatal(err)
	}
	if n := codectest.RoundTrip(t, c, table); n > len(table)*84/100 {
		t.Errorf("the longest row takes %d bytes of %d", n, len(table))
	}
}

// TestTrain_OtherDistribution encodes rows unlike those of the sample: nothing is lost but saving.
func TestTrain_OtherDistribution(t *testing.T) {
	c, err := Train(normal(1, 50000, f32), 500, f32)
	if err != nil {
		t.Fatal(err)
	}
	like := codectest.RoundTrip(t, c, normal(2, 50000, f32))
	scaled := normal(3, 50000, f32)
	for i := 3; i < len(scaled); i += 40 {
		scaled[i] ^= 0x20 // exponents that the sample has none of
	}
	unlike := codectest.RoundTrip(t, c, scaled)
	if unlike <= like || unlike >= len(scaled) {
		t.Errorf("rows like the sample's take %d bytes, others %d of %d", like, unlike, len(scaled))
	}
}

func TestDecode_TruncatedOrDamaged(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, rowBytes := range []int{128, 1030, 9000} {
		table := normal(4, rowBytes*3/2, bf16)[:rowBytes*3]
		c, err := Train(table, rowBytes, bf16)
		if err != nil {
			t.Fatal(err)
		}
		dst, row := make([]byte, c.EncodeBound()), make([]byte, rowBytes)
		n, err := c.Encode(dst, table[:rowBytes])
		if err != nil {
			t.Fatal(err)
		}
		codectest.Cut(t, c, dst[:n])
		for range 2000 { // no panic, whatever the error
			damaged := bytes.Clone(dst[:n])
			damaged[r.IntN(min(n, 40))] ^= byte(1 << r.IntN(8))
			if m, err := c.Decode(row, damaged); err != nil && !errors.Is(err, codec.ErrCorrupt) || err == nil && m > n {
				t.Fatalf("row %d: %d, %v", rowBytes, m, err)
			}
		}
	}
}

func TestCodec_DoesNotAllocate(t *testing.T) {
	table := normal(4, 6000, f32)
	c, err := Train(table, 1200, f32)
	if err != nil {
		t.Fatal(err)
	}
	codectest.NoAllocations(t, c, table[:1200])
}

// goldenPlanes are those of docs/format/zipnn.md: 7e 0, 7f 10, escape 11.
func goldenPlanes() []Plane {
	p := Plane{Kind: Coded}
	p.Lengths[0x7e], p.Lengths[0x7f], p.Lengths[escape] = 1, 2, 2
	return []Plane{{Kind: Raw}, p}
}

func TestEncode_Golden(t *testing.T) {
	c, err := New(17, bf16, goldenPlanes())
	if err != nil {
		t.Fatal(err)
	}
	// 0.75, -1.5, 0.5, 1, 2, 0.75, 1.25, 0.625 as bfloat16, and a tail byte.
	row, _ := hex.DecodeString("403f" + "c0bf" + "003f" + "803f" + "0040" + "403f" + "a03f" + "203f" + "a5")
	dst := make([]byte, c.EncodeBound())
	n, err := c.Encode(dst, row)
	if got, want := hex.EncodeToString(dst[:n]), "1400"+"12010e"+"40c0000000402020"+"a5"; err != nil || got != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

func TestMetadata_RoundTripAndDamage(t *testing.T) {
	c, err := New(17, bf16, goldenPlanes())
	if err != nil {
		t.Fatal(err)
	}
	codectest.Metadata(t, c, Unmarshal)
}

func TestNew_BadInput(t *testing.T) {
	with := func(change func(*Plane)) func() (*Codec, error) {
		return func() (*Codec, error) {
			p := goldenPlanes()
			change(&p[1])
			return New(64, bf16, p)
		}
	}
	codectest.Errors(t, map[string]func() (*Codec, error){
		"zipnn: row (0 bytes) must be 1 to 1048575":                             func() (*Codec, error) { return New(0, f32, nil) },
		"zipnn: row (1048576 bytes) must be 1 to 1048575":                       func() (*Codec, error) { return Train(nil, 1<<20, f32) },
		"zipnn: sample (0 rows) must have at least one row":                     func() (*Codec, error) { return Train(nil, 8, f32) },
		"zipnn: sample (9 bytes) must be a multiple of the row (8 bytes)":       func() (*Codec, error) { return Train(make([]byte, 9), 8, f32) },
		"zipnn: element (3 bytes) must be 1, 2, 4 or 8":                         func() (*Codec, error) { return Train(make([]byte, 8), 8, Layout{3, 0}) },
		"zipnn: exponent (15 bits) must leave a sign and a mantissa in 2 bytes": func() (*Codec, error) { return New(8, Layout{2, 15}, nil) },
		"zipnn: planes (2) must be one for each byte of an element (4)":         func() (*Codec, error) { return New(8, f32, goldenPlanes()) },
		"zipnn: kind (3) of plane 1 must be 0 to 2":                             with(func(p *Plane) { p.Kind = 3 }),
		"zipnn: code lengths must not be over-subscribed (plane 1)":             with(func(p *Plane) { p.Lengths[3] = 1 }),
		"zipnn: code lengths must make a complete code (plane 1)":               with(func(p *Plane) { p.Lengths[escape] = 0 }),
		"zipnn: code of 3 (13 bits) must have at most 12 (plane 1)":             with(func(p *Plane) { p.Lengths[3] = 13 }),
		"zipnn: plane 1 must have an escape code: value 0 has none":             with(func(p *Plane) { p.Lengths[escape], p.Lengths[5] = 0, 2 }),
	})
}

// FuzzDecode feeds arbitrary metadata and stored bytes: never a panic, and what decodes encodes to no more.
func FuzzDecode(f *testing.F) {
	for _, layout := range []Layout{{1, 0}, bf16, f32, f64} {
		for _, n := range []int{16, 257, 1100} {
			table := normal(9, n*2, layout)[:n*2]
			c, err := Train(table, n, layout)
			if err != nil {
				f.Fatal(err)
			}
			dst := make([]byte, c.EncodeBound())
			k, _ := c.Encode(dst, table)
			meta, _ := c.MarshalBinary()
			f.Add(meta[:len(meta)-4], dst[:k])
			f.Add(meta, dst[:k])
		}
	}
	f.Fuzz(func(t *testing.T, meta, stored []byte) {
		c, err := Unmarshal(meta)
		if err != nil {
			if !errors.Is(err, codec.ErrCorrupt) {
				t.Fatal(err)
			}
			if len(meta) < metadataHeader {
				return
			}
			if c, err = parse(meta); err != nil { // the checksum keeps the fuzzer out
				if !errors.Is(err, codec.ErrCorrupt) {
					t.Fatal(err)
				}
				return
			}
		}
		row, n, ok := codectest.Decodes(t, c, stored)
		if !ok {
			return
		}
		dst, again := make([]byte, c.EncodeBound()), make([]byte, c.RowBytes())
		k, err := c.Encode(dst, row)
		if err != nil || k > n {
			t.Fatalf("the decoded row encodes to %d bytes (from %d), %v", k, n, err)
		}
		if _, err := c.Decode(again, dst[:k]); err != nil || !bytes.Equal(row, again) {
			t.Fatalf("the decoded row does not decode again: %v", err)
		}
	})
}

// TestGolden_Stored pins the format.
func TestGolden_Stored(t *testing.T) {
	var codecs []codec.Codec
	var rows [][]byte
	for _, layout := range []Layout{{1, 0}, bf16, f32, f64} {
		for _, rowBytes := range []int{130, 1031} {
			table := normal(uint64(rowBytes), 40*rowBytes/layout.ElementBytes, layout)[:39*rowBytes]
			c, err := Train(table, rowBytes, layout)
			if err != nil {
				t.Fatal(err)
			}
			codecs, rows = append(codecs, c), append(rows, table[:rowBytes])
		}
	}
	codectest.Golden(t, Family.Unmarshal, codecs, rows)
}
