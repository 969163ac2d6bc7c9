package bitio

import (
	"math/rand/v2"
	"testing"
)

func TestTranspose_EveryBit(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var m [64]uint64
	for i := range m {
		m[i] = r.Uint64()
	}
	got := m
	Transpose(&got)
	for row := range 64 {
		for column := range 64 {
			if want, is := m[column]>>(63-row)&1, got[row]>>(63-column)&1; is != want {
				t.Fatalf("row %d, column %d: got %d, want %d", row, column, is, want)
			}
		}
	}
}

func TestSwap_Runs(t *testing.T) {
	const a, b = 0x0123456789abcdef, 0xfedcba9876543210
	for shift, want := range map[uint][2]uint64{
		32: {0x01234567fedcba98, 0x89abcdef76543210},
		8:  {0x01fe45ba8976cd32, 0x23dc6798ab54ef10},
	} {
		if x, y := Swap(a, b, shift); x != want[0] || y != want[1] {
			t.Errorf("runs of %d bits: got %x and %x, want %x", shift, x, y, want)
		}
	}
}
