package zipnn

import (
	"bytes"
	"errors"
	"testing"

	"github.com/tensorcache/tensorcache/codec"
)

// TestStream_Sizes holds the sizes of N(0,1) elements against ZipNN's published ones, 66.4 % for bfloat16 and 83 % for float32
// models' weights, and checks the round trip at several lengths.
func TestStream_Sizes(t *testing.T) {
	for _, c := range []struct {
		layout Layout
		most   float64 // of the size
	}{{bf16, 0.667}, {f32, 0.834}, {f64, 0.884}, {Layout{1, 0}, 0.81}} {
		data := normal(11, 1<<20/c.layout.ElementBytes, c.layout)
		for _, n := range []int{0, 1, 7, 1000, 256<<10 - 1, 256 << 10, len(data)} {
			stream, err := AppendStream([]byte("before"), data[:n], c.layout)
			if err != nil {
				t.Fatal(err)
			}
			got, err := AppendDecoded([]byte("before"), stream[6:])
			if err != nil || !bytes.Equal(got[6:], data[:n]) || string(got[:6]) != "before" {
				t.Fatalf("%v: %d bytes do not decode: %v", c.layout, n, err)
			}
			if size := float64(len(stream)) / float64(n); n == len(data) {
				t.Logf("%v: %.2f %% of the size", c.layout, 100*size)
				if size > c.most {
					t.Errorf("%v: %.2f %% of the size, want %.2f", c.layout, 100*size, 100*c.most)
				}
			}
		}
	}
}

func TestStream_Damage(t *testing.T) {
	data := normal(12, 3000, f32)
	for i := range 1000 {
		copy(data[4*i:], []byte{0, 0, 0x80, 0x3f})
	}
	data = append(data, 1, 2)
	stream, err := AppendStream(nil, data, f32)
	if err != nil {
		t.Fatal(err)
	}
	for i := range stream {
		damaged := bytes.Clone(stream)
		damaged[i] ^= 0x10
		// Bits that no decoder reads may change: the checksum is the data's.
		if got, err := AppendDecoded(nil, damaged); !errors.Is(err, codec.ErrCorrupt) && (err != nil || !bytes.Equal(got, data)) {
			t.Fatalf("byte %d damaged: %v, want ErrCorrupt", i, err)
		}
		if _, err := AppendDecoded(nil, stream[:i]); !errors.Is(err, codec.ErrCorrupt) {
			t.Fatalf("%d of %d bytes: %v, want ErrCorrupt", i, len(stream), err)
		}
	}
}

func FuzzStream(f *testing.F) {
	for _, layout := range []Layout{{1, 0}, bf16, f32, f64} {
		data := normal(13, 500, layout)
		stream, err := AppendStream(nil, append(data, data[:100]...), layout)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(stream)
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		data, err := AppendDecoded(nil, stream)
		if err != nil {
			if !errors.Is(err, codec.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		again, err := AppendStream(nil, data, Layout{int(stream[5]), int(stream[6])})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := AppendDecoded(nil, again); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("what decoded does not come back: %v", err)
		}
	})
}
