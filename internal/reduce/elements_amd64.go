package reduce

import (
	"unsafe"

	"golang.org/x/sys/cpu"

	"github.com/tensorcache/tensorcache/dtype"
)

// vectors says whether the processor has AVX2 and F16C. Every processor with AVX2 and FMA has F16C.
var vectors = cpu.X86.HasAVX2 && cpu.X86.HasFMA

// The functions of elements_amd64.s do n elements, a multiple of 8, at least 8.
//
//go:noescape
func loadFloat16(sums *float32, row *byte, n int)

//go:noescape
func loadBFloat16(sums *float32, row *byte, n int)

//go:noescape
func addFloat32(sums *float32, row *byte, n int)

//go:noescape
func addFloat16(sums *float32, row *byte, n int)

//go:noescape
func addBFloat16(sums *float32, row *byte, n int)

//go:noescape
func addWeightedFloat32(sums *float32, row *byte, n int, w float32)

//go:noescape
func addWeightedFloat16(sums *float32, row *byte, n int, w float32)

//go:noescape
func addWeightedBFloat16(sums *float32, row *byte, n int, w float32)

//go:noescape
func maxFloat32(sums *float32, row *byte, n int)

//go:noescape
func maxFloat16(sums *float32, row *byte, n int)

//go:noescape
func maxBFloat16(sums *float32, row *byte, n int)

//go:noescape
func storeFloat32(out *byte, sums *float32, n int)

//go:noescape
func storeFloat16(out *byte, sums *float32, n int)

//go:noescape
func storeBFloat16(out *byte, sums *float32, n int)

//go:noescape
func prefetch(p *byte, n int)

// pointers returns where sums and row begin, and how many elements vectors do.
func pointers(sums []float32, row []byte, of dtype.Type) (s *float32, r *byte, n int) {
	if n = len(sums) &^ 7; !vectors || n == 0 {
		return nil, nil, 0
	}
	_ = row[n*of.Size()-1]
	return unsafe.SliceData(sums), unsafe.SliceData(row), n
}

func loadVectors(sums []float32, row []byte, of dtype.Type) int {
	s, r, n := pointers(sums, row, of)
	switch {
	case n == 0:
	case of == dtype.Float32:
		copy(unsafe.Slice((*byte)(unsafe.Pointer(s)), 4*n), row)
	case of == dtype.Float16:
		loadFloat16(s, r, n)
	default:
		loadBFloat16(s, r, n)
	}
	return n
}

func addVectors(sums []float32, row []byte, of dtype.Type) int {
	s, r, n := pointers(sums, row, of)
	switch {
	case n == 0:
	case of == dtype.Float32:
		addFloat32(s, r, n)
	case of == dtype.Float16:
		addFloat16(s, r, n)
	default:
		addBFloat16(s, r, n)
	}
	return n
}

func addWeightedVectors(sums []float32, row []byte, w float32, of dtype.Type) int {
	s, r, n := pointers(sums, row, of)
	switch {
	case n == 0:
	case of == dtype.Float32:
		addWeightedFloat32(s, r, n, w)
	case of == dtype.Float16:
		addWeightedFloat16(s, r, n, w)
	default:
		addWeightedBFloat16(s, r, n, w)
	}
	return n
}

func maxVectors(sums []float32, row []byte, of dtype.Type) int {
	s, r, n := pointers(sums, row, of)
	switch {
	case n == 0:
	case of == dtype.Float32:
		maxFloat32(s, r, n)
	case of == dtype.Float16:
		maxFloat16(s, r, n)
	default:
		maxBFloat16(s, r, n)
	}
	return n
}

func storeVectors(out []byte, sums []float32, as dtype.Type) int {
	s, o, n := pointers(sums, out, as)
	switch {
	case n == 0:
	case as == dtype.Float32:
		storeFloat32(o, s, n)
	case as == dtype.Float16:
		storeFloat16(o, s, n)
	default:
		storeBFloat16(o, s, n)
	}
	return n
}

// Prefetch asks for memory that is soon read.
func Prefetch(mem []byte) {
	if len(mem) > 0 {
		prefetch(unsafe.SliceData(mem), len(mem))
	}
}
