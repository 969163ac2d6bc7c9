// Package npy_test holds NumPy files against another implementation, npyio.
package npy_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sbinet/npyio"
	"github.com/sbinet/npyio/npz"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/npy"
)

func TestReader_ReadsNpzOfNpyio(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.npz")
	want := []int64{3, -1, 1 << 40}
	if err := npz.Write(path, map[string]any{"indices": want}); err != nil {
		t.Fatal(err)
	}
	r, err := npy.Open(path, 1, "indices")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := r.ReadInts(); err != nil || !slices.Equal(got, want) {
		t.Errorf("ReadInts = %v, %v, want %v", got, err, want)
	}
}

func TestReader_AgreesWithNpyio(t *testing.T) {
	for d, v := range map[dtype.Type]any{
		dtype.Float32: []float32{1, float32(math.Copysign(0, -1)), float32(math.Inf(1))}, dtype.Float64: []float64{1, -2, math.MaxFloat64},
		dtype.Int8: []int8{-1, 2}, dtype.Int16: []int16{-1, 2}, dtype.Int32: []int32{-1, 2}, dtype.Int64: []int64{-1, 2},
		dtype.Uint8: []uint8{1, 2}, dtype.Uint16: []uint16{1, 2}, dtype.Uint32: []uint32{1, 2}, dtype.Uint64: []uint64{1, math.MaxUint64}, dtype.Bool: []bool{true, false},
	} {
		var file, want bytes.Buffer
		if err := npyio.Write(&file, v); err != nil {
			t.Fatal(err)
		}
		if err := binary.Write(&want, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "a.npy")
		if err := os.WriteFile(path, file.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		r, err := npy.Open(path, 1)
		if err != nil {
			t.Fatalf("%v: %v", d, err)
		}
		got := make([]byte, r.Rows()*r.RowBytes())
		n, err := r.Read(got)
		if err != nil || n != r.Rows() || r.DType() != d || !bytes.Equal(got, want.Bytes()) {
			t.Errorf("%v: %v %x, %v, want %x", d, r.DType(), got, err, want.Bytes())
		}
		r.Close()
	}
}
