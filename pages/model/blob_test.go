package model

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/pages"
)

func TestCompress_EveryCodecTypeAndShape(t *testing.T) {
	race.SkipSequential(t)
	r := rand.New(rand.NewPCG(1, 2))
	shapes := [][]int64{{}, {0}, {3, 0, 2}, {1}, {7}, {5, 1000}, {3, 5, 7}, {2100}, {17, 4096}}
	for c, codec := range append(registry.Names(), pages.Smallest) {
		for of := dtype.Float16; of <= dtype.Float8E8M0FNU; of++ {
			for i, shape := range shapes {
				if testing.Short() && i != (c+int(of))%len(shapes) {
					continue
				}
				a := Array{DType: of, Shape: shape, Note: uint8(of)}
				n, err := a.bytes()
				if err != nil {
					t.Fatal(err)
				}
				a.Data = make([]byte, n)
				for i := range a.Data {
					a.Data[i] = byte(r.IntN(1 + 255*(i%2)))
				}
				b, err := Compress(a, codec)
				if err != nil {
					t.Fatalf("%s, %v %v: %v", codec, of, shape, err)
				}
				back, err := Decompress(b)
				if err != nil || back.DType != of || fmt.Sprint(back.Shape) != fmt.Sprint(shape) || back.Note != a.Note || !bytes.Equal(back.Data, a.Data) {
					t.Fatalf("%s, %v %v: %v %v of %d bytes, %v", codec, of, shape, back.DType, back.Shape, len(back.Data), err)
				}
			}
		}
	}
}

func TestCompress_Shrinks(t *testing.T) {
	a := Array{DType: dtype.Float32, Shape: []int64{100, 1000}, Data: weights(1, 100_000)}
	b, err := Compress(a, "rank")
	if err != nil || len(b) > len(a.Data)*9/10 {
		t.Errorf("%d of %d bytes, %v", len(b), len(a.Data), err)
	}
	zeros := Array{DType: dtype.Float32, Shape: []int64{4 << 20}, Data: make([]byte, 16<<20)}
	if b, err = Compress(zeros, "rank"); err != nil || len(b) > 16<<10 {
		t.Errorf("zeros: %d bytes, %v", len(b), err)
	}
	if back, err := Decompress(b); err != nil || !bytes.Equal(back.Data, zeros.Data) {
		t.Error("zeros differ", err)
	}
}

func TestCompress_Refuses(t *testing.T) {
	for _, a := range []Array{{}, {DType: dtype.Float32, Data: []byte{1}}, {DType: dtype.Float32, Shape: []int64{-1}}, {DType: dtype.Float32, Shape: []int64{1 << 40, 1 << 40}}, {DType: dtype.Uint8, Shape: make([]int64, 65)}} {
		if _, err := Compress(a, "rank"); err == nil {
			t.Errorf("%+v is taken", a)
		}
	}
	if _, err := Compress(Array{DType: dtype.Uint8, Shape: []int64{0}}, "nope"); err == nil {
		t.Error("an unknown codec is taken")
	}
}

// TestDecompress_FindsEveryChange flips each bit of the head and random bits behind it, and cuts at every length.
func TestDecompress_FindsEveryChange(t *testing.T) {
	race.SkipSequential(t)
	b, err := Compress(Array{DType: dtype.BFloat16, Shape: []int64{60, 500}, Data: bfloat16(weights(2, 30_000))}, "zipnn")
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 3))
	refuse := func(b []byte, what string, at int) {
		t.Helper()
		if _, err := Decompress(b); !errors.Is(err, ErrNotCompressed) {
			t.Fatalf("%s at %d: %v", what, at, err)
		}
	}
	for i := range 1500 {
		at := i
		if i >= 8*100 {
			at = r.IntN(8 * len(b))
		}
		bad := bytes.Clone(b)
		bad[at/8] ^= 1 << (at % 8)
		refuse(bad, "flipped bit", at)
	}
	for i := range 500 {
		refuse(b[:i*len(b)/500], "cut", i)
	}
	refuse(append(bytes.Clone(b), 0), "longer", 0)
	// A size that the contents do not have, with a sound head.
	bad := bytes.Clone(b)
	binary.LittleEndian.PutUint64(bad[blobFixed:], 1<<40)
	binary.LittleEndian.PutUint32(bad[blobFixed+16:], crc32.Checksum(bad[:blobFixed+16], castagnoli))
	refuse(bad, "huge claim", 0)
}

func FuzzDecompress(f *testing.F) {
	for _, codec := range registry.Names() {
		b, err := Compress(Array{DType: dtype.Float32, Shape: []int64{30, 20}, Data: weights(4, 600)}, codec)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > blobFixed+4 { // so that the head's checksum is no wall
			if head := blobFixed + 8*int(b[10]); len(b) >= head+4 {
				binary.LittleEndian.PutUint32(b[head:], crc32.Checksum(b[:head], castagnoli))
			}
		}
		if a, err := Decompress(b); err == nil {
			if n, err := a.bytes(); err != nil || n != int64(len(a.Data)) {
				t.Errorf("%v of %v has %d bytes, %v", a.Shape, a.DType, len(a.Data), err)
			}
		}
	})
}
