package dataset

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/dtype"
)

// TestRound_AllValuesAndMidpoints takes every value of the format, the midpoint to its successor, and what lies just
// beside the midpoint.
func TestRound_AllValuesAndMidpoints(t *testing.T) {
	for name, f := range casts {
		infinity, minus := uint16(1<<f.exponent-1)<<f.mantissa, uint16(1)<<(f.exponent+f.mantissa)
		if f.finite {
			infinity = minus - 2 // the largest number
		}
		for h := range infinity {
			lo := f.value(h)
			hi := f.value(h + 1)
			if h+1 == infinity { // where the next value would be, were there no overflow
				hi = lo + (lo - f.value(h-1))
			}
			mid := lo + (hi-lo)/2
			even := h + h&1
			for x, want := range map[float64]uint16{lo: h, mid: even, math.Nextafter(mid, 0): h, math.Nextafter(mid, math.Inf(1)): h + 1} {
				if got := f.round(x); got != want {
					t.Fatalf("%s: round(%g) = %#04x, want %#04x", name, x, got, want)
				}
				if got := f.round(-x); got != want|minus {
					t.Fatalf("%s: round(%g) = %#04x, want %#04x", name, -x, got, want|minus)
				}
			}
		}
		for x, want := range map[float64]uint16{math.Inf(1): infinity, math.MaxFloat64: infinity, math.SmallestNonzeroFloat64: 0, math.Copysign(0, -1): minus} {
			if got := f.round(x); got != want {
				t.Errorf("%s: round(%g) = %#04x, want %#04x", name, x, got, want)
			}
		}
		for _, bits := range []uint64{0x7ff0000000000001, 0xfff8000000000000, 0x7ff4000000000000} {
			if got := f.round(math.Float64frombits(bits)); !math.IsNaN(f.value(got)) || got&minus != uint16(bits>>63)*minus {
				t.Errorf("%s: NaN %#x became %#04x", name, bits, got)
			}
		}
	}
}

// TestRound_Float8AsTorch holds some values against what torch makes of them.
func TestRound_Float8AsTorch(t *testing.T) {
	for _, c := range []struct {
		x          float64
		e4m3, e5m2 uint16
	}{
		{0, 0x00, 0x00}, {math.Copysign(0, -1), 0x80, 0x80}, {1, 0x38, 0x3c}, {-1.5, 0xbc, 0xbe}, {0.3, 0x2a, 0x35}, {448, 0x7e, 0x5f}, {464, 0x7e, 0x5f},
		{464.1, 0x7e, 0x5f}, {480, 0x7e, 0x60}, {1e9, 0x7e, 0x7c}, {-1e9, 0xfe, 0xfc}, {1. / 512, 0x01, 0x18}, {1. / 1024, 0x00, 0x14},
		{0.0137, 0x07, 0x23}, {3.3, 0x45, 0x43}, {57344, 0x7e, 0x7b}, {61440, 0x7e, 0x7c}, {61439, 0x7e, 0x7b}, {1e-8, 0x00, 0x00}, {math.Inf(1), 0x7e, 0x7c},
	} {
		if a, b := casts["f8e4m3"].round(c.x), casts["f8e5m2"].round(c.x); a != c.e4m3 || b != c.e5m2 {
			t.Errorf("%g became %#02x and %#02x, want %#02x and %#02x", c.x, a, b, c.e4m3, c.e5m2)
		}
	}
}

// TestPowerOfTwo_EveryScale: powers of two stay as they are, what lies between goes to the nearer one, and the middle of two to the even exponent.
func TestPowerOfTwo_EveryScale(t *testing.T) {
	for s := range 255 {
		x := Value(dtype.Float8E8M0FNU, []byte{byte(s)})
		middle := byte(s + s&1)
		if s == 254 {
			middle = 254
		}
		if got := []byte{powerOfTwo(x), powerOfTwo(-x), powerOfTwo(1.49 * x), powerOfTwo(1.5 * x), powerOfTwo(0.76 * x)}; !slices.Equal(got, []byte{byte(s), byte(s), byte(s), middle, byte(s)}) {
			t.Fatalf("%d became %v", s, got)
		}
	}
	for x, want := range map[float64]byte{0: 0, 1e-60: 0, 1e60: 254, math.Inf(-1): 255, math.NaN(): 255} {
		if got := powerOfTwo(x); got != want {
			t.Errorf("%g became %d, want %d", x, got, want)
		}
	}
	scales := &Table{Name: "s", DType: dtype.Float32, Rows: 1, RowBytes: 8, Data: []byte{0, 0, 0, 0x41, 0, 0, 0x80, 0x3f}} // 8, 1
	if c, err := scales.Cast("f8e8m0"); err != nil || c.DType != dtype.Float8E8M0FNU || c.RowBytes != 2 || !slices.Equal(c.Data, []byte{130, 127}) {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestTable_As takes bytes for float8, and refuses what has another length.
func TestTable_As(t *testing.T) {
	bytes := &Table{Name: "b", DType: dtype.Uint8, Rows: 2, RowBytes: 3, Data: make([]byte, 6)}
	if as, err := bytes.As("float8_e5m2"); err != nil || as.DType != dtype.Float8E5M2 || bytes.DType != dtype.Uint8 {
		t.Errorf("%+v, %v", as, err)
	}
	if same, err := bytes.As(""); err != nil || same != bytes {
		t.Errorf("%+v, %v", same, err)
	}
	for name, want := range map[string]string{
		"float32": "dataset: b: element type (float32) must have the 1 bytes of uint8",
		"f8":      `dtype: element type ("f8") must be one of float16, bfloat16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool, float8_e4m3fn, float8_e5m2, float8_e8m0fnu`,
	} {
		if _, err := bytes.As(name); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

// TestCast_BF16IsTopHalfRounded compares with the usual integer formula for float32 to bfloat16.
func TestCast_BF16IsTopHalfRounded(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	source := &Table{Name: "t", DType: dtype.Float32, Rows: 1000, RowBytes: 16}
	for range 4000 {
		b := r.Uint32()
		if math.IsNaN(float64(math.Float32frombits(b))) {
			b = 0x3f800000
		}
		source.Data = binary.LittleEndian.AppendUint32(source.Data, b)
	}
	got, err := source.Cast("bf16")
	if err != nil || got.RowBytes != 8 || got.DType != dtype.BFloat16 || len(got.Data) != 8000 {
		t.Fatalf("%+v, %v", got, err)
	}
	for i := range 4000 {
		b := binary.LittleEndian.Uint32(source.Data[4*i:])
		want := uint16((b + 0x7fff + b>>16&1) >> 16)
		if h := binary.LittleEndian.Uint16(got.Data[2*i:]); h != want {
			t.Fatalf("%#08x became %#04x, want %#04x", b, h, want)
		}
	}
}

// TestCast_Scales quantises by blocks: values times their scales are within half a step of the elements, and the largest of each block has the
// format's largest exponent.
func TestCast_Scales(t *testing.T) {
	const columns, block = 96, 32
	for name, of := range map[string]struct {
		row     string
		largest float64 // of the binade of the largest numbers
		step    float64 // half the distance of neighbours, relative
	}{"f8e4m3/e8m0:32": {"float8_e4m3fn*96,float8_e8m0fnu*3", 256, 1. / 16}, "f8e5m2/e8m0:32": {"float8_e5m2*96,float8_e8m0fnu*3", 32768, 1. / 8}} {
		r := rand.New(rand.NewPCG(5, 6))
		source := &Table{DType: dtype.Float32, Rows: 50, RowBytes: 4 * columns}
		var want []float64
		for i := range source.Rows * columns {
			x := float32(r.NormFloat64() * math.Exp2(float64(i/block%40-20)))
			if i/block == 7 {
				x = 0
			}
			want = append(want, float64(x))
			source.Data = binary.LittleEndian.AppendUint32(source.Data, math.Float32bits(x))
		}
		got, err := source.Cast(name)
		if err != nil || got.DType.String() != of.row || got.RowBytes != 99 || len(got.Data) != 50*99 {
			t.Fatalf("%s: %v, rows of %d bytes, %d bytes, %v", name, got.DType, got.RowBytes, len(got.Data), err)
		}
		parts := got.DType.Parts()
		for i, x := range want {
			row, column := got.Row(int64(i/columns)), i%columns
			value, scale := Value(parts[0].Type, row[column:]), Value(parts[1].Type, row[columns+column/block:])
			largest := 0.0
			for _, y := range want[i/block*block:][:block] {
				largest = max(largest, math.Abs(y))
			}
			if largest/scale >= 2*of.largest || largest != 0 && largest/scale < of.largest {
				t.Fatalf("%s: scale %g of a block whose largest element is %g", name, scale, largest)
			}
			// Elements near the largest are cut to the largest number; those far below it are subnormal.
			if e := math.Abs(value*scale - x); e > math.Abs(x)*2*of.step && e > scale/512 {
				t.Fatalf("%s: %g became %g × %g", name, x, value, scale)
			}
		}
	}
	for name, want := range map[string]string{
		"f8e4m3/e8m0:33": "dataset: t: columns (64) must be a multiple of the 33 that share a scale",
		"bf16/e8m0:32":   `unknown cast ("bf16/e8m0:32")`, "f8e4m3/e8m0:0": `unknown cast ("f8e4m3/e8m0:0")`, "f8e4m3/e8m0:": "unknown cast",
	} {
		if _, err := (&Table{Name: "t", DType: dtype.Float32, Rows: 1, RowBytes: 256, Data: make([]byte, 256)}).Cast(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

func TestCast_BadInput(t *testing.T) {
	ints := &Table{Name: "labels", DType: dtype.Int64}
	if _, err := ints.Cast("f16"); err == nil || err.Error() != "dataset: labels: element type (int64) must be float32 or float64 to be cast to f16" {
		t.Errorf("got %v", err)
	}
	if _, err := ints.Cast("f8"); err == nil || err.Error() != `dataset: unknown cast ("f8") must be bf16, f16, f8e4m3, f8e5m2, f8e8m0, or f8e4m3 or f8e5m2 with scales, as in f8e4m3/e8m0:32` {
		t.Errorf("got %v", err)
	}
	if same, err := ints.Cast(""); err != nil || same != ints {
		t.Errorf("got %v, %v", same, err)
	}
}

func TestLoad_RowLimits(t *testing.T) {
	dir := t.TempDir()
	for columns, want := range map[int]string{1<<20 - 1: "", 1 << 20: "row (1048576 bytes) must be shorter than 1 MiB (1048576)"} {
		path := filepath.Join(dir, "long.npy")
		header := fmt.Sprintf("{'descr': '|u1', 'fortran_order': False, 'shape': (2, %d)}", columns)
		file := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), 0)
		file = append(append(file, header...), make([]byte, 2*columns)...)
		if err := os.WriteFile(path, file, 0o644); err != nil {
			t.Fatal(err)
		}
		table, err := Load(path)
		if want == "" {
			if err != nil || table.Rows != 2 || table.RowBytes != columns {
				t.Errorf("%d columns: %v", columns, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%d columns: got %v, want %s", columns, err, want)
		}
	}
}
