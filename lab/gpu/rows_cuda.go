//go:build cuda && linux

package gpu

import (
	"math/rand/v2"
	"unsafe"
)

// normals returns N(0,1) elements.
func normals(bytes int64) pattern {
	return newPattern(bytes, func(r *rand.Rand) float32 { return float32(r.NormFloat64()) })
}

// randomRows returns uniform row numbers of [from, to).
func randomRows(n int, from, to int64, seed uint64) []int64 {
	rng := rand.New(rand.NewPCG(seed, 2))
	rows := make([]int64, n)
	for i := range rows {
		rows[i] = from + rng.Int64N(to-from)
	}
	return rows
}

// address is where b begins.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

func asBytes[T any](v []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(*new(T))))
}
