package codec

import (
	"math"
	"testing"

	"github.com/tensorcache/tensorcache/dtype"
)

// TestGPURate_At: the time of a row grows with its stored bytes between the two that were measured, and no further.
func TestGPURate_At(t *testing.T) {
	r := GPURate{Rate: 0.8, Ratio: 1.25, Ones: 1.6, OnesRatio: 20}
	for ratio, want := range map[float64]float64{
		1: 0.8, 1.25: 0.8, 20: 1.6, 1000: 1.6,
		1 / (0.05 + 0.75/2): 1 / ((1/0.8 + 1/1.6) / 2), // half of the bytes between both
	} {
		if got := r.At(ratio); math.Abs(got-want) > 1e-12 {
			t.Errorf("rows stored in 1/%v: %v, want %v", ratio, got, want)
		}
	}
	if got := (GPURate{Rate: 0.8, Ratio: 1.25}).At(100); got != 0.8 {
		t.Errorf("a family whose decoding of ones was not measured: %v", got)
	}
}

// TestGPURate_For: float8 values and rows of parts have a rate of their own, if it was measured.
func TestGPURate_For(t *testing.T) {
	row, err := dtype.Parse("float8_e4m3fn*256,float8_e8m0fnu*8")
	if err != nil {
		t.Fatal(err)
	}
	r := GPURate{Rate: 0.8, Ratio: 1.25, Ones: 1.6, OnesRatio: 20, Bytes: 0.3, BytesRatio: 1.1}
	for of, want := range map[dtype.Type]float64{dtype.Float32: 0.8, dtype.BFloat16: 0.8, dtype.Float8E4M3FN: 0.3, dtype.Uint8: 0.3, row: 0.3} {
		if got := r.For(of); got.At(1) != want || got.At(20) != 1.6 {
			t.Errorf("%v: %v, %v of ones, want %v, 1.6", of, got.At(1), got.At(20), want)
		}
	}
	unmeasured := GPURate{Rate: 0.8, Ratio: 1.25}
	if got := unmeasured.For(row); got != unmeasured {
		t.Errorf("without figures of bytes: %+v", got)
	}
}
