package sleek

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/realdata"
	"github.com/tensorcache/tensorcache/internal/dtype"
)

// TestStream_GoldenFiles holds both directions against streams of an independent transcription.
func TestStream_GoldenFiles(t *testing.T) {
	for file, of := range map[string]codec.DType{"sz_testfloat": dtype.Float32, "sz_testdouble": dtype.Float64} {
		t.Run(file, func(t *testing.T) {
			data, _ := realdata.Table(t, file+".npy")
			want := realdata.File(t, "golden", file+".sleek")
			got, err := AppendStream(nil, data, of)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("stream of %d bytes, %v, differs from the golden one of %d", len(got), err, len(want))
			}
			if back, err := DecodeStream(want, of); err != nil || !bytes.Equal(back, data) {
				t.Errorf("golden stream gives %d bytes, %v, not the data", len(back), err)
			}
		})
	}
}

// streamData has chunks that shrink and chunks that do not.
func streamData(r *rand.Rand, l layout, n int) []byte {
	data := make([]byte, n)
	for at := 0; at < n; at += streamChunk {
		part := data[at:min(at+streamChunk, n)]
		if r.IntN(3) > 0 {
			randomRow(r, l, part)
			continue
		}
		for i := range part {
			part[i] = byte(r.Uint32())
		}
	}
	return data
}

func TestStream_AllLengths(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 3, 7, 8, 31, 100, 511, 512, 513, 4000, streamChunk - 1, streamChunk, streamChunk + 1, 3*streamChunk - 5, 200_000} {
		for _, of := range dtypes {
			data := streamData(r, layouts[of], n)
			stream, err := AppendStream([]byte("before"), data, of)
			if err != nil || string(stream[:6]) != "before" {
				t.Fatalf("%v, %d bytes: %x, %v", of, n, stream[:6], err)
			}
			stream = stream[6:]
			if most := streamHeader + (n+streamChunk-1)/streamChunk*2 + n; len(stream) > most {
				t.Errorf("%v, %d bytes: stream of %d bytes, want at most %d", of, n, len(stream), most)
			}
			if got, err := DecodeStream(stream, of); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%v, %d bytes: does not decode: %v", of, n, err)
			}
		}
	}
}

func TestDecodeStream_Corrupt(t *testing.T) {
	good, err := AppendStream(nil, make([]byte, 20_000), dtype.Float32)
	if err != nil {
		t.Fatal(err)
	}
	// Header 8, two lengths of 34; chunks of 32 widths and a trailer.
	for want, change := range map[string]func(b []byte) []byte{
		"stream (7 bytes) is shorter than its header (8)":                                   func(b []byte) []byte { return b[:7] },
		"stream (10 bytes) is shorter than the lengths of its chunks (20000 bytes of data)": func(b []byte) []byte { return b[:10] },
		"stream's chunks (67 bytes) are not as long as their lengths say (68)":              func(b []byte) []byte { return b[:len(b)-1] },
		"stream's chunks (69 bytes) are not as long as their lengths say (68)":              func(b []byte) []byte { return append(b, 0) },
		"stream (80 bytes) is shorter than the lengths of its chunks (18446744073709551615 bytes of data)": func(b []byte) []byte {
			binary.LittleEndian.PutUint64(b, 1<<64-1)
			return b
		},
		"chunk's data (16385 bytes) must be 16384 (chunk 0)":           func(b []byte) []byte { b[12+32]++; return b },
		"chunk's data (3616 bytes) must be 3500 (chunk 1)":             func(b []byte) []byte { binary.LittleEndian.PutUint64(b, streamChunk+3500); return b },
		"width (33 bits) is more than a word's (32) (chunk 0)":         func(b []byte) []byte { b[12] = 33; return b },
		"stored row (32 bytes) ends before its payload (48) (chunk 0)": func(b []byte) []byte { b[12] = 1; return b },
		"chunk (1 bytes) is shorter than its trailer (2) (chunk 0)":    func(b []byte) []byte { b[8], b[10] = 1, 67; return b },
		"chunk's words (32 bytes) must end at its trailer (33) (chunk 0)": func(b []byte) []byte {
			b[8], b[10] = 35, 33
			return append(b[:12+32], append([]byte{0, 0, 0x40}, b[12+34:len(b)-1]...)...)
		},
	} {
		_, err := DecodeStream(change(bytes.Clone(good)), dtype.Float32)
		if want := "codec: corrupt data: sleek: " + want; !errors.Is(err, codec.ErrCorrupt) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := DecodeStream(good, dtype.Int32); !errors.Is(err, codec.ErrDType) {
		t.Errorf("int32: %v", err)
	}
	if _, err := AppendStream(nil, good, dtype.Int32); !errors.Is(err, codec.ErrDType) {
		t.Errorf("int32: %v", err)
	}
}

// FuzzDecodeStream: never a panic, and what decodes can be stored again.
func FuzzDecodeStream(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{0, 5, 600, 2*streamChunk + 100} {
		for i, of := range dtypes {
			stream, _ := AppendStream(nil, streamData(r, layouts[of], n), of)
			f.Add(byte(i), stream)
		}
	}
	f.Fuzz(func(t *testing.T, of byte, stream []byte) {
		data, err := DecodeStream(stream, dtypes[of%4])
		if err != nil {
			if !errors.Is(err, codec.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		again, err := AppendStream(nil, data, dtypes[of%4])
		if err != nil {
			t.Fatal(err)
		}
		if back, err := DecodeStream(again, dtypes[of%4]); err != nil || !bytes.Equal(back, data) {
			t.Fatalf("%d bytes do not come back: %v", len(data), err)
		}
	})
}
