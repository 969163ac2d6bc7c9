package ndzip

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/internal/realdata"
	"github.com/tensorcache/tensorcache/internal/dtype"
)

// TestStream_GoldenFiles holds both directions against streams of the original codec.
func TestStream_GoldenFiles(t *testing.T) {
	for file, of := range map[string]codec.DType{"sz_testfloat": dtype.Float32, "sz_testdouble": dtype.Float64, "ncf_user": dtype.Float32} {
		t.Run(file, func(t *testing.T) {
			data, _ := realdata.Table(t, file+".npy")
			want := realdata.File(t, "golden", file+".ndzip")
			got, err := AppendStream(nil, data, of)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("stream of %d bytes, %v, differs from the original's of %d", len(got), err, len(want))
			}
			back := make([]byte, len(data))
			if err := DecodeStream(back, want, of); err != nil || !bytes.Equal(back, data) {
				t.Errorf("the original's stream does not give the data: %v", err)
			}
		})
	}
}

func TestStream_AllLengths(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 31, 32, 100, hypercube - 1, hypercube, hypercube + 1, 3*hypercube - 5, 3*hypercube + 5} {
		for _, of := range dtypes[2:] {
			data := make([]byte, n*of.Size())
			randomRow(r, of.Size(), data)
			stream, err := AppendStream([]byte("before"), data, of)
			if err != nil || string(stream[:6]) != "before" {
				t.Fatalf("%v, %d elements: %x, %v", of, n, stream[:6], err)
			}
			stream = stream[6:]
			got := make([]byte, len(data))
			if err := DecodeStream(got, stream, of); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%v, %d elements: do not come back: %v", of, n, err)
			}
			for _, cut := range []int{0, 3, len(stream) / 2, len(stream) - 1} {
				if cut >= 0 && cut < len(stream) {
					if err := DecodeStream(got, stream[:cut], of); !errors.Is(err, codec.ErrCorrupt) {
						t.Errorf("%v, %d elements, %d of %d bytes: %v, want ErrCorrupt", of, n, cut, len(stream), err)
					}
				}
			}
		}
	}
}

func TestDecodeStream_Corrupt(t *testing.T) {
	data := make([]byte, 4*(2*hypercube+3))
	good, err := AppendStream(nil, data, dtype.Float32)
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(b []byte) []byte{
		"codec: corrupt data: ndzip: stream (7 bytes) is shorter than its header (8)":   func(b []byte) []byte { return b[:7] },
		"codec: corrupt data: ndzip: hypercube 0 (bytes 0 to 4 of 1036) is cut":         func(b []byte) []byte { b[0] = 1; return b },
		"codec: corrupt data: ndzip: hypercube 1 (bytes 512 to 263168 of 1036) is cut":  func(b []byte) []byte { b[6] = 1; return b },
		"codec: corrupt data: ndzip: hypercube 0 (512 bytes) must have 516":             func(b []byte) []byte { b[8] = 1; return b },
		"codec: corrupt data: ndzip: stream's elements left over (13 bytes) must be 12": func(b []byte) []byte { return append(b, 0) },
		"codec: corrupt data: ndzip: stream's elements left over (11 bytes) must be 12": func(b []byte) []byte { return b[:len(b)-1] },
	} {
		err := DecodeStream(data, change(bytes.Clone(good)), dtype.Float32)
		if !errors.Is(err, codec.ErrCorrupt) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for want, call := range map[string]func() error{
		"codec: element type not served: ndzip: element type of a stream (float16) must be float32 or float64": func() error { return DecodeStream(data, good, dtype.Float16) },
		"codec: element type not served: ndzip: data (5 bytes) must be a multiple of an element (4)":           func() error { return DecodeStream(data[:5], good, dtype.Float32) },
		"codec: element type not served: ndzip: data (12 bytes) must be a multiple of an element (8)": func() error {
			_, err := AppendStream(nil, data[:12], dtype.Float64)
			return err
		},
	} {
		if err := call(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// FuzzDecodeStream: never a panic, and what decodes can be stored again.
func FuzzDecodeStream(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{0, 5, hypercube + 100} {
		for i, of := range dtypes[2:] {
			data := make([]byte, n*of.Size())
			randomRow(r, of.Size(), data)
			stream, _ := AppendStream(nil, data, of)
			f.Add(byte(i), uint16(n), stream)
		}
	}
	f.Fuzz(func(t *testing.T, double byte, n uint16, stream []byte) {
		of := dtypes[2+double&1]
		data := make([]byte, int(n)*of.Size())
		if err := DecodeStream(data, stream, of); err != nil {
			if !errors.Is(err, codec.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		again, err := AppendStream(nil, data, of)
		if err != nil {
			t.Fatal(err)
		}
		back := make([]byte, len(data))
		if err := DecodeStream(back, again, of); err != nil || !bytes.Equal(back, data) {
			t.Fatalf("%d bytes do not come back: %v", len(data), err)
		}
	})
}
