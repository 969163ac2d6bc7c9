package codec

import (
	"math"
	"testing"
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
