package sleek

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/codectest"
	"github.com/tensorcache/tensorcache/codec/internal/rowcodec"
	"github.com/tensorcache/tensorcache/dtype"
)

var (
	_ codec.Codec = (*Codec)(nil)

	dtypes = []dtype.Type{dtype.Float16, dtype.BFloat16, dtype.Float32, dtype.Float64}
)

func words(w ...uint32) []byte {
	var b []byte
	for _, x := range w {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}

// TestEncode_Golden: two subchunks of 16 bytes, of which the second is a word and a half, padded; widths 26 and 3.
func TestEncode_Golden(t *testing.T) {
	c, err := testCodec(dtype.Float32, 22, 16)
	if err != nil {
		t.Fatal(err)
	}
	row := words(0x3f800000, 0xbf800000, 0x40490fdb, 0, 0x80000000, 1)[:22]
	dst := make([]byte, c.EncodeBound())
	n, err := c.Encode(dst, row)
	// 03ffffff, 03fffffd, 00dbc093 and 0 in 26 bits each, then 2 and 4 in 3.
	if got := hex.EncodeToString(dst[:n]); err != nil || got != "1a03fffffff7ffff3f09bc0d00000022" {
		t.Fatalf("got %s, %v", got, err)
	}
	got := make([]byte, 22)
	if m, err := c.Decode(got, dst[:n]); err != nil || m != n || !bytes.Equal(got, row) {
		t.Fatalf("decoded %x, %d bytes, %v", got, m, err)
	}
}

// model writes the stored form one bit at a time, as docs/format/sleek.md describes it.
func model(c *Codec, row []byte) []byte {
	padded := append(bytes.Clone(row), make([]byte, c.word)...)
	var out, stream []byte
	n := 0
	for at := 0; at < len(row); at += c.subchunk {
		var codes []uint64
		width := 0
		for i := at; i < min(at+c.subchunk, len(row)); i += c.word {
			var b [8]byte
			copy(b[:c.word], padded[i:])
			x := binary.LittleEndian.Uint64(b[:])
			if c.bounded == nil {
				x = transcribed(x, c.layout)
			} else {
				x = c.bounded.code(x)
			}
			codes = append(codes, x)
			for x>>width != 0 {
				width++
			}
		}
		out = append(out, byte(width))
		for _, x := range codes {
			for b := range width {
				if n%8 == 0 {
					stream = append(stream, 0)
				}
				stream[n/8] |= byte(x>>b&1) << (n % 8)
				n++
			}
		}
	}
	return append(out, stream...)
}

// randomRow has runs of words that take about as many bits, hard ones among them.
func randomRow(r *rand.Rand, l layout, row []byte) {
	hard := []uint64{0, 1, 1 << (8*l.word - 1), 1<<(8*l.word-1) | 1, ^uint64(0), (1<<l.exponent - 1) << l.mantissa(), 1 << l.mantissa(), 1<<l.mantissa() - 1, 1 << (8*l.word - 2)}
	shift := r.IntN(8 * l.word)
	ln := lanesOf(l)
	var b [8]byte
	for i := 0; i < len(row); i += l.word {
		if r.IntN(30) == 0 {
			shift = r.IntN(8*l.word + 1)
		}
		x := ln.inverse(r.Uint64() & ln.full >> shift)
		if r.IntN(40) == 0 {
			x = hard[r.IntN(len(hard))]
		}
		binary.LittleEndian.PutUint64(b[:], x)
		copy(row[i:], b[:l.word])
	}
}

// randomCodec is lossless, or with eb bounded by some power of two.
func randomCodec(r *rand.Rand, of dtype.Type, rowBytes int, eb bool) *Codec {
	subchunk := minSubchunk << r.IntN(7)
	c, err := testCodec(of, rowBytes, subchunk)
	if eb {
		c, err = testBounded(math.Ldexp(1, r.IntN(24)-12), of, rowBytes, subchunk)
	}
	if err != nil {
		panic(err)
	}
	return c
}

// TestRoundTrip_ModelAllLengths compares with a bit-at-a-time model for every row length around words, groups and
// subchunks, and a few long ones; stored rows lie at the end of their memory and amid it.
func TestRoundTrip_ModelAllLengths(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	lengths := []int{1023, 1024, 1025, 4096, 5732, 65537}
	for n := 1; n <= 300; n++ {
		lengths = append(lengths, n)
	}
	if !testing.Short() {
		lengths = append(lengths, 1<<20-1)
	}
	for _, n := range lengths {
		for _, of := range dtypes {
			for k := range 4 {
				eb := k == 3
				c := randomCodec(r, of, n, eb)
				row, got := make([]byte, n), make([]byte, n)
				randomRow(r, c.layout, row)
				want := model(c, row)
				dst := bytes.Repeat([]byte{0xa5}, c.EncodeBound())
				stored := c.encode(dst, row)
				if !bytes.Equal(dst[:stored], want) {
					t.Fatalf("%v row %d G %d: stored form differs from the model's:\n%x\n%x", of, n, c.subchunk, dst[:stored], want)
				}
				if sum := sampleBytes(row, []*Codec{c})[0]; sum != int64(min(stored, n)) {
					t.Fatalf("%v row %d: training counts %d bytes, want %d", of, n, sum, stored)
				}
				for _, src := range [][]byte{dst[:stored:stored], dst} {
					if m, err := c.Stored(src); err != nil || m != stored {
						t.Fatalf("%v row %d: Stored = %d, %v, want %d", of, n, m, err, stored)
					}
					m, err := c.Decode(got, src)
					if err != nil || m != stored || !eb && !bytes.Equal(got, row) {
						t.Fatalf("%v row %d G %d: does not decode (%d of %d bytes, %v)", of, n, c.subchunk, m, stored, err)
					}
					// A padded word of the bounded mode is whole when coded and cut when read.
					if again := model(c, got); eb && n%c.word == 0 && !bytes.Equal(again, want) {
						t.Fatalf("%v row %d %s: what is read back has another stored form", of, n, c.Name())
					}
				}
				if _, err := c.Encode(dst, row); (err == nil) != (stored < n) || err != nil && err != codec.ErrIncompressible {
					t.Fatalf("%v row %d: stored %d, Encode says %v", of, n, stored, err)
				}
			}
		}
	}
}

// TestRoundTrip_ArbitraryBytes trains on part of the bytes and encodes all of them.
func TestRoundTrip_ArbitraryBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := rapid.SampledFrom(dtypes).Draw(t, "element type")
		rowBytes := rapid.IntRange(1, 200).Draw(t, "row bytes")
		table := rapid.SliceOfN(rapid.Byte(), rowBytes, rowBytes*8).Draw(t, "table")
		rows := len(table) / rowBytes
		table = table[:rows*rowBytes]
		sampled := rapid.IntRange(1, rows).Draw(t, "sampled")
		c, err := Train(table[:sampled*rowBytes], rowBytes, of)
		if err != nil {
			t.Fatal(err)
		}
		dst, got := make([]byte, c.EncodeBound()), make([]byte, rowBytes)
		for r := range rows {
			row := table[r*rowBytes:][:rowBytes]
			n := c.encode(dst, row)
			if m, err := c.Decode(got, dst[:n:n]); err != nil || m != n || !bytes.Equal(got, row) {
				t.Fatalf("row %d: %d of %d bytes, %v", r, m, n, err)
			}
		}
	})
}

func TestDecode_CorruptRows(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, of := range dtypes {
		c := randomCodec(r, of, 150, false)
		row, dst := make([]byte, 150), make([]byte, c.EncodeBound())
		randomRow(r, c.layout, row)
		n := c.encode(dst, row)
		codectest.Cut(t, c, dst[:n])
		dst[0] = byte(8*c.word + 1)
		_, err := c.Decode(row, append(dst, make([]byte, 1000)...))
		if want := fmt.Sprintf("codec: corrupt data: sleek: width (%d bits) is more than a word's (%d)", 8*c.word+1, 8*c.word); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestDecode_DoesNotAllocate(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, of := range dtypes {
		for _, eb := range []bool{false, true} {
			c := randomCodec(r, of, 1001, eb)
			row, dst := make([]byte, 1001), make([]byte, c.EncodeBound())
			randomRow(r, c.layout, row)
			if n := testing.AllocsPerRun(10, func() {
				n := c.encode(dst, row)
				if _, err := c.Decode(row, dst[:n:n]); err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("%v, bounded %v: %v allocations", of, eb, n)
			}
		}
	}
}

func TestMetadata_RoundTripAndDamage(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, of := range dtypes {
		for _, eb := range []bool{false, true} {
			codectest.Metadata(t, randomCodec(r, of, 129, eb), Unmarshal)
		}
	}
}

// TestUnmarshal_HostileMetadata: whole metadata with one field that no codec has.
func TestUnmarshal_HostileMetadata(t *testing.T) {
	c, err := testBounded(0.5, dtype.Float32, 128, 64)
	if err != nil {
		t.Fatal(err)
	}
	codectest.HostileMetadata(t, c, "sleek", Unmarshal, resum, map[string]func(b []byte){
		"metadata version (2) is not 1":                                     func(b []byte) { b[4] = 2 },
		"word (4 bytes, 11 bits of exponent) is of no element type":         func(b []byte) { b[6] = 11 },
		"mode (2, bound 2^-1) is neither lossless nor bounded":              func(b []byte) { b[7] = 2 },
		"mode (0, bound 2^-1) is neither lossless nor bounded":              func(b []byte) { b[7] = 0 },
		"bound (2^104) is not one of the element type's":                    func(b []byte) { b[14], b[15] = 104, 0 },
		"bound (2^-151) is not one of the element type's":                   func(b []byte) { b[14], b[15] = 0x69, 0xff },
		"sleek: row (0 bytes) must be 1 to 1048575":                         func(b []byte) { b[8] = 0 },
		"sleek: row (16777344 bytes) must be 1 to 1048575":                  func(b []byte) { b[11] = 1 },
		"sleek: subchunk (48 bytes) must be a power of two from 16 to 1024": func(b []byte) { b[12] = 48 },
		"sleek: subchunk (0 bytes) must be a power of two from 16 to 1024":  func(b []byte) { b[12] = 0 },
	})
}

func TestNew_BadInput(t *testing.T) {
	codectest.Errors(t, map[string]func() (*Codec, error){
		"sleek: row (0 bytes) must be 1 to 1048575":                         func() (*Codec, error) { return testCodec(dtype.Float32, 0, 64) },
		"sleek: row (1048576 bytes) must be 1 to 1048575":                   func() (*Codec, error) { return Train(nil, 1<<20, dtype.Float32) },
		"sleek: subchunk (8 bytes) must be a power of two from 16 to 1024":  func() (*Codec, error) { return testCodec(dtype.Float64, 8, 8) },
		"sleek: subchunk (96 bytes) must be a power of two from 16 to 1024": func() (*Codec, error) { return testCodec(dtype.Float64, 8, 96) },
		"sleek: sample (0 rows) must have at least one row":                 func() (*Codec, error) { return Train(nil, 8, dtype.Float16) },
		"sleek: sample (9 bytes) must be a multiple of the row (8 bytes)":   func() (*Codec, error) { return Train(make([]byte, 9), 8, dtype.BFloat16) },
		"sleek: bound (0) must be positive and finite":                      func() (*Codec, error) { return testBounded(0, dtype.Float32, 8, 64) },
		"sleek: bound (-1) must be positive and finite":                     func() (*Codec, error) { return testBounded(-1, dtype.Float32, 8, 64) },
		"sleek: bound (NaN) must be positive and finite":                    func() (*Codec, error) { return TrainBounded(make([]byte, 8), 8, dtype.Float32, math.NaN()) },
		"sleek: bound (+Inf) must be positive and finite":                   func() (*Codec, error) { return testBounded(math.Inf(1), dtype.Float32, 8, 64) },
		"codec: element type not served: sleek: element type (int8) must be float16, bfloat16, float32 or float64": func() (*Codec, error) {
			return Train(make([]byte, 8), 8, dtype.Int8)
		},
	})
}

// TestTrain_PicksTheSubchunk: one large word in 16 is best in a short subchunk, words of one width in a long one.
func TestTrain_PicksTheSubchunk(t *testing.T) {
	sparse, even := make([]byte, 4096), make([]byte, 4096)
	for i := 0; i < 4096; i += 4 {
		binary.LittleEndian.PutUint32(even[i:], math.Float32bits(1.5))
		if i%64 == 0 {
			binary.LittleEndian.PutUint32(sparse[i:], math.Float32bits(1.5))
		}
	}
	for _, tc := range []struct {
		table []byte
		want  int
	}{{sparse, 16}, {even, 1024}} {
		c, err := Train(tc.table, 2048, dtype.Float32)
		if err != nil || c.SubchunkBytes() != tc.want {
			t.Errorf("subchunk of %d bytes, %v, want %d", c.SubchunkBytes(), err, tc.want)
		}
	}
}

// FuzzDecode feeds arbitrary metadata and stored bytes: never a panic, and what decodes agrees with Stored.
func FuzzDecode(f *testing.F) {
	r := rand.New(rand.NewPCG(9, 10))
	for _, n := range []int{1, 7, 8, 64, 257} {
		for _, of := range dtypes {
			for _, eb := range []bool{false, true} {
				c := randomCodec(r, of, n, eb)
				row, dst := make([]byte, n), make([]byte, c.EncodeBound())
				randomRow(r, c.layout, row)
				metadata, _ := c.MarshalBinary()
				f.Add(metadata, dst[:c.encode(dst, row)])
			}
		}
	}
	f.Fuzz(func(t *testing.T, metadata, stored []byte) {
		c, err := Unmarshal(metadata)
		if err != nil {
			if !errors.Is(err, codec.ErrCorrupt) {
				t.Fatal(err)
			}
			if len(metadata) != metadataBytes {
				return
			}
			// The checksum keeps the fuzzer out: make it right.
			metadata = bytes.Clone(metadata)
			copy(metadata, frame.Begin())
			metadata[10], metadata[11] = 0, 0
			if c, err = Unmarshal(resum(metadata)); err != nil {
				return
			}
		}
		row, n, ok := codectest.Decodes(t, c, stored)
		if !ok {
			return
		}
		dst := make([]byte, c.EncodeBound())
		again := make([]byte, c.RowBytes())
		k, err := c.Decode(again, dst[:c.encode(dst, row)])
		if err != nil || c.bounded == nil && !bytes.Equal(row, again) {
			t.Fatalf("the decoded row encodes to %d bytes (from %d), which decode to %x, not %x, %v", k, n, again, row, err)
		}
		// Where a row ends inside a word, stored garbage may have had other bits there than the zeros of an encoder.
		if k > n && c.rowBytes%c.word == 0 {
			t.Fatalf("the decoded row encodes to %d bytes (from %d)", k, n)
		}
	})
}

// resum makes a metadata's checksum right.
func resum(b []byte) []byte {
	return rowcodec.Seal(b[:metadataBytes-4])
}

// normal returns words of N(0,1).
func normal(words int, of dtype.Type) []byte {
	r := rand.New(rand.NewPCG(7, 8))
	var b []byte
	for range words {
		f := r.NormFloat64()
		switch of {
		case dtype.Float64:
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(f))
		case dtype.Float32:
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(f)))
		case dtype.BFloat16:
			b = binary.LittleEndian.AppendUint16(b, uint16(math.Float32bits(float32(f))>>16))
		default: // float16: small ones become zero
			x := math.Float32bits(float32(f))
			b = binary.LittleEndian.AppendUint16(b, uint16(x>>16&0x8000)|uint16(max(int32(x>>13&0x3ffff)-112<<10, 0)))
		}
	}
	return b
}

// TestTrain_CountsWhatIsStored holds the bytes that training counts, for all subchunk lengths in one pass, on what each codec stores.
func TestTrain_CountsWhatIsStored(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, rowBytes := range []int{1, 15, 16, 17, 100, 128, 1000, 1024, 1025, 3001} {
		for _, of := range dtypes {
			l, err := layoutOf(of)
			if err != nil {
				t.Fatal(err)
			}
			table := make([]byte, 20*rowBytes)
			for i := range 20 {
				randomRow(r, l, table[i*rowBytes:][:rowBytes])
			}
			var codecs []*Codec
			for subchunk := maxSubchunk; subchunk >= minSubchunk; subchunk /= 2 {
				c, err := newCodec(l, rowBytes, subchunk, nil)
				if err != nil {
					t.Fatal(err)
				}
				codecs = append(codecs, c)
			}
			for k, got := range sampleBytes(table, codecs) {
				want := int64(0)
				dst := make([]byte, codecs[k].EncodeBound())
				for i := range 20 {
					want += int64(min(rowBytes, codecs[k].encode(dst, table[i*rowBytes:][:rowBytes])))
				}
				if got != want {
					t.Errorf("%v row %d G %d: training counts %d bytes, want %d", of, rowBytes, codecs[k].subchunk, got, want)
				}
			}
		}
	}
}
