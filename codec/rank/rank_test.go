package rank

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/codectest"
)

var _ codec.Codec = (*Codec)(nil)

// normal returns rows of N(0,1) elements: bfloat16, float32 or float64.
func normal(seed uint64, rows, columns, elementBytes int) []byte {
	r := rand.New(rand.NewPCG(seed, 8))
	var b []byte
	for range rows * columns {
		x := r.NormFloat64()
		switch elementBytes {
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

// randomShape is any shape that New takes.
func randomShape(r *rand.Rand) Shape {
	s := Shape{ElementBytes: 2 << r.IntN(3), Rotate: r.IntN(2), SymbolBits: minSymbol + r.IntN(maxSymbol-minSymbol+1)}
	symbols := r.Perm(1 << s.SymbolBits)
	for range 1 + r.IntN(maxLevels) {
		d := 1 + r.IntN(maxDigitBits)
		if len(symbols) < 1<<d-1 {
			break
		}
		s.Digits = append(s.Digits, d)
		for _, symbol := range symbols[:1<<d-1] {
			s.Symbols = append(s.Symbols, uint16(symbol))
		}
		symbols = symbols[1<<d-1:]
	}
	if len(s.Digits) == 0 {
		s.Digits, s.Symbols = []int{1}, []uint16{0}
	}
	return s
}

// withRandomBases gives the shape, half of the time, bases for rows of rowBytes, of one or several classes, if it can have some.
func withRandomBases(r *rand.Rand, s Shape, rowBytes int) Shape {
	if s.ElementBytes > 4 || rowBytes > maxBasedRow || r.IntN(2) == 0 {
		return s
	}
	classes := 1 << r.IntN(5)
	for classes > 1 && classes*((rowBytes+15)&^15) > maxClassBytes {
		classes /= 2
	}
	for range classes {
		bases := make([]uint16, rowBytes/s.ElementBytes)
		for j := range bases {
			bases[j] = uint16(r.Uint32())
		}
		s.Bases = append(s.Bases, bases)
	}
	return s
}

// subtracted returns a rotated element of column j with its base subtracted.
func subtracted(s Shape, class, j int, x uint64) uint64 {
	if s.Bases != nil {
		x -= uint64(s.Bases[class][j]) << (8*s.ElementBytes - 16)
		x &= 1<<(8*s.ElementBytes) - 1
	}
	return x
}

// randomRow fills a row with elements of the shape's symbols, the frequent ones more often, and others.
func randomRow(r *rand.Rand, s Shape, row []byte) {
	for i := range row {
		row[i] = byte(r.Uint32())
	}
	wild := r.IntN(3)
	class := r.IntN(max(1, len(s.Bases)))
	w := 8 * s.ElementBytes
	for at := 0; at+s.ElementBytes <= len(row); at += s.ElementBytes {
		if wild == 0 && r.IntN(3) == 0 {
			continue
		}
		rank := min(r.IntN(len(s.Symbols)), r.IntN(len(s.Symbols)), r.IntN(len(s.Symbols)))
		x := uint64(s.Symbols[rank])<<(w-s.SymbolBits) | r.Uint64()&(1<<(w-s.SymbolBits)-1)
		if s.Bases != nil {
			x = (x + uint64(s.Bases[class][at/s.ElementBytes])<<(w-16)) & (1<<w - 1)
		}
		if s.Rotate == 1 {
			x = x>>1 | x&1<<(w-1)
		}
		for j := range s.ElementBytes {
			row[at+j] = byte(x >> (8 * j))
		}
	}
}

// model writes the stored form of a row of a class one bit at a time, as docs/format/rank.md describes it.
func model(s Shape, row []byte, class int) []byte {
	var out []byte
	n := 0
	put := func(x uint64, bits int) {
		for i := range bits {
			if n%8 == 0 {
				out = append(out, 0)
			}
			out[n/8] |= byte(x>>i&1) << (n % 8)
			n++
		}
	}
	switch {
	case len(row) >= 1<<16:
		put(0, 24)
	case len(row) >= 256:
		put(0, 16)
	default:
		for k := 1; k < len(s.Bases); k *= 2 {
			put(uint64(class/k&1), 1)
		}
	}
	w := 8 * s.ElementBytes
	elements, column := row[:len(row)/s.ElementBytes*s.ElementBytes], 0
	for segment := range slices.Chunk(elements, 512) {
		var rests []uint64
		var left []uint16 // symbols passed on
		for e := range slices.Chunk(segment, s.ElementBytes) {
			var x uint64
			for j, b := range e {
				x |= uint64(b) << (8 * j)
			}
			if s.Rotate == 1 {
				x = x<<1 | x>>(w-1)
				if w < 64 {
					x &= 1<<w - 1
				}
			}
			x = subtracted(s, class, column, x)
			column++
			left = append(left, uint16(x>>(w-s.SymbolBits)))
			rests = append(rests, x&(1<<(w-s.SymbolBits)-1))
		}
		named := s.Symbols
		for _, d := range s.Digits {
			var next []uint16
			for _, symbol := range left {
				digit := slices.Index(named[:1<<d-1], symbol)
				if digit < 0 {
					digit = 1<<d - 1
					next = append(next, symbol)
				}
				put(uint64(digit), d)
			}
			left, named = next, named[1<<d-1:]
		}
		for _, symbol := range left {
			put(uint64(symbol), s.SymbolBits)
		}
		for _, rest := range rests {
			put(rest, w-s.SymbolBits)
		}
	}
	for _, b := range row[len(elements):] {
		put(uint64(b), 8)
	}
	if h := headerBytes(len(row)); h != 0 {
		for i := range h {
			out[i] = byte((len(out) | class<<12) >> (8 * i))
		}
	}
	return out
}

// TestRoundTrip_ModelAllLengths compares with a bit-at-a-time model for all lengths around a segment, and longer ones.
func TestRoundTrip_ModelAllLengths(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	lengths := []int{1023, 1024, 1025, 4096, 5732, 65535, 65536, 65543, 1<<20 - 1}
	for n := 1; n <= 530; n++ {
		lengths = append(lengths, n, n)
	}
	shrunk := 0
	for _, n := range lengths {
		s := withRandomBases(r, randomShape(r), n)
		c, err := New(n, s)
		if err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
		row, got := make([]byte, n), make([]byte, n)
		dst := make([]byte, c.EncodeBound())
		for range 3 {
			randomRow(r, s, row)
			want := model(s, row, c.classOf(row))
			for i := range dst {
				dst[i] = 0xa5
			}
			stored, err := c.Encode(dst, row)
			if len(want) >= n {
				if err != codec.ErrIncompressible {
					t.Fatalf("%+v row %d: got %d, %v, want ErrIncompressible", s, n, stored, err)
				}
				continue
			}
			shrunk++
			if err != nil || !bytes.Equal(dst[:stored], want) {
				t.Fatalf("%+v row %d: stored form (%v) differs from the model's", s, n, err)
			}
			// With other bytes behind it, and without.
			for _, src := range [][]byte{dst[:stored:stored], append(bytes.Clone(dst[:stored]), bytes.Repeat([]byte{0xff}, 4000)...)} {
				clear(got)
				if m, err := c.Decode(got, src); err != nil || m != stored || !bytes.Equal(got, row) {
					t.Fatalf("%+v row %d: does not decode (%d of %d bytes, %v)", s, n, m, stored, err)
				}
				if m, err := c.Stored(src); err != nil || m != stored {
					t.Fatalf("%+v row %d: Stored = %d, %v, want %d", s, n, m, err, stored)
				}
			}
		}
	}
	if shrunk < 500 {
		t.Errorf("only %d rows were stored: the test tests little", shrunk)
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
		c, err := Train(table[:sampled*rowBytes], rowBytes, rapid.SampledFrom([]int{2, 4, 8}).Draw(t, "element bytes"))
		if err != nil {
			t.Fatal(err)
		}
		codectest.RoundTrip(t, c, table)
	})
}

// TestTrain_Normal holds the size against the order-0 entropy of the exponent.
func TestTrain_Normal(t *testing.T) {
	for _, c := range []struct {
		elementBytes, rowBytes int
		over                   float64 // of the entropy
	}{{4, 256, 0.014}, {4, 512, 0.008}, {4, 4096, 0.004}, {2, 256, 0.02}, {2, 512, 0.014}, {2, 4096, 0.008}, {8, 512, 0.007}} {
		table := normal(1, 1<<20/c.rowBytes, c.rowBytes/c.elementBytes, c.elementBytes)
		counts := map[uint64]float64{}
		n := float64(len(table) / c.elementBytes)
		for e := range slices.Chunk(table, c.elementBytes) {
			mantissa := map[int]int{2: 7, 4: 23, 8: 52}[c.elementBytes]
			var x [8]byte
			copy(x[:], e)
			counts[binary.LittleEndian.Uint64(x[:])>>mantissa&(1<<(8*c.elementBytes-1-mantissa)-1)]++
		}
		ideal := 0.0
		exponent := map[int]float64{2: 8, 4: 8, 8: 11}[c.elementBytes]
		for _, k := range counts {
			ideal -= k * math.Log2(k/n)
		}
		ideal += n * (float64(8*c.elementBytes) - exponent)
		codec, err := Train(table, c.rowBytes, c.elementBytes)
		if err != nil {
			t.Fatal(err)
		}
		size := 8 * float64(codectest.RoundTrip(t, codec, table))
		t.Logf("%d-byte elements, rows of %d bytes: %.2f %% over the entropy, saving %.2f %%, shape %v", c.elementBytes, c.rowBytes,
			100*(size/ideal-1), 100*(1-size/8/float64(len(table))), codec.shape.Digits)
		if size > ideal*(1+c.over) {
			t.Errorf("%d-byte elements, rows of %d bytes: %.2f %% over the entropy, want %.2f", c.elementBytes, c.rowBytes, 100*(size/ideal-1), 100*c.over)
		}
	}
}

// TestTrain_OtherDistribution encodes rows unlike those of the sample: nothing is lost but saving.
func TestTrain_OtherDistribution(t *testing.T) {
	sample := normal(1, 500, 128, 4)
	c, err := Train(sample, 512, 4)
	if err != nil {
		t.Fatal(err)
	}
	like := codectest.RoundTrip(t, c, normal(2, 500, 128, 4))
	scaled := normal(3, 500, 128, 4)
	for i := 3; i < len(scaled); i += 4 {
		scaled[i] ^= 0x20 // exponents that the sample has none of
	}
	unlike := codectest.RoundTrip(t, c, scaled)
	if unlike <= like || unlike > len(scaled) {
		t.Errorf("rows like the sample's take %d bytes, others %d of %d", like, unlike, len(scaled))
	}
}

func TestDecode_TruncatedOrDamaged(t *testing.T) {
	for _, rowBytes := range []int{128, 130, 512, 1536} {
		table := normal(4, 50, 1, 4)
		for len(table) < rowBytes*20 {
			table = append(table, table...)
		}
		table = table[:rowBytes*20]
		c, err := Train(table, rowBytes, 4)
		if err != nil {
			t.Fatal(err)
		}
		dst, row := make([]byte, c.EncodeBound()), make([]byte, rowBytes)
		n, err := c.Encode(dst, table[:rowBytes])
		if err != nil {
			t.Fatal(err)
		}
		codectest.Cut(t, c, dst[:n])
		if rowBytes >= 256 {
			dst[0]++ // the length
			if _, err := c.Decode(row, dst); !errors.Is(err, codec.ErrCorrupt) {
				t.Errorf("row %d: wrong length: %v, want ErrCorrupt", rowBytes, err)
			}
		}
	}
}

func TestCodec_DoesNotAllocate(t *testing.T) {
	table := normal(4, 20, 300, 4)
	c, err := Train(table, 1200, 4)
	if err != nil {
		t.Fatal(err)
	}
	codectest.NoAllocations(t, c, table[:1200])
}

// goldenShape is that of testdata/golden.txt and of docs/format/rank.md.
var goldenShape = Shape{ElementBytes: 2, Rotate: 1, SymbolBits: 8, Digits: []int{2, 1}, Symbols: []uint16{0x7e, 0x7f, 0x7d, 0x80}}

func TestEncode_Golden(t *testing.T) {
	c, err := New(11, goldenShape)
	if err != nil {
		t.Fatal(err)
	}
	// 0.75, -1.5, 2, 0.25, 1e-3 as bfloat16, and a tail byte.
	row, _ := hex.DecodeString("403f" + "c0bf" + "0040" + "803e" + "833a" + "a5")
	dst := make([]byte, c.EncodeBound())
	n := c.encode(dst, row, 0)
	if got, want := hex.EncodeToString(dst[:n]), hex.EncodeToString(model(goldenShape, row, 0)); got != want {
		t.Errorf("got %s, the model %s", got, want)
	}
	if got, want := hex.EncodeToString(dst[:n]), "b45b0718080060500a"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestMetadata_RoundTripAndDamage(t *testing.T) {
	c, err := New(100, goldenShape)
	if err != nil {
		t.Fatal(err)
	}
	codectest.Metadata(t, c, Unmarshal)
}

func TestNew_BadInput(t *testing.T) {
	with := func(change func(*Shape)) func() (*Codec, error) {
		return func() (*Codec, error) {
			s := goldenShape
			change(&s)
			return New(64, s)
		}
	}
	codectest.Errors(t, map[string]func() (*Codec, error){
		"rank: row (0 bytes) must be 1 to 1048575":                       func() (*Codec, error) { return New(0, goldenShape) },
		"rank: row (1048576 bytes) must be 1 to 1048575":                 func() (*Codec, error) { return Train(nil, 1<<20, 4) },
		"rank: sample (0 rows) must have at least one row":               func() (*Codec, error) { return Train(nil, 8, 4) },
		"rank: sample (9 bytes) must be a multiple of the row (8 bytes)": func() (*Codec, error) { return Train(make([]byte, 9), 8, 4) },
		"rank: element (1 bytes) must be 2, 4 or 8":                      func() (*Codec, error) { return Train(make([]byte, 8), 8, 1) },
		"rank: rotation (2 bits) must be 0 or 1":                         with(func(s *Shape) { s.Rotate = 2 }),
		"rank: symbol (13 bits) must be 2 to 12":                         with(func(s *Shape) { s.SymbolBits = 13 }),
		"rank: levels (0) must be 1 to 8":                                with(func(s *Shape) { s.Digits = nil }),
		"rank: digit (5 bits) of level 0 must have 1 to 4":               with(func(s *Shape) { s.Digits = []int{5} }),
		"rank: symbols (4) must be as many as the digits [2 2] name":     with(func(s *Shape) { s.Digits = []int{2, 2} }),
		"rank: symbols (4) must be as many as the digits [2] name":       with(func(s *Shape) { s.Digits = []int{2} }),
		"rank: symbol (0x100) must have 8 bits":                          with(func(s *Shape) { s.Symbols = []uint16{1, 2, 256, 3} }),
		"rank: bases (3) must be as many as the elements of a row (32)":  with(func(s *Shape) { s.Bases = [][]uint16{make([]uint16, 3)} }),
		"rank: element (8 bytes) must be 2 or 4 with bases":              with(func(s *Shape) { s.ElementBytes, s.Bases = 8, [][]uint16{make([]uint16, 8)} }),
		"rank: classes (3) must be 1, 2, 4, 8 or 16":                     with(func(s *Shape) { s.Bases = make([][]uint16, 3) }),
		"rank: classes (0) must be 1, 2, 4, 8 or 16":                     with(func(s *Shape) { s.Bases = [][]uint16{} }),
		"rank: classes (32) must be 1, 2, 4, 8 or 16":                    with(func(s *Shape) { s.Bases = make([][]uint16, 32) }),
		"rank: symbol (0x7) must have one digit":                         with(func(s *Shape) { s.Symbols = []uint16{7, 2, 7, 3} }),
	})
}

// FuzzDecode feeds arbitrary metadata and stored bytes: never a panic, and what decodes agrees with Stored.
func FuzzDecode(f *testing.F) {
	r := rand.New(rand.NewPCG(9, 10))
	for _, n := range []int{1, 7, 64, 257, 1100} {
		for range 4 {
			s := withRandomBases(r, randomShape(r), n)
			c, _ := New(n, s)
			row, dst := make([]byte, n), make([]byte, c.EncodeBound())
			randomRow(r, s, row)
			meta, _ := c.MarshalBinary()
			f.Add(meta, dst[:c.encode(dst, row, r.IntN(max(1, len(s.Bases))))])
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
		if err == codec.ErrIncompressible && len(c.shape.Bases) > 1 { // of another class than the encoder's it may be shorter
			return
		}
		if err != nil || k > n && len(c.shape.Bases) <= 1 {
			t.Fatalf("the decoded row encodes to %d bytes (from %d), %v", k, n, err)
		}
		if _, err := c.Decode(again, dst[:k]); err != nil || !bytes.Equal(row, again) {
			t.Fatalf("the decoded row does not decode again: %v", err)
		}
	})
}

// TestGolden_Stored pins the format: the rows of the GPU's tests, too, are encoded by what it pins.
func TestGolden_Stored(t *testing.T) {
	var codecs []codec.Codec
	var rows [][]byte
	for _, elementBytes := range []int{2, 4, 8} {
		for _, rowBytes := range []int{46, 130, 259, 1031} {
			table := normal(uint64(rowBytes), 3*rowBytes, 1, elementBytes)[:3*rowBytes]
			c, err := Train(table, rowBytes, elementBytes)
			if err != nil {
				t.Fatal(err)
			}
			codecs, rows = append(codecs, c), append(rows, table[:rowBytes])
		}
	}
	for _, elementBytes := range []int{2, 4} {
		for _, columns := range []int{24, 75, 257} {
			table := unequal(uint64(columns), 600, columns, elementBytes)
			c, err := Train(table, columns*elementBytes, elementBytes)
			if err != nil {
				t.Fatal(err)
			}
			if c.shape.Bases == nil {
				t.Errorf("%d columns of elements of %d bytes got no bases", columns, elementBytes)
			}
			codecs, rows = append(codecs, c), append(rows, table[:columns*elementBytes])
		}
	}
	for _, elementBytes := range []int{2, 4} {
		for _, columns := range []int{24, 75, 160} {
			table := codectest.Vectors(uint64(columns), 1200, columns)
			if elementBytes == 2 {
				table = codectest.BFloat16(table)
			}
			c, err := Train(table, columns*elementBytes, elementBytes)
			if err != nil {
				t.Fatal(err)
			}
			if len(c.shape.Bases) < 2 {
				t.Errorf("%d columns of elements of %d bytes of rows of different lengths got %d classes", columns, elementBytes, len(c.shape.Bases))
			}
			codecs, rows = append(codecs, c), append(rows, table[:columns*elementBytes])
		}
	}
	codectest.Golden(t, Family.Unmarshal, codecs, rows)
}
