package workload

import (
	"bytes"
	"math"
	"testing"
)

// e4m3Value is what a byte means, by the definition.
func e4m3Value(b byte) float64 {
	sign, exponent, mantissa := 1-2*float64(b>>7), int(b>>3&15), float64(b&7)
	if exponent == 0 {
		return sign * math.Ldexp(mantissa, -9)
	}
	return sign * math.Ldexp(8+mantissa, exponent-10)
}

// TestE4M3_AllValuesAndMidpoints takes every value, the midpoint to its successor, and what lies just beside the midpoint.
func TestE4M3_AllValuesAndMidpoints(t *testing.T) {
	for b := range byte(0x7e) {
		lo, hi := float32(e4m3Value(b)), float32(e4m3Value(b+1))
		mid := lo + (hi-lo)/2
		for x, want := range map[float32]byte{lo: b, mid: b + b&1, math.Nextafter32(mid, 0): b, math.Nextafter32(mid, 1000): b + 1} {
			if got := e4m3(x); got != want {
				t.Fatalf("e4m3(%g) = %#x, want %#x", x, got, want)
			}
			if got := e4m3(-x); got != want|0x80 && x != 0 {
				t.Fatalf("e4m3(%g) = %#x, want %#x", -x, got, want|0x80)
			}
		}
	}
	for _, x := range []float32{448, 449, 480, 1e30, float32(math.Inf(1))} {
		if e4m3(x) != 0x7e || e4m3(-x) != 0xfe {
			t.Errorf("e4m3(±%g) = %#x, %#x", x, e4m3(x), e4m3(-x))
		}
	}
}

// TestQuantise_ErrorIsHalfAStep: values that are read back differ by half a step at most, or by what saturation takes.
func TestQuantise_ErrorIsHalfAStep(t *testing.T) {
	values := make([]float32, Float8Block)
	for i := range values {
		values[i] = float32(math.Sin(float64(3*i))) * float32(math.Exp(float64(i)/4-6))
	}
	dst := make([]byte, len(values))
	scale := math.Ldexp(1, int(quantise(dst, values))-127)
	for i, v := range values {
		got := e4m3Value(dst[i]) * scale
		if bound := max(math.Abs(float64(v))/8*1.0001, scale/1024); math.Abs(got-float64(v)) > bound || math.Abs(e4m3Value(dst[i])) > 448 {
			t.Errorf("%g became %g", v, got)
		}
	}
	for _, largest := range []float32{0, 1e-45, 1e-38, 1, 448, 3e38} { // scales stay in range
		s := quantise(dst[:1], []float32{largest})
		if got := e4m3Value(dst[0]) * math.Ldexp(1, int(s)-127); s == 0 || s == 255 || math.Abs(got-float64(largest)) > math.Max(float64(largest)/8, math.Ldexp(1, -135)) {
			t.Errorf("%g became %g, scale %d", largest, got, s)
		}
	}
}

func TestFloat8Rows(t *testing.T) {
	rows, err := Float8Rows(3000, 64, 9)
	if err != nil || len(rows) != 3000*66 {
		t.Fatal(len(rows), err)
	}
	again, _ := Float8Rows(3000, 64, 9)
	other, _ := Float8Rows(3000, 64, 10)
	if !bytes.Equal(rows, again) || bytes.Equal(rows, other) {
		t.Error("the seed must fix the rows")
	}
	full := 0 // blocks whose largest value fills the range of the scale
	for r := range 3000 {
		row := rows[66*r:][:66]
		for k := range 2 {
			largest := 0.0
			for _, b := range row[32*k:][:32] {
				if b&0x7f == 0x7f {
					t.Fatalf("row %d has a NaN", r)
				}
				largest = max(largest, math.Abs(e4m3Value(b)))
			}
			if largest >= 256 {
				full++
			}
		}
	}
	if full != 6000 {
		t.Errorf("%d of 6,000 blocks reach 256", full)
	}
	for _, bad := range [][2]int{{0, 32}, {1, 0}, {1, 33}, {math.MaxInt / 4, 32}} {
		if _, err := Float8Rows(bad[0], bad[1], 1); err == nil {
			t.Errorf("%v rows × elements must be refused", bad)
		}
	}
}
