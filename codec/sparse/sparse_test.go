package sparse

import (
	"bytes"
	"errors"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/codectest"
)

var _ codec.Codec = (*Codec)(nil)

// randomShape is any shape that New takes.
func randomShape(r *rand.Rand) Shape {
	s := Shape{ElementBytes: 1 << r.IntN(4), Rotate: r.IntN(2)}
	if r.IntN(2) == 0 {
		s.Background = r.Uint64() >> (64 - 8*s.ElementBytes)
	}
	s.SymbolBits = 1 + r.IntN(min(maxSymbol, 8*s.ElementBytes))
	symbols := r.Perm(1 << s.SymbolBits)
	for _, symbol := range symbols[:r.IntN(min(maxSymbols, len(symbols))+1)] {
		s.Symbols = append(s.Symbols, uint16(symbol))
	}
	return s
}

// kinds of rows that randomRow makes, for which other layouts are the shortest.
var kinds = []string{"background", "one value", "palette", "digits", "raw", "mixed"}

// randomRow fills a row with a share of background elements and with others of a kind.
func randomRow(r *rand.Rand, s Shape, row []byte, kind string) {
	share := []float64{0, 0.02, 0.3, 0.9, 0.98, 1}[r.IntN(6)] // of entries
	w := 8 * s.ElementBytes
	var palette []uint64
	for range 1 + r.IntN(20) {
		palette = append(palette, r.Uint64())
	}
	for i := range row {
		row[i] = byte(r.Uint32())
	}
	for at := 0; at+s.ElementBytes <= len(row); at += s.ElementBytes {
		if kind == "mixed" && at%(4096*s.ElementBytes) == 0 {
			share = r.Float64()
		}
		x := s.Background
		if r.Float64() < share {
			switch of := kinds[1+r.IntN(len(kinds)-2)]; {
			case kind == "one value":
				x = palette[0]
			case kind == "palette":
				x = palette[r.IntN(len(palette))]
			case kind == "digits" && len(s.Symbols) > 0, kind == "mixed" && of == "digits" && len(s.Symbols) > 0:
				x = uint64(s.Symbols[r.IntN(len(s.Symbols))])<<(w-s.SymbolBits) | r.Uint64()&(1<<(w-s.SymbolBits)-1)
				if s.Rotate == 1 {
					x = x>>1 | x&1<<(w-1)
				}
			case kind != "background":
				x = r.Uint64()
			}
		}
		for j := range s.ElementBytes {
			row[at+j] = byte(x >> (8 * j))
		}
	}
}

// model writes the stored form one bit at a time, as docs/format/sparse.md describes it, in the shortest of the ways that the format has.
func model(s Shape, row []byte) []byte {
	var stream []byte // a bit each
	put := func(to *[]byte, x uint64, n int) {
		for i := range n {
			*to = append(*to, byte(x>>i&1))
		}
	}
	w := 8 * s.ElementBytes
	var elements []uint64
	for e := range slices.Chunk(row[:len(row)/s.ElementBytes*s.ElementBytes], s.ElementBytes) {
		var x uint64
		for j, b := range e {
			x |= uint64(b) << (8 * j)
		}
		elements = append(elements, x)
	}
	var headers, segments []byte
	for segment := range slices.Chunk(elements, 4096) {
		var entries, others []int
		var values []uint64
		for i, x := range segment {
			if x == s.Background {
				others = append(others, i)
			} else {
				entries = append(entries, i)
				values = append(values, x)
			}
		}
		// Positions.
		listed := entries
		if len(others) < len(entries) {
			listed = others
		}
		var positions []byte
		if m := len(listed); m > 0 {
			low := 0
			for m<<(low+1) <= len(segment) {
				low++
			}
			upper := make([]byte, m+(len(segment)-1)>>low)
			for i, at := range listed {
				upper[at>>low+i] = 1
			}
			positions = upper
			for _, at := range listed {
				put(&positions, uint64(at), low)
			}
			if len(positions) >= len(segment) {
				positions = make([]byte, len(segment))
				for _, at := range entries {
					positions[at] = 1
				}
			}
		}
		// Values, in three ways.
		rotated := func(x uint64) uint64 {
			if s.Rotate == 1 {
				x = x<<1 | x>>(w-1)
			}
			return x
		}
		symbol := func(x uint64) int {
			return slices.Index(s.Symbols, uint16(rotated(x)<<(64-w)>>(64-s.SymbolBits)))
		}
		code, best := 71, []byte{}
		for _, x := range values {
			put(&best, rotated(x), w)
		}
		largest, named := 0, len(values) > 0
		for _, x := range values {
			largest, named = max(largest, symbol(x)), named && symbol(x) >= 0
		}
		if named {
			n := bits.Len(uint(largest))
			var digits []byte
			for _, x := range values {
				put(&digits, uint64(symbol(x)), n)
			}
			for _, x := range values {
				put(&digits, rotated(x), w-s.SymbolBits)
			}
			if len(digits) < len(best) {
				code, best = 64+n, digits
			}
		}
		var palette []uint64
		for _, x := range values {
			if !slices.Contains(palette, x) && len(palette) <= 64 {
				palette = append(palette, x)
			}
		}
		if len(palette) > 0 && len(palette) <= 64 {
			var indices []byte
			for _, x := range palette {
				put(&indices, x, w)
			}
			for _, x := range values {
				put(&indices, uint64(slices.Index(palette, x)), bits.Len(uint(len(palette)-1)))
			}
			if len(indices) < len(best) {
				code, best = len(palette)-1, indices
			}
		}
		count := bits.Len(uint(min(4096, len(elements))))
		put(&headers, uint64(len(entries)|code<<count), count+7)
		segments = slices.Concat(segments, positions, best)
	}
	if len(elements) > 4096 {
		for len(headers)%8 != 0 {
			headers = append(headers, 0)
		}
	}
	stream = append(headers, segments...)
	for _, b := range row[len(elements)*s.ElementBytes:] {
		put(&stream, uint64(b), 8)
	}
	out := make([]byte, (len(stream)+7)/8)
	for i, b := range stream {
		out[i/8] |= b << (i % 8)
	}
	return out
}

// TestRoundTrip_ModelAllLengths compares with a bit-at-a-time model, for rows of every kind and of all short lengths, and of lengths around
// segments.
func TestRoundTrip_ModelAllLengths(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	lengths := []int{4095, 4096, 4097, 5732, 8191, 8192, 8193, 14_812, 16_383, 16_384, 16_385, 32_768, 32_776, 65_543, 1<<20 - 1}
	for n := 1; n <= 530; n++ {
		lengths = append(lengths, n, n)
	}
	shrunk := map[string]int{}
	for _, n := range lengths {
		s := randomShape(r)
		c, err := New(n, s)
		if err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
		row, got := make([]byte, n), make([]byte, n)
		dst := make([]byte, c.EncodeBound())
		for _, kind := range kinds {
			randomRow(r, s, row, kind)
			want := model(s, row)
			for i := range dst {
				dst[i] = 0xa5
			}
			stored, err := c.Encode(dst, row)
			if len(want) >= n {
				if err != codec.ErrIncompressible {
					t.Fatalf("%+v row %d of %s: got %d, %v, want ErrIncompressible", s, n, kind, stored, err)
				}
				continue
			}
			shrunk[kind]++
			if err != nil || !bytes.Equal(dst[:stored], want) {
				t.Fatalf("%+v row %d of %s: stored form (%v) differs from the model's:\n%x\n%x", s, n, kind, err, dst[:stored], want)
			}
			// With other bytes behind it, and without.
			for _, src := range [][]byte{dst[:stored:stored], append(bytes.Clone(dst[:stored]), bytes.Repeat([]byte{0xff}, 4000)...)} {
				clear(got)
				if m, err := c.Decode(got, src); err != nil || m != stored || !bytes.Equal(got, row) {
					t.Fatalf("%+v row %d of %s: does not decode (%d of %d bytes, %v)", s, n, kind, m, stored, err)
				}
				if m, err := c.Stored(src); err != nil || m != stored {
					t.Fatalf("%+v row %d of %s: Stored = %d, %v, want %d", s, n, kind, m, err, stored)
				}
			}
		}
	}
	for _, kind := range kinds {
		if shrunk[kind] < 100 {
			t.Errorf("only %d rows of %s were stored: the test tests little", shrunk[kind], kind)
		}
	}
}

// TestRoundTrip_ArbitraryBytes trains on part of the bytes and encodes all of them.
func TestRoundTrip_ArbitraryBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rowBytes := rapid.IntRange(1, 600).Draw(t, "row bytes")
		table := rapid.SliceOfN(rapid.Byte(), rowBytes, rowBytes*6).Draw(t, "table")
		for i := range table { // else nothing shrinks
			table[i] &= 0xc7 >> (i & 7)
		}
		rows := len(table) / rowBytes
		table = table[:rows*rowBytes]
		sampled := rapid.IntRange(1, rows).Draw(t, "sampled")
		c, err := Train(table[:sampled*rowBytes], rowBytes, rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "element bytes"))
		if err != nil {
			t.Fatal(err)
		}
		codectest.RoundTrip(t, c, table)
	})
}

// TestTrain_Background holds what training takes for the background: zero, unless another element is clearly more frequent.
func TestTrain_Background(t *testing.T) {
	for _, c := range []struct {
		name  string
		share func(i int) byte
		want  uint64
	}{
		{"mostly zeros", func(i int) byte { return byte(i % 5 / 4 * 7) }, 0},
		{"mostly sevens", func(i int) byte { return byte(min(1, i%5) * 7) }, 7},
		{"as many of both", func(i int) byte { return byte(i % 2 * 7) }, 0},
		{"all alike", func(int) byte { return 255 }, 255},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := make([]byte, 1000)
			for i := range table {
				table[i] = c.share(i)
			}
			codec, err := Train(table, 100, 1)
			if err != nil {
				t.Fatal(err)
			}
			if got := codec.shape.Background; got != c.want {
				t.Errorf("background %#x, want %#x", got, c.want)
			}
		})
	}
}

// corpus are codecs of every element length with a row each, of all kinds.
func corpus(t testing.TB) (codecs []codec.Codec, rows [][]byte) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{24, 64, 203, 512} {
		for _, kind := range kinds {
			for tries := 0; ; tries++ {
				s := randomShape(r)
				c, err := New(n, s)
				if err != nil {
					t.Fatal(err)
				}
				row := make([]byte, n)
				randomRow(r, s, row, kind)
				if _, err := c.Encode(make([]byte, c.EncodeBound()), row); err == nil {
					codecs, rows = append(codecs, c), append(rows, row)
					break
				}
				if tries > 1000 {
					t.Fatalf("no row of %d bytes of %s shrinks", n, kind)
				}
			}
		}
	}
	return codecs, rows
}

func TestGolden(t *testing.T) {
	codecs, rows := corpus(t)
	codectest.Golden(t, Family.Unmarshal, codecs, rows)
}

// TestDecode_TruncatedOrDamaged cuts every stored row of the corpus at every byte. Positions that are not in order, or are fewer or more than
// the entries, are found.
func TestDecode_TruncatedOrDamaged(t *testing.T) {
	codecs, rows := corpus(t)
	found := 0
	for i, c := range codecs {
		dst, row := make([]byte, c.EncodeBound()), make([]byte, c.RowBytes())
		n, err := c.Encode(dst, rows[i])
		if err != nil {
			t.Fatal(err)
		}
		codectest.Cut(t, c, dst[:n])
		var l layout
		s := c.(*Codec)
		if err := s.header(&l, dst[:n], 0); err != nil {
			t.Fatal(err)
		}
		for bit := range l.positionBits {
			if !l.bitmap && bit >= l.lows {
				break // another lower half may be as good
			}
			at := s.start() + bit
			dst[at/8] ^= 1 << (at % 8)
			if _, err := c.Decode(row, dst[:n]); !errors.Is(err, codec.ErrCorrupt) {
				t.Fatalf("row %d: bit %d of the positions: %v, want ErrCorrupt", i, bit, err)
			}
			dst[at/8] ^= 1 << (at % 8)
			found++
		}
	}
	if found < 100 {
		t.Errorf("only %d bits of positions were damaged", found)
	}
}

func TestCodec_DoesNotAllocate(t *testing.T) {
	codecs, rows := corpus(t)
	for i, c := range codecs {
		codectest.NoAllocations(t, c, rows[i])
	}
}

// TestNew_Faults holds every fault of a shape.
func TestNew_Faults(t *testing.T) {
	good := func() Shape { return Shape{ElementBytes: 4, SymbolBits: 9, Symbols: []uint16{1, 2}} }
	for want, change := range map[string]func(*Shape, *int){
		"sparse: row (0 bytes) must be 1 to 1048575":         func(_ *Shape, n *int) { *n = 0 },
		"sparse: element (3 bytes) must be 1, 2, 4 or 8":     func(s *Shape, _ *int) { s.ElementBytes = 3 },
		"sparse: rotation (2 bits) must be 0 or 1":           func(s *Shape, _ *int) { s.Rotate = 2 },
		"sparse: symbol (13 bits) must be 1 to 12":           func(s *Shape, _ *int) { s.SymbolBits = 13 },
		"sparse: symbol (0 bits) must be 1 to 12":            func(s *Shape, _ *int) { s.SymbolBits = 0 },
		"sparse: symbols (65) must be at most 64":            func(s *Shape, _ *int) { s.Symbols = make([]uint16, 65) },
		"sparse: background (0x100000000) must have 32 bits": func(s *Shape, _ *int) { s.Background = 1 << 32 },
		"sparse: symbol (0x200) must have 9 bits":            func(s *Shape, _ *int) { s.Symbols = []uint16{512} },
		"sparse: symbol (0x7) must have one digit":           func(s *Shape, _ *int) { s.Symbols = []uint16{7, 7} },
	} {
		s, n := good(), 64
		change(&s, &n)
		if _, err := New(n, s); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestMetadata_RoundTripAndDamage(t *testing.T) {
	codecs, _ := corpus(t)
	for _, c := range codecs {
		codectest.Metadata(t, c, Family.Unmarshal)
	}
}

// FuzzDecode decodes what no encoder wrote: an error or some row, never a panic. The host's two ways to say how long a row is agree.
func FuzzDecode(f *testing.F) {
	codecs, rows := corpus(f)
	for i, c := range codecs {
		metadata, err := c.MarshalBinary()
		if err != nil {
			f.Fatal(err)
		}
		dst := make([]byte, c.EncodeBound())
		n, err := c.Encode(dst, rows[i])
		if err != nil {
			f.Fatal(err)
		}
		f.Add(metadata[:len(metadata)-4], dst[:n])
	}
	f.Fuzz(func(t *testing.T, metadata, src []byte) {
		if len(metadata) < metadataHeader || len(metadata) > 1000 {
			return
		}
		c, err := parse(metadata)
		if err != nil || c.rowBytes > 1<<17 {
			return
		}
		row, n, ok := codectest.Decodes(t, c, src)
		if !ok {
			return
		}
		if n >= c.rowBytes || n > len(src) {
			t.Fatalf("decoded %d bytes of %d to a row of %d", n, len(src), c.rowBytes)
		}
		codectest.RoundTrip(t, c, row)
	})
}

func BenchmarkDecode(b *testing.B) {
	for name, table := range map[string][]byte{"ones=18/row=5732": ones(200, 5732, 18), "ones=50/row=2000": ones(200, 2000, 50)} {
		b.Run(name, func(b *testing.B) {
			rowBytes := len(table) / 200
			c, err := Train(table, rowBytes, 4)
			if err != nil {
				b.Fatal(err)
			}
			dst, row := make([]byte, c.EncodeBound()), make([]byte, rowBytes)
			n, err := c.Encode(dst, table[:rowBytes])
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(rowBytes))
			b.Run("decode", func(b *testing.B) {
				b.SetBytes(int64(rowBytes))
				for b.Loop() {
					if _, err := c.Decode(row, dst[:n:n]); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run("encode", func(b *testing.B) {
				b.SetBytes(int64(rowBytes))
				for b.Loop() {
					if _, err := c.Encode(dst, table[:rowBytes]); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

// TestEncode_Golden is the row of docs/format/sparse.md.
func TestEncode_Golden(t *testing.T) {
	c, err := New(12, Shape{ElementBytes: 1, SymbolBits: 1})
	if err != nil {
		t.Fatal(err)
	}
	row := []byte{0, 0, 9, 0, 0, 0, 0, 0, 9, 0, 0, 0}
	dst := make([]byte, c.EncodeBound())
	n, err := c.Encode(dst, row)
	if want := []byte{0x02, 0x48, 0x49, 0x00}; err != nil || !bytes.Equal(dst[:n], want) || !bytes.Equal(model(c.shape, row), want) {
		t.Errorf("%x, %v, and the model's %x, want %x", dst[:n], err, model(c.shape, row), want)
	}
}
