package reduce

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
)

var floats = []dtype.Type{dtype.Float32, dtype.Float16, dtype.BFloat16}

// exact returns an element as a float64, by a definition of its own.
func exact(bits uint64, of dtype.Type) float64 {
	width, exponentBits := uint(8*of.Size()), uint(8)
	if of == dtype.Float16 {
		exponentBits = 5
	}
	fractionBits := width - 1 - exponentBits
	exponent, fraction := int(bits>>fractionBits&(1<<exponentBits-1)), float64(bits&(1<<fractionBits-1))
	bias, sign := 1<<(exponentBits-1)-1, 1.0
	if bits>>(width-1)&1 != 0 {
		sign = -1
	}
	one := math.Ldexp(1, int(fractionBits))
	switch exponent {
	case 1<<exponentBits - 1:
		if fraction != 0 {
			return math.NaN()
		}
		return sign * math.Inf(1)
	case 0:
		return sign * math.Ldexp(fraction/one, 1-bias)
	}
	return sign * math.Ldexp(1+fraction/one, exponent-bias)
}

func elementBits(row []byte, i int, of dtype.Type) uint64 {
	if of.Size() == 4 {
		return uint64(binary.LittleEndian.Uint32(row[4*i:]))
	}
	return uint64(binary.LittleEndian.Uint16(row[2*i:]))
}

// TestLoad_EveryHalf compares every 16-bit float with its definition, by vectors and one by one.
func TestLoad_EveryHalf(t *testing.T) {
	for _, of := range floats[1:] {
		row := make([]byte, 2<<16)
		for i := range 1 << 16 {
			binary.LittleEndian.PutUint16(row[2*i:], uint16(i))
		}
		sums := make([]float32, 1<<16)
		load(sums, row, of)
		at := float16At
		if of == dtype.BFloat16 {
			at = bfloat16At
		}
		for i, x := range sums {
			want := exact(uint64(i), of)
			for _, got := range []float64{float64(x), float64(at(row, i))} {
				if math.Float64bits(got) != math.Float64bits(want) && !(math.IsNaN(got) && math.IsNaN(want)) {
					t.Fatalf("%s %#x is %g, want %g", of, i, got, want)
				}
			}
		}
	}
}

// TestStore_RoundsToNearestEven compares rounding with a search among all elements, at and beside the middles between neighbours.
func TestStore_RoundsToNearestEven(t *testing.T) {
	for _, as := range floats[1:] {
		largest := uint64(0x7bff)
		if as == dtype.BFloat16 {
			largest = 0x7f7f
		}
		var sums []float32
		var want []uint64
		add := func(x float32, bits uint64) {
			sums, want = append(sums, x, -x), append(want, bits, bits|0x8000)
		}
		for bits := range largest {
			low, high := exact(bits, as), exact(bits+1, as)
			middle := float32((low + high) / 2)
			even := bits + bits&1
			add(float32(low), bits)
			if float64(middle) == (low+high)/2 { // not among the smallest bfloat16, which are float32's own subnormals
				add(middle, even)
				add(math.Nextafter32(middle, 0), bits)
				add(math.Nextafter32(middle, float32(math.Inf(1))), bits+1)
			}
		}
		add(float32(exact(largest, as)), largest)
		add(float32(math.Inf(1)), largest+1)
		add(math.MaxFloat32, largest+1)
		for _, one := range []bool{false, true} {
			out := make([]byte, 2*len(sums))
			if one {
				for i := range sums {
					store(out[2*i:], sums[i:i+1], as)
				}
			} else {
				store(out, sums, as)
			}
			for i := range sums {
				if got := elementBits(out, i, as); got != want[i] {
					t.Fatalf("%g becomes %s %#x, want %#x (one by one: %v)", sums[i], as, got, want[i], one)
				}
			}
		}
	}
}

func TestStore_OneNaN(t *testing.T) {
	for as, want := range map[dtype.Type]uint64{dtype.Float32: 0x7fc00000, dtype.BFloat16: 0x7fc0, dtype.Float16: 0x7e00} {
		var sums []float32
		for _, bits := range []uint32{0x7fc00000, 0xffc00000, 0x7f800001, 0xff800001, 0x7fffffff, 0xffffffff, 0x7fc00001, 0x7fa00000, 0xffbfffff} {
			sums = append(sums, math.Float32frombits(bits))
		}
		out := make([]byte, len(sums)*as.Size())
		store(out, sums, as)
		for i := range sums {
			if got := elementBits(out, i, as); got != want {
				t.Errorf("NaN %#x becomes %s %#x, want %#x", math.Float32bits(sums[i]), as, got, want)
			}
		}
	}
}

// randomRow returns elements of any bits, among them NaN, infinities and subnormals, and mostly numbers near 1.
func randomRow(r *rand.Rand, columns int, of dtype.Type) []byte {
	sums := make([]float32, columns)
	for i := range sums {
		sums[i] = float32(r.NormFloat64())
	}
	row := make([]byte, columns*of.Size())
	store(row, sums, of)
	for i := range columns {
		if r.IntN(8) == 0 {
			binary.LittleEndian.PutUint16(row[i*of.Size()+of.Size()-2:], uint16(r.Uint32()))
		}
	}
	return row
}

// TestVectors_EqualScalars compares the functions of this architecture with those in Go, to the bit.
func TestVectors_EqualScalars(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, of := range floats {
		for _, columns := range []int{1, 7, 8, 9, 15, 16, 100, 128, 131} {
			for op, do := range map[string]func(sums []float32, row []byte){
				"load":     func(sums []float32, row []byte) { load(sums, row, of) },
				"add":      func(sums []float32, row []byte) { addRow(sums, row, of) },
				"weighted": func(sums []float32, row []byte) { addWeighted(sums, row, 0.3, of) },
				"max":      func(sums []float32, row []byte) { maxRow(sums, row, of) },
			} {
				start := make([]float32, columns)
				for i := range start {
					start[i] = float32(r.NormFloat64())
				}
				row := randomRow(r, columns, of)
				with, without := append([]float32(nil), start...), append([]float32(nil), start...)
				do(with, row)
				setVectors(false, func() { do(without, row) })
				for i := range with {
					if a, b := with[i], without[i]; math.Float32bits(a) != math.Float32bits(b) && !(a != a && b != b) {
						t.Fatalf("%s %s of %d, element %d: %g by vectors, %g without", op, of, columns, i, a, b)
					}
				}
				for _, as := range floats {
					x, y := make([]byte, columns*as.Size()+8), make([]byte, columns*as.Size()+8)
					store(x, with, as)
					setVectors(false, func() { store(y, without, as) })
					if !bytes.Equal(x, y) {
						t.Fatalf("%s %s of %d stored as %s differs without vectors", op, of, columns, as)
					}
				}
			}
		}
	}
}

func offsets(all ...int64) device.Buffer {
	return device.HostBuffer(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(all))), 8*len(all)))
}

// TestFirstPiece_Tiles walks the pieces of bags from every position on: each is found once, by the part that it begins in.
func TestFirstPiece_Tiles(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for range 300 {
		var starts []int64
		n := int64(0)
		for range r.IntN(12) {
			starts = append(starts, n)
			n += int64([]int{0, 0, 1, 3, 32, 33, 64, 100}[r.IntN(8)])
		}
		bags := len(starts)
		if r.IntN(2) == 0 {
			starts = append(starts, n)
			n += int64(r.IntN(5)) // positions behind the last bag
		}
		v := NewView(&Batch{Rows: int(n), Bags: bags, Offsets: offsets(starts...)})
		if v.BadOffset() >= 0 {
			t.Fatal(starts)
		}
		var want, got []string
		for b := range bags {
			for at := v.Start(b); at == v.Start(b) || at < v.End(b); at += 32 {
				want = append(want, fmt.Sprint(b, at))
			}
		}
		step := 1 + r.IntN(70)
		end := max(v.Start(bags), 1)
		for from := 0; from < end; from += step {
			to := min(from+step, end)
			for b, at := v.FirstPiece(from, 32); b < bags && (at < to || to == end); {
				got = append(got, fmt.Sprint(b, at))
				if at += 32; at >= v.End(b) {
					b++
					at = v.Start(b)
				}
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("offsets %v of %d rows, parts of %d: pieces %v, want %v", starts, n, step, got, want)
		}
	}
}

func TestBadOffset(t *testing.T) {
	for _, test := range []struct {
		offsets []int64
		want    int
	}{
		{[]int64{0, 2, 5}, -1}, {[]int64{0, 5, 5}, -1}, {nil, -1}, {[]int64{1, 2}, 0}, {[]int64{-1}, 0}, {[]int64{0, 3, 2}, 2}, {[]int64{0, 6}, 1},
		{[]int64{0, math.MinInt64}, 1}, {[]int64{0, math.MaxInt64}, 1},
	} {
		v := NewView(&Batch{Rows: 5, Bags: len(test.offsets), Offsets: offsets(test.offsets...)})
		if got := v.BadOffset(); got != test.want {
			t.Errorf("offsets %v: %d is bad, want %d", test.offsets, got, test.want)
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, of := range floats {
		row, sums := randomRow(r, 128, of), make([]float32, 128)
		b.Run(of.String(), func(b *testing.B) {
			b.SetBytes(int64(len(row)))
			for range b.N {
				addRow(sums, row, of)
			}
		})
	}
}
