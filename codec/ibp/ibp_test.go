package ibp

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"encoding/binary"

	"pgregory.net/rapid"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/codectest"
	"github.com/tensorcache/tensorcache/dtype"
)

var _ codec.Codec = (*Codec)(nil)

func words(w ...uint32) []byte {
	var b []byte
	for _, x := range w {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}

func goldenCodec(t *testing.T) (*Codec, []byte) {
	c, err := New(4, 12, words(0xff00ff00, 0xff00ff00, 0), words(0x12003400, 0x12003400, 0))
	if err != nil {
		t.Fatal(err)
	}
	return c, words(0x12ab34cd, 0x13ab34cd, 0xdeadbeef)
}

func TestEncode_Golden(t *testing.T) {
	c, row := goldenCodec(t)
	dst := make([]byte, c.EncodeBound())
	n, err := c.Encode(dst, row)
	if got := hex.EncodeToString(dst[:n]); err != nil || got != "6d5e6da6599d78f76df506" {
		t.Fatalf("got %s, %v", got, err)
	}
	got := make([]byte, 12)
	if m, err := c.Decode(got, dst[:n]); err != nil || m != n || !bytes.Equal(got, row) {
		t.Fatalf("decoded %x, %d bytes, %v", got, m, err)
	}
}

func TestReference_Golden(t *testing.T) {
	c, row := goldenCodec(t)
	stored := c.AppendReference(nil, row)
	if want := words(0x00000005, 0xabcd13ab, 0x34cddead, 0xbeef0000); !bytes.Equal(stored, want) {
		t.Fatalf("got %x, want %x", stored, want)
	}
	got := make([]byte, 12)
	if n, err := c.DecodeReference(got, stored); err != nil || n != len(stored) || !bytes.Equal(got, row) {
		t.Fatalf("decoded %x, %d bytes, %v", got, n, err)
	}
	for n := range stored[:14] { // the last two bytes are padding
		if n >= 12 {
			break
		}
		if _, err := c.DecodeReference(got, stored[:n]); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%d bytes: %v, want ErrCorrupt", n, err)
		}
	}
}

// randomCodec has a random mask of random density; rows that match it partly come from randomRow.
func randomCodec(r *rand.Rand, chunk, rowBytes int) *Codec {
	n := (rowBytes + chunk - 1) / chunk * chunk
	mask, bitval := make([]byte, n), make([]byte, n)
	density := r.IntN(4)
	for i := range mask {
		mask[i] = byte(r.Uint32())
		for range density {
			mask[i] |= byte(r.Uint32())
		}
		if r.IntN(8) == 0 {
			mask[i] = 0
		}
		if i < rowBytes {
			bitval[i] = byte(r.Uint32()) & mask[i]
		}
	}
	c, err := New(chunk, rowBytes, mask, bitval)
	if err != nil {
		panic(err)
	}
	return c
}

func randomRow(r *rand.Rand, c *Codec, row []byte) {
	mask, bitval := c.MaskBitval()
	match := r.IntN(3)
	for j := 0; j < len(row); j += c.chunk {
		follow := match == 2 || match == 1 && r.IntN(2) == 0
		for i := j; i < min(j+c.chunk, len(row)); i++ {
			row[i] = byte(r.Uint32())
			if follow {
				row[i] = row[i]&^mask[i] | bitval[i]
			}
		}
	}
}

// TestRoundTrip_ModelAllLengths compares both layouts with a bit-at-a-time model for every row length around the group
// and block boundaries, and a few long ones.
func TestRoundTrip_ModelAllLengths(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	lengths := []int{1023, 4096, 5732, 65537}
	for n := 1; n <= 530; n++ {
		lengths = append(lengths, n)
	}
	if !testing.Short() {
		lengths = append(lengths, 1<<20-1)
	}
	for _, n := range lengths {
		for _, chunk := range []int{2, 4, 8} {
			c := randomCodec(r, chunk, n)
			row, got := make([]byte, n), make([]byte, n)
			dst := make([]byte, c.EncodeBound())
			for range 4 {
				randomRow(r, c, row)
				want := model(c, row)
				for i := range dst {
					dst[i] = 0xa5
				}
				stored := c.encode(dst, row)
				if !bytes.Equal(dst[:stored], want) {
					t.Fatalf("%s row %d: stored form differs from the model's", c.name, n)
				}
				if m, err := c.Stored(dst[:stored]); err != nil || m != stored || (c.rowBits(row)+7)/8 != stored {
					t.Fatalf("%s row %d: Stored = %d, %v, want %d", c.name, n, m, err, stored)
				}
				if m, err := c.Decode(got, dst[:stored]); err != nil || m != stored || !bytes.Equal(got, row) {
					t.Fatalf("%s row %d: does not decode (%d of %d bytes, %v)", c.name, n, m, stored, err)
				}
				if _, err := c.Encode(dst, row); (err == nil) != (stored < n) || err != nil && err != codec.ErrIncompressible {
					t.Fatalf("%s row %d: stored %d, Encode says %v", c.name, n, stored, err)
				}
				if n <= 530 {
					ref := c.AppendReference(nil, row)
					if m, err := c.DecodeReference(got, ref); err != nil || m != len(ref) || !bytes.Equal(got, row) {
						t.Fatalf("%s row %d: reference layout does not decode (%v)", c.name, n, err)
					}
				}
			}
		}
	}
}

// model writes the byte-tight layout one bit at a time, as docs/format/ibp.md describes it.
func model(c *Codec, row []byte) []byte {
	var out []byte
	n := 0
	put := func(bit uint64) {
		if n%8 == 0 {
			out = append(out, 0)
		}
		out[n/8] |= byte(bit&1) << (n % 8)
		n++
	}
	for j := range c.chunks {
		x, mask, val := c.chunkAt(row, j)
		if x&mask == val {
			put(1)
		} else {
			put(0)
		}
	}
	for j := range c.chunks {
		x, mask, val := c.chunkAt(row, j)
		if x&mask != val {
			mask = 0
		}
		for b := range 8 * c.chunk {
			if mask>>b&1 == 0 {
				put(x >> b)
			}
		}
	}
	return out
}

// TestRoundTrip_ArbitraryBytes trains on part of the bytes and encodes all of them.
func TestRoundTrip_ArbitraryBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rowBytes := rapid.IntRange(1, 96).Draw(t, "row bytes")
		table := rapid.SliceOfN(rapid.Byte(), rowBytes, rowBytes*12).Draw(t, "table")
		rows := len(table) / rowBytes
		table = table[:rows*rowBytes]
		sampled := rapid.IntRange(1, rows).Draw(t, "sampled")
		for _, train := range []func([]byte, int, dtype.Type) (codec.Codec, error){IBP4.Train, IBP8.Train, IBP.Train} {
			c, err := train(table[:sampled*rowBytes], rowBytes, dtype.Uint8)
			if err != nil {
				t.Fatal(err)
			}
			codectest.RoundTrip(t, c, table)
		}
	})
}

func TestDecode_TruncatedIsCorrupt(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, chunk := range []int{2, 4, 8} {
		c := randomCodec(r, chunk, 133)
		row, dst := make([]byte, 133), make([]byte, c.EncodeBound())
		randomRow(r, c, row)
		n := c.encode(dst, row)
		codectest.Cut(t, c, dst[:n])
	}
}

func TestMetadata_RoundTripAndDamage(t *testing.T) {
	codectest.Metadata(t, randomCodec(rand.New(rand.NewPCG(5, 6)), 4, 29), Unmarshal)
}

func TestNew_BadInput(t *testing.T) {
	codectest.Errors(t, map[string]func() (*Codec, error){
		"ibp: chunk (5 bytes) must be 2, 4 or 8":                        func() (*Codec, error) { return New(5, 8, nil, nil) },
		"ibp: row (0 bytes) must be 1 to 1048575":                       func() (*Codec, error) { return New(4, 0, nil, nil) },
		"ibp: row (1048576 bytes) must be 1 to 1048575":                 func() (*Codec, error) { return Train(nil, 1<<20, 4) },
		"ibp: mask and bitval (4 and 8 bytes) must have 8 bytes each":   func() (*Codec, error) { return New(4, 7, make([]byte, 4), make([]byte, 8)) },
		"ibp: sample (0 rows) must have at least one row":               func() (*Codec, error) { return Train(nil, 8, 4) },
		"ibp: sample (9 bytes) must be a multiple of the row (8 bytes)": func() (*Codec, error) { return Train(make([]byte, 9), 8, 4) },
		"ibp: bitval (00000000000000ff) has bits outside mask (ffffffff00000000) in bytes 0 to 7": func() (*Codec, error) {
			return New(4, 4, words(0), words(0xff))
		},
	})
}

// normal returns rows of N(0,1) float32, column j scaled by scale(j).
func normal(rows, cols int, scale func(int) float64) []byte {
	r := rand.New(rand.NewPCG(7, 8))
	b := make([]byte, 0, rows*cols*4)
	for range rows {
		for j := range cols {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(r.NormFloat64()*scale(j))))
		}
	}
	return b
}

// TestGrow_EqualsCountingEveryBit: bits that cannot be the next are not counted, which changes no mask.
func TestGrow_EqualsCountingEveryBit(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for range 300 {
		rows, chunk := 1+r.IntN(300), []int{2, 4, 8}[r.IntN(3)]
		sample := make([]byte, rows*chunk)
		for i := range sample {
			sample[i] = byte(r.Uint32()>>r.IntN(16)) >> r.IntN(8)
		}
		chunks := make([]uint64, rows)
		for i := range chunks {
			for b := range chunk {
				chunks[i] |= uint64(sample[i*chunk+b]) << (8 * b)
			}
		}
		p := newPlanes(rows, 8*chunk)
		p.load(sample, chunk, 0)
		mask, val := p.grow()
		if wantMask, wantVal := growCounting(chunks, 8*chunk); mask != wantMask || val != wantVal {
			t.Fatalf("%d rows, chunks of %d: mask %x, value %x, want %x and %x", rows, chunk, mask, val, wantMask, wantVal)
		}
	}
}

// growCounting is planes.grow, chunk by chunk and bit by bit.
func growCounting(chunks []uint64, width int) (mask, val uint64) {
	var m, v uint64
	best := 0
	for n := 1; n <= width; n++ {
		bit, keep, one := -1, -1, uint64(0)
		for b := range width {
			for _, value := range []uint64{1, 0} {
				count := 0
				for _, c := range chunks {
					if c>>b&1 == value {
						count++
					}
				}
				if m>>b&1 == 0 && count > keep {
					bit, keep, one = b, count, value
				}
			}
		}
		m, v = m|1<<bit, v|one<<bit
		chunks = slices.DeleteFunc(chunks, func(c uint64) bool { return c>>bit&1 != one })
		if saved := keep * n; saved > best {
			best, mask, val = saved, m, v
		}
	}
	return mask, val
}

// TestTrain_GrownMasksBeatOneThreshold holds the reason for growing masks: columns of unequal scale.
func TestTrain_GrownMasksBeatOneThreshold(t *testing.T) {
	scale := func(j int) float64 { return math.Exp(math.Sin(float64(j)) * 1.5) }
	sample := normal(2000, 64, scale)
	best, err := Train(sample, 256, 4)
	if err != nil {
		t.Fatal(err)
	}
	bestSweep := int64(math.MaxInt64)
	search, err := SearchOf(sample, 256)
	if err != nil {
		t.Fatal(err)
	}
	byThreshold, err := thresholdMasks(search)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range byThreshold {
		c, err := New(4, 256, m.Mask, m.Bitval)
		if err != nil {
			t.Fatal(err)
		}
		bestSweep = min(bestSweep, c.sampleBytes(sample))
	}
	got, sweep := 1-float64(best.sampleBytes(sample))/float64(len(sample)), 1-float64(bestSweep)/float64(len(sample))
	t.Logf("saving %.3f grown, %.3f threshold sweep", got, sweep)
	if got < 0.09 || got < sweep+0.02 {
		t.Errorf("saving %.3f grown, %.3f threshold sweep: want at least 0.09 and 0.02 more", got, sweep)
	}
}

func TestTrain_InvariantTableCostsParticipationBitsOnly(t *testing.T) {
	row := []byte(strings.Repeat("invariant!", 10))
	c, err := Train(bytes.Repeat(row, 70), len(row), 4, 8)
	if err != nil {
		t.Fatal(err)
	}
	dst := make([]byte, c.EncodeBound())
	if n, err := c.Encode(dst, row); err != nil || n != 2 { // 13 chunks of 8 bytes
		t.Fatalf("stored %d bytes, %v, want 2", n, err)
	}
}

// FuzzDecode feeds arbitrary metadata and stored bytes: never a panic, and what decodes agrees with Stored.
func FuzzDecode(f *testing.F) {
	r := rand.New(rand.NewPCG(9, 10))
	for _, n := range []int{1, 7, 8, 12, 64, 257} {
		for _, chunk := range []int{2, 4, 8} {
			c := randomCodec(r, chunk, n)
			row, dst := make([]byte, n), make([]byte, c.EncodeBound())
			randomRow(r, c, row)
			meta, _ := c.MarshalBinary()
			f.Add(meta, dst[:c.encode(dst, row)])
		}
	}
	f.Fuzz(func(t *testing.T, meta, stored []byte) {
		c, err := Unmarshal(meta)
		if err != nil {
			if !errors.Is(err, codec.ErrCorrupt) {
				t.Fatal(err)
			}
			// The checksum keeps the fuzzer out; use its bytes as mask and bitval.
			n := len(meta)/2%300 + 1
			padded := (n + 7) / 8 * 8
			m := make([]byte, 2*padded)
			copy(m, meta)
			for i := range padded {
				m[padded+i] &= m[i]
			}
			if c, err = New(8-4*(len(meta)&1), n, m[:padded/(8-4*(len(meta)&1))*(8-4*(len(meta)&1))], m[padded:]); err != nil {
				return
			}
		}
		row, n, ok := codectest.Decodes(t, c, stored)
		if !ok {
			return
		}
		dst := make([]byte, c.EncodeBound())
		again := make([]byte, c.RowBytes())
		if k, err := c.Decode(again, dst[:c.encode(dst, row)]); err != nil || k > n || !bytes.Equal(row, again) {
			t.Fatalf("the decoded row encodes to %d bytes (from %d), %v", k, n, err)
		}
	})
}
