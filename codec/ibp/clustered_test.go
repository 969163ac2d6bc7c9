package ibp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/codectest"
	"github.com/tensorcache/tensorcache/dtype"
)

var _ codec.OnDevice = (*Clustered)(nil)

// trends makes rows of several kinds, each with constant upper bits of its own.
func trends(kinds, rows, rowBytes int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	of := make([][]uint32, kinds)
	for i := range of {
		for range rowBytes / 4 {
			of[i] = append(of[i], r.Uint32())
		}
	}
	var b []byte
	for range rows {
		for _, x := range of[r.IntN(kinds)] {
			b = binary.LittleEndian.AppendUint32(b, x&^0xfff|r.Uint32N(1<<12))
		}
	}
	return b
}

// TestTrainClustered_LocalTrends: rows of four kinds keep 12 of 32 bits with a mask for each kind, and most with one for all.
func TestTrainClustered_LocalTrends(t *testing.T) {
	const rowBytes = 256
	table := trends(4, 2000, rowBytes)
	one, err := Train(table, rowBytes, 4)
	if err != nil {
		t.Fatal(err)
	}
	c, err := TrainClustered(table, rowBytes, 4)
	if err != nil {
		t.Fatal(err)
	}
	plain, clustered := one.sampleBytes(table), c.sampleBytes(table)
	t.Logf("%d clusters: %d bytes, one mask: %d, of %d; metadata %d", len(c.sets), clustered, plain, len(table), c.MetadataBytes())
	if net := clustered + c.MetadataBytes(); float64(net) > 0.45*float64(len(table)) || float64(plain) < 0.8*float64(len(table)) {
		t.Errorf("%d bytes net, %d with one mask, want at most 45 %% and at least 80 %% of %d", net, plain, len(table))
	}
}

// TestTrainClustered_OneMaskWhereMoreDoNotPay: noise has no clusters, and a few rows do not pay for their masks.
func TestTrainClustered_OneMaskWhereMoreDoNotPay(t *testing.T) {
	noise := make([]byte, 64*500)
	rand.NewChaCha8([32]byte{1}).Read(noise)
	for name, table := range map[string][]byte{"noise": noise, "few": trends(4, 8, 64), "one kind": trends(1, 500, 64), "equal rows": make([]byte, 6400)} {
		c, err := TrainClustered(table, 64, 4)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.sets) != 1 {
			t.Errorf("%s: %d clusters, want 1", name, len(c.sets))
		}
	}
}

func randomClustered(r *rand.Rand, chunk, rowBytes, sets int) *Clustered {
	var all []*Codec
	for range sets {
		all = append(all, randomCodec(r, chunk, rowBytes))
	}
	return clusteredOf(all)
}

// TestClustered_EqualsModel builds the stored form from that of each set alone, bit by bit.
func TestClustered_EqualsModel(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, chunk := range []int{2, 4, 8} {
		for _, rowBytes := range []int{1, 2, 3, 7, 8, 9, 30, 64, 127, 128, 130, 1000} {
			for _, sets := range []int{1, 2, 3, 8, 9, 256} {
				c := randomClustered(r, chunk, rowBytes, sets)
				row, got := make([]byte, rowBytes), make([]byte, rowBytes)
				for range 4 {
					randomRow(r, c.sets[r.IntN(sets)], row)
					var want []byte
					shortest := 1 << 30
					for i, set := range c.sets {
						plain := model(set, row)
						bit := func(j int) uint64 { return uint64(plain[j/8] >> (j % 8) & 1) }
						n := set.rowBits(row)
						if n >= shortest {
							continue
						}
						shortest = n
						want = make([]byte, (n+7)/8)
						for j := range n {
							x := uint64(i) >> max(0, j-set.chunks)
							switch {
							case j < set.chunks:
								x = bit(j)
							case j >= set.chunks+c.lead:
								x = bit(j - c.lead)
							}
							want[j/8] |= byte(x&1) << (j % 8)
						}
					}
					dst := make([]byte, c.EncodeBound())
					n, err := c.Encode(dst, row)
					if len(want) >= rowBytes {
						if !errors.Is(err, codec.ErrIncompressible) {
							t.Fatalf("S=%d row %d, %d sets: %v, want ErrIncompressible", chunk, rowBytes, sets, err)
						}
						continue
					}
					if err != nil || !bytes.Equal(dst[:n], want) {
						t.Fatalf("S=%d row %d, %d sets: stored %x, %v, want %x", chunk, rowBytes, sets, dst[:n], err, want)
					}
					if m, err := c.Stored(want); err != nil || m != n {
						t.Fatalf("S=%d row %d, %d sets: Stored %d, %v, want %d", chunk, rowBytes, sets, m, err, n)
					}
					if m, err := c.Decode(got, want); err != nil || m != n || !bytes.Equal(got, row) {
						t.Fatalf("S=%d row %d, %d sets: decoded %x, %d bytes, %v, want %x", chunk, rowBytes, sets, got, m, err, row)
					}
				}
			}
		}
	}
}

func TestClustered_CorruptRows(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	c := randomClustered(r, 2, 64, 3)
	row := make([]byte, 64)
	src := make([]byte, 64)
	src[32/8] = 3 // set 3 of 3, behind 32 participation bits
	if _, err := c.Decode(row, src); !errors.Is(err, codec.ErrCorrupt) {
		t.Errorf("set 3 of 3: %v, want ErrCorrupt", err)
	}
	for n := range 6 {
		if _, err := c.Decode(row, src[:n]); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("%d bytes: %v, want ErrCorrupt", n, err)
		}
		if _, err := c.Stored(src[:n]); !errors.Is(err, codec.ErrCorrupt) {
			t.Errorf("Stored of %d bytes: %v, want ErrCorrupt", n, err)
		}
	}
}

// TestFamilies_ArbitraryBytes trains on part of the bytes and encodes all of them, for every element type.
func TestFamilies_ArbitraryBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		types := []dtype.Type{dtype.Float32, dtype.Float64, dtype.Float16, dtype.BFloat16, dtype.Uint8, dtype.Invalid}
		of := rapid.SampledFrom(types).Draw(t, "type")
		rowBytes := rapid.IntRange(1, 96).Draw(t, "row bytes")
		table := rapid.SliceOfN(rapid.Byte(), rowBytes, rowBytes*12).Draw(t, "table")
		rows := len(table) / rowBytes
		table = table[:rows*rowBytes]
		for _, f := range []codec.Family{IBP2, IBPC} {
			c, err := f.Train(table[:rowBytes], rowBytes, of)
			if f.Name == "ibp2" && of.Size() != 2 {
				if !errors.Is(err, codec.ErrDType) {
					t.Fatalf("ibp2 of %v: %v, want ErrDType", of, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			metadata, err := c.MarshalBinary()
			if err != nil {
				t.Fatal(err)
			}
			if c, err = f.Unmarshal(metadata); err != nil {
				t.Fatal(err)
			}
			form := c.(codec.OnDevice).DeviceForm()
			if int64(len(form.Metadata)) != c.MetadataBytes() || len(form.Metadata)%16 != 0 || form.Head > rowBytes {
				t.Fatalf("%s: %d bytes of device metadata, head %d; MetadataBytes %d, row %d", f.Name, len(form.Metadata), form.Head, c.MetadataBytes(), rowBytes)
			}
			codectest.RoundTrip(t, c, table)
		}
	})
}

// FuzzClustered_HostileMetadata: metadata restore a codec that round-trips, or are corrupt; stored bytes never panic.
func FuzzClustered_HostileMetadata(f *testing.F) {
	c, err := TrainClustered(trends(2, 200, 16), 16, 4)
	if err != nil {
		f.Fatal(err)
	}
	metadata, err := c.MarshalBinary()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(metadata, []byte("stored bytes of no row"))
	f.Fuzz(func(t *testing.T, metadata, src []byte) {
		if len(metadata) > 4 { // else the checksum is all that is tested
			metadata = binary.LittleEndian.AppendUint32(metadata[:len(metadata)-4:len(metadata)-4], crcOf(metadata[:len(metadata)-4]))
		}
		c, err := IBPC.Unmarshal(metadata)
		if err != nil {
			if !errors.Is(err, codec.ErrCorrupt) {
				t.Fatalf("%v, want ErrCorrupt", err)
			}
			return
		}
		codectest.Decodes(t, c, src)
		if len(src) >= c.RowBytes() {
			codectest.RoundTrip(t, c, src[:c.RowBytes()])
		}
	})
}

func crcOf(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }
