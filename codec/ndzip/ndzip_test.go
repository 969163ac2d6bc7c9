package ndzip

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
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

// TestEncode_Golden: a group of bfloat16, worked out by hand, and a remainder of a word and a half.
func TestEncode_Golden(t *testing.T) {
	c, err := New(dtype.BFloat16, 35)
	if err != nil {
		t.Fatal(err)
	}
	// 1, 1, -1, 0, then zeros: rotated 7f00 7f00 7f01 0000, residuals 7f00 0000 0001 80ff → 7f00 0000 0001 ff00.
	row := make([]byte, 35)
	for i, x := range []uint16{0x3f80, 0x3f80, 0xbf80} {
		binary.LittleEndian.PutUint16(row[2*i:], x)
	}
	copy(row[32:], "abc")
	dst := make([]byte, c.EncodeBound())
	n, err := c.Encode(dst, row)
	// Head ff01: bit 15 in residual 3, bits 14 to 8 in residuals 0 and 3, bit 0 in residual 2.
	const want = "01ff" + "0010" + "0090" + "0090" + "0090" + "0090" + "0090" + "0090" + "0090" + "0020" + "616263"
	if got := hex.EncodeToString(dst[:n]); err != nil || got != want {
		t.Fatalf("got %s, %v", got, err)
	}
	got := make([]byte, 35)
	if m, err := c.Decode(got, dst[:n]); err != nil || m != n || !bytes.Equal(got, row) {
		t.Fatalf("decoded %x, %d bytes, %v", got, m, err)
	}
}

// model writes the stored form as docs/format/ndzip.md describes it, bit by bit.
func model(word int, row []byte) []byte {
	width := 8 * word
	full := ^uint64(0) >> (64 - width)
	load := func(i int) uint64 {
		var b [8]byte
		copy(b[:word], row[i*word:])
		return binary.LittleEndian.Uint64(b[:])
	}
	store := func(out []byte, x uint64) []byte {
		return append(out, binary.LittleEndian.AppendUint64(nil, x)[:word]...)
	}
	groups := len(row) / (width * word)
	var heads, columns []byte
	last := uint64(0)
	for g := range groups {
		residuals, head := make([]uint64, width), uint64(0)
		for j := range residuals {
			x := load(g*width + j)
			x = (x<<1 | x>>(width-1)) & full
			r := (x - last) & full
			last = x
			if r>>(width-1) != 0 {
				r ^= full >> 1
			}
			residuals[j] = r
			head |= r
		}
		heads = store(heads, head)
		for b := width - 1; b >= 0; b-- {
			if head>>b&1 == 0 {
				continue
			}
			column := uint64(0)
			for j, r := range residuals {
				column |= r >> b & 1 << (width - 1 - j)
			}
			columns = store(columns, column)
		}
	}
	return append(append(heads, columns...), row[groups*width*word:]...)
}

// randomRow has runs of words that differ in about as many bits, and hard ones among them.
func randomRow(r *rand.Rand, word int, row []byte) {
	var b [8]byte
	x, shift := r.Uint64(), r.IntN(64)
	for i := 0; i < len(row); i += word {
		switch r.IntN(100) {
		case 0:
			shift = r.IntN(64)
		case 1:
			x = 0
		case 2:
			x = ^uint64(0)
		case 3:
			x = 1 << (8*word - 1)
		default:
			x += r.Uint64() >> shift
			x -= r.Uint64() >> shift
		}
		binary.LittleEndian.PutUint64(b[:], x)
		copy(row[i:], b[:word])
	}
}

// TestRoundTrip_ModelAllLengths compares with a model that works bit by bit for every row length around words and groups, and a few
// long ones.
func TestRoundTrip_ModelAllLengths(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	lengths := []int{1023, 1024, 1025, 1536, 4096, 5732, 65537}
	for n := 1; n <= 540; n++ {
		lengths = append(lengths, n)
	}
	if !testing.Short() {
		lengths = append(lengths, 1<<20-1)
	}
	for _, n := range lengths {
		for _, of := range dtypes {
			c, err := New(of, n)
			if err != nil {
				t.Fatal(err)
			}
			row, got := make([]byte, n), make([]byte, n)
			for range 2 {
				randomRow(r, c.word, row)
				want := model(c.word, row)
				dst := bytes.Repeat([]byte{0xa5}, c.EncodeBound())
				stored := c.encode(dst, row)
				if !bytes.Equal(dst[:stored], want) {
					t.Fatalf("%v row %d: stored form differs from the model's", of, n)
				}
				for _, src := range [][]byte{dst[:stored:stored], dst} {
					if m, err := c.Stored(src); err != nil || m != stored {
						t.Fatalf("%v row %d: Stored = %d, %v, want %d", of, n, m, err, stored)
					}
					if m, err := c.Decode(got, src); err != nil || m != stored || !bytes.Equal(got, row) {
						t.Fatalf("%v row %d: does not decode (%d of %d bytes, %v)", of, n, m, stored, err)
					}
				}
				if _, err := c.Encode(dst, row); (err == nil) != (stored < n) || err != nil && err != codec.ErrIncompressible {
					t.Fatalf("%v row %d: stored %d, Encode says %v", of, n, stored, err)
				}
			}
		}
	}
}

func TestRoundTrip_ArbitraryBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := rapid.SampledFrom(dtypes).Draw(t, "element type")
		row := rapid.SliceOfN(rapid.Byte(), 1, 1100).Draw(t, "row")
		c, err := New(of, len(row))
		if err != nil {
			t.Fatal(err)
		}
		dst, got := make([]byte, c.EncodeBound()), make([]byte, len(row))
		n := c.encode(dst, row)
		if m, err := c.Decode(got, dst[:n:n]); err != nil || m != n || !bytes.Equal(got, row) {
			t.Fatalf("%d of %d bytes, %v", m, n, err)
		}
	})
}

func TestDecode_CorruptRows(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, of := range dtypes {
		c, err := New(of, 1100)
		if err != nil {
			t.Fatal(err)
		}
		row, dst := make([]byte, 1100), make([]byte, c.EncodeBound())
		randomRow(r, c.word, row)
		codectest.Cut(t, c, dst[:c.encode(dst, row)])
	}
}

func TestDecode_DoesNotAllocate(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, of := range dtypes {
		c, err := New(of, 1100)
		if err != nil {
			t.Fatal(err)
		}
		row, dst := make([]byte, 1100), make([]byte, c.EncodeBound())
		randomRow(r, c.word, row)
		if n := testing.AllocsPerRun(10, func() {
			n := c.encode(dst, row)
			if _, err := c.Decode(row, dst[:n:n]); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%v: %v allocations", of, n)
		}
	}
}

func TestMetadata_RoundTripAndDamage(t *testing.T) {
	for _, of := range dtypes {
		c, err := New(of, 129)
		if err != nil {
			t.Fatal(err)
		}
		codectest.Metadata(t, c, Unmarshal)
	}
}

// resum makes a metadata's checksum right.
func resum(b []byte) []byte {
	return rowcodec.Seal(b[:metadataBytes-4])
}

// TestUnmarshal_HostileMetadata: whole metadata with one field that no codec has.
func TestUnmarshal_HostileMetadata(t *testing.T) {
	c, err := New(dtype.Float32, 128)
	if err != nil {
		t.Fatal(err)
	}
	codectest.HostileMetadata(t, c, "ndzip", Unmarshal, resum, map[string]func(b []byte){
		"metadata version (2) is not 1":                    func(b []byte) { b[4] = 2 },
		"word (3 bytes) must be 2, 4 or 8":                 func(b []byte) { b[5] = 3 },
		"metadata bytes 6 and 7 (00 01) are not 0":         func(b []byte) { b[7] = 1 },
		"ndzip: row (0 bytes) must be 1 to 1048575":        func(b []byte) { b[8] = 0 },
		"ndzip: row (16777344 bytes) must be 1 to 1048575": func(b []byte) { b[11] = 1 },
	})
}

func TestTrain_BadInput(t *testing.T) {
	codectest.Errors(t, map[string]func() (codec.Codec, error){
		"ndzip: row (0 bytes) must be 1 to 1048575":                       func() (codec.Codec, error) { return NDZip.Train(nil, 0, dtype.Float32) },
		"ndzip: row (1048576 bytes) must be 1 to 1048575":                 func() (codec.Codec, error) { return NDZip.Train(nil, 1<<20, dtype.Float32) },
		"ndzip: sample (0 rows) must have at least one row":               func() (codec.Codec, error) { return NDZip.Train(nil, 8, dtype.Float16) },
		"ndzip: sample (9 bytes) must be a multiple of the row (8 bytes)": func() (codec.Codec, error) { return NDZip.Train(make([]byte, 9), 8, dtype.BFloat16) },
		"codec: element type not served: ndzip: element type (int32) must be float16, bfloat16, float32 or float64": func() (codec.Codec, error) {
			return NDZip.Train(make([]byte, 8), 8, dtype.Int32)
		},
	})
}

// FuzzDecode feeds arbitrary stored bytes: never a panic, what decodes agrees with Stored, and encodes to no more bytes.
func FuzzDecode(f *testing.F) {
	r := rand.New(rand.NewPCG(9, 10))
	for _, n := range []int{1, 32, 67, 128, 513, 1100} {
		for _, of := range dtypes {
			c, err := New(of, n)
			if err != nil {
				f.Fatal(err)
			}
			row, dst := make([]byte, n), make([]byte, c.EncodeBound())
			randomRow(r, c.word, row)
			metadata, _ := c.MarshalBinary()
			f.Add(metadata, dst[:c.encode(dst, row)])
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
			metadata[6], metadata[7], metadata[10], metadata[11] = 0, 0, 0, 0
			if c, err = Unmarshal(resum(metadata)); err != nil {
				return
			}
		}
		row, n, ok := codectest.Decodes(t, c, stored)
		if !ok {
			return
		}
		dst, again := make([]byte, c.EncodeBound()), make([]byte, c.RowBytes())
		if k, err := c.Decode(again, dst[:c.encode(dst, row)]); err != nil || k > n || !bytes.Equal(row, again) {
			t.Fatalf("the decoded row encodes to %d bytes (from %d), %v", k, n, err)
		}
	})
}
