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

// planes is a codec that codes some of the byte planes.
type planes struct {
	Codec
	coded, all int
}

func (p planes) CodedPlanes() (coded, planes int) { return p.coded, p.all }

// TestGPURate_For: the rate is that of the rows measured that are most like the table's, by element, length, and planes coded.
func TestGPURate_For(t *testing.T) {
	row, err := dtype.Parse("float8_e4m3fn*256,float8_e8m0fnu*8")
	if err != nil {
		t.Fatal(err)
	}
	r := GPURate{Rate: 0.8, Ratio: 1.25, Rows: [RowKinds][]RowRate{
		{{256, 0.5, 1.2}, {1024, 0.9, 1.4}}, {{512, 0.6, 1.5}}, {{512, 0.4, 1.1}}, {{528, 0.2, 1.1}}, {{512, 1.4, 40}},
	}}
	for _, c := range []struct {
		of       dtype.Type
		rowBytes int
		codec    Codec
		want     float64
	}{
		{dtype.Float32, 64, nil, 0.5}, {dtype.Float32, 256, nil, 0.5}, {dtype.Float32, 512, nil, 0.7}, {dtype.Float32, 8192, nil, 0.9},
		{dtype.Float64, 1024, nil, 0.9}, {dtype.BFloat16, 1024, nil, 0.6}, {dtype.Float16, 64, nil, 0.4}, {dtype.Uint8, 512, nil, 0.2}, {row, 264, nil, 0.2},
		{dtype.Float32, 1024, planes{nil, 1, 4}, 0.9}, {dtype.Float32, 1024, planes{nil, 2, 4}, 0.4}, {dtype.Float32, 1024, planes{nil, 3, 4}, 0.2},
		{dtype.BFloat16, 512, planes{nil, 1, 2}, 0.6}, {dtype.BFloat16, 512, planes{nil, 2, 2}, 0.2},
	} {
		if got := r.For(c.of, c.rowBytes, c.codec); math.Abs(got.At(1)-c.want) > 1e-12 || got.At(1000) != 1.4 {
			t.Errorf("%v rows of %d bytes, %v: %v, %v of ones, want %v, 1.4", c.of, c.rowBytes, c.codec, got.At(1), got.At(1000), c.want)
		}
	}
	if got := (GPURate{Rate: 0.8, Ratio: 1.25}).For(row, 264, nil); got.At(1) != 0.8 {
		t.Errorf("without figures of rows: %+v", got)
	}
}
