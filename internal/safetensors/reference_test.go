package safetensors

import (
	"encoding/binary"
	"math"
	"path/filepath"
	"testing"
)

// TestOpen_ReferenceFile: a file that the format's own library wrote (safetensors 0.8 for Python). Its tensors: layer.weight of normal
// float32 values, half its first three columns as float16, flags where it is positive; ids and cube count up.
func TestOpen_ReferenceFile(t *testing.T) {
	path := filepath.Join("testdata", "reference.safetensors")
	read := func(name string, rows, rowBytes int) []byte {
		t.Helper()
		r, err := Open(path+":"+name, 2)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		data, err := readRows(r, 2)
		if err != nil || r.Rows() != rows || r.RowBytes() != rowBytes {
			t.Fatalf("%s: %d rows of %d bytes, %v", name, r.Rows(), r.RowBytes(), err)
		}
		return data
	}
	le := binary.LittleEndian
	weight, half, flags := read("layer.weight", 7, 20), read("half", 7, 6), read("flags", 7, 5)
	for i, flag := range flags {
		value := float64(math.Float32frombits(le.Uint32(weight[4*i:])))
		if positive := value > 0; math.Abs(value) > 6 || (flag == 1) != positive {
			t.Errorf("element %d: %g, positive %d", i, value, flag)
		}
		if row, column := i/5, i%5; column < 3 {
			bits := le.Uint16(half[2*(3*row+column):])
			rounded := math.Copysign(math.Ldexp(float64(bits&0x3ff|0x400), int(bits>>10&31)-25), -float64(bits>>15)+0.5)
			if math.Abs(rounded-value) > math.Abs(value)/1024 {
				t.Errorf("element %d: %g, rounded %g", i, value, rounded)
			}
		}
	}
	for i, b := range read("cube", 6, 4) {
		if int(b) != i {
			t.Errorf("cube: element %d is %d", i, b)
		}
	}
	ids := read("ids", 7, 24)
	for i := range 21 {
		if got := le.Uint64(ids[8*i:]); got != uint64(i) {
			t.Errorf("ids: element %d is %d", i, got)
		}
	}
	_, err := Open(path, 2)
	checkText(t, err, `(5) must be one, or be chosen as FILE.safetensors:NAME from "ids", "scale", "layer.bias", "layer.weight", "half", "cube", "flags"`)
	_, err = Open(path+":layer.bias", 2)
	checkText(t, err, "reference.safetensors:layer.bias: rank (1) of shape [5] must be at least 2")
}
