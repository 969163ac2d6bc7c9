package npy

import (
	"bytes"
	"errors"
	"io"
	"math"
	"slices"
	"testing"

	"github.com/tensorcache/tensorcache/dtype"
)

func TestWrite_PinsBytes(t *testing.T) {
	got := written(t, dtype.Float32, []int{6040, 32}, make([]byte, 6040*32*4))
	want := "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (6040, 32), }" +
		"                                                      \n"
	if string(got[:128]) != want {
		t.Errorf("header = %q, want %q", got[:128], want)
	}
}

func TestWrite_AlignsData(t *testing.T) {
	for rank := range maxRank + 1 {
		shape := slices.Repeat([]int{1}, rank)
		b := written(t, dtype.Bool, shape, []byte{1})
		if (len(b)-1)%headerAlign != 0 {
			t.Errorf("rank %d: data at %d", rank, len(b)-1)
		}
		if rank == 0 {
			continue
		}
		if got, err := openAll(b, choice{}); err != nil || !bytes.Equal(got, []byte{1}) {
			t.Errorf("rank %d: %v, %v", rank, got, err)
		}
	}
}

func TestWrite_Rejects(t *testing.T) {
	for _, c := range []struct {
		d     dtype.Type
		shape []int
		data  []byte
		want  string
	}{
		{dtype.Invalid, []int{1}, nil, "dtype (invalid) must be one of float16"},
		{dtype.Type(99), []int{1}, nil, "dtype (DType(99)) must be one of float16"},
		{dtype.Int8, []int{2, 3}, make([]byte, 5), "data bytes (5) must be 6 for shape (2, 3) of int8"},
		{dtype.Int8, []int{-1, -6}, make([]byte, 6), "shape (-1, -6) of int8 must need at most"},
		{dtype.Int16, []int{math.MaxInt}, nil, "must need at most"},
		{dtype.Int8, make([]int, 65), nil, "rank (65) must be at most 64"},
	} {
		err := Write(io.Discard, c.d, c.shape, c.data)
		checkText(t, err, c.want)
	}
}

func TestWrite_ZeroAxis(t *testing.T) {
	_, err := openBytes(written(t, dtype.Int8, []int{0, 3}, nil), choice{})
	checkText(t, err, "shape (0, 3) must have axes of at least 1")
}

type failing struct{ room int }

func (f *failing) Write(b []byte) (int, error) {
	if f.room -= len(b); f.room < 0 {
		return 0, io.ErrClosedPipe
	}
	return len(b), nil
}

func TestWrite_ReturnsWriterErrors(t *testing.T) {
	for _, room := range []int{0, 128} {
		if err := Write(&failing{room}, dtype.Int8, []int{3}, make([]byte, 3)); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("room %d: error = %v", room, err)
		}
	}
}

func TestDType_Names(t *testing.T) {
	want := "invalid float16 bfloat16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool float8_e4m3fn float8_e5m2 float8_e8m0fnu"
	sizes := []int{0, 2, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 1, 1, 1, 1}
	var names []byte
	for d := dtype.Invalid; d <= dtype.Float8E8M0FNU; d++ {
		if d > 0 {
			names = append(names, ' ')
		}
		names = append(names, d.String()...)
		if d.Size() != sizes[d] {
			t.Errorf("%v.Size() = %d, want %d", d, d.Size(), sizes[d])
		}
		if back, err := dtype.Parse(d.String()); back != d || (err == nil) != (d != dtype.Invalid) {
			t.Errorf("%v is parsed as %v, %v", d, back, err)
		}
	}
	if string(names) != want {
		t.Errorf("names = %s, want %s", names, want)
	}
	if d := dtype.Float8E8M0FNU + 1; d.Size() != 0 || d.String() != "DType(17)" {
		t.Errorf("unknown dtype: %v, %d bytes", d, d.Size())
	}
}
