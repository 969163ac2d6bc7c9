package sleek

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/dtype"
)

// TestBounded_Golden: with a bound of 1/8 multiples of 1/4 are codes, and from 2^21 on patterns.
func TestBounded_Golden(t *testing.T) {
	b := newBounded(layouts[dtype.Float32], 0.2)
	if b.bound() != 0.125 {
		t.Fatalf("bound %v, want 0.125", b.bound())
	}
	bits := func(f float32) uint64 { return uint64(math.Float32bits(f)) }
	minus0 := uint64(1 << 31)
	for _, g := range []struct{ in, code, out uint64 }{
		{0, 0, 0}, {minus0, 0, 0}, {bits(0.1), 0, 0}, {bits(-0.1), 0, 0},
		{bits(1), 8, bits(1)}, {bits(-1), 7, bits(-1)},
		{bits(0.125), 2, bits(0.25)}, {bits(-0.125), 1, bits(-0.25)}, // ties go away from zero
		{bits(3.1), 24, bits(3)}, {bits(1 << 21), 1 << 24, bits(1 << 21)}, {bits(1<<21 - 0.125), 1 << 24, bits(1 << 21)},
		{bits(1<<21 + 0.25), 1<<24 + 2, bits(1<<21 + 0.25)}, {1, 0, 0},
		{0x7f800000, 2 * (0x7f800000 - b.offset), 0x7f800000}, {0xffc00001, 2*(0x7fc00001-b.offset) - 1, 0xffc00001},
	} {
		if code := b.code(g.in); code != g.code || b.wordOf(code) != g.out {
			t.Errorf("%08x has code %x and reads back as %08x, want %x and %08x", g.in, code, b.wordOf(code), g.code, g.out)
		}
	}
}

// valueOf returns an element as a float64, which holds any of 16 and 32 bits.
func valueOf(x uint64, l layout) float64 {
	m := l.mantissa()
	magnitude := x & (1<<(8*l.word-1) - 1)
	exponent, bias := int(magnitude>>m), 1<<(l.exponent-1)-1
	mantissa := magnitude & (1<<m - 1)
	if exponent == 0 {
		exponent = 1
	} else {
		mantissa |= 1 << m
	}
	v := math.Ldexp(float64(mantissa), exponent-bias-m)
	if x>>(8*l.word-1) != 0 {
		return -v
	}
	return v
}

// within says whether an element may read back as another.
func within(l layout, bound float64, x, y uint64) bool {
	special := uint64(1<<l.exponent-1) << l.mantissa()
	if x&special == special {
		return x == y
	}
	return y&special != special && math.Abs(valueOf(x, l)-valueOf(y, l)) <= bound
}

var bounds = []float64{1e-300, 5e-324, 1e-45, 1e-7, 1e-3, 0.5, 1, 77, 1e9, 1e30, 1e38, 1e100, math.MaxFloat64}

// TestBounded_EveryHalfWord takes all words of the 16-bit types.
func TestBounded_EveryHalfWord(t *testing.T) {
	for _, of := range []dtype.Type{dtype.Float16, dtype.BFloat16} {
		l := layouts[of]
		for _, bound := range bounds {
			b := newBounded(l, bound)
			for x := range uint64(1 << 16) {
				z := b.code(x)
				if y := b.wordOf(z); z >= 1<<16 || !within(l, bound, x, y) || b.code(y) != z {
					t.Fatalf("%v, bound %g: %04x has code %x and reads back as %04x, of code %x", of, bound, x, z, y, b.code(y))
				}
			}
		}
	}
}

// TestBounded_Sampled takes words of float32 and float64 with exponents around the threshold, at both ends and anywhere.
func TestBounded_Sampled(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, of := range []dtype.Type{dtype.Float32, dtype.Float64} {
		l := layouts[of]
		width, m := 8*l.word, l.mantissa()
		for _, bound := range bounds {
			b := newBounded(l, bound)
			for range 100_000 {
				x := r.Uint64() >> (64 - width)
				exponents := [...]uint64{0, 1, b.threshold - uint64(r.IntN(m+3)), b.threshold + uint64(r.IntN(2)), 1<<l.exponent - 1 - uint64(r.IntN(3)), x >> m}
				e := exponents[r.IntN(len(exponents))] & (1<<l.exponent - 1)
				x = x&^((1<<l.exponent-1)<<m) | e<<m
				if r.IntN(4) == 0 {
					x |= 1<<m - 1
				}
				z := b.code(x)
				y := b.wordOf(z)
				// Differences of float64 are rounded, but not across a power of two: the bound is one.
				if z>>(width-1)>>1 != 0 || !within(l, bound, x, y) || b.code(y) != z {
					t.Fatalf("%v, bound %g: %0*x has code %x and reads back as %0*x, of code %x", of, bound, width/4, x, z, width/4, y, b.code(y))
				}
			}
		}
	}
}

// TestBounded_RowsKeepTheBound goes through stored rows, and holds what the mode is for: fewer bytes at larger bounds.
func TestBounded_RowsKeepTheBound(t *testing.T) {
	table := normal(1<<16, dtype.Float32)
	last := int64(len(table))
	for _, bound := range []float64{1e-6, 1e-4, 1e-2, 1} {
		c, err := TrainBounded(table, 512, dtype.Float32, bound)
		if err != nil {
			t.Fatal(err)
		}
		if c.Bound() > bound || c.Bound() <= bound/2 {
			t.Errorf("bound %g is rounded to %g", bound, c.Bound())
		}
		dst, got := make([]byte, c.EncodeBound()), make([]byte, 512)
		for at := 0; at < len(table); at += 512 {
			row := table[at:][:512]
			n := c.encode(dst, row)
			if _, err := c.Decode(got, dst[:n]); err != nil {
				t.Fatal(err)
			}
			for i := 0; i < 512; i += 4 {
				x, y := binary.LittleEndian.Uint32(row[i:]), binary.LittleEndian.Uint32(got[i:])
				if !within(c.layout, c.Bound(), uint64(x), uint64(y)) {
					t.Fatalf("bound %g: %08x reads back as %08x", bound, x, y)
				}
			}
		}
		n := sampleBytes(table, []*Codec{c})[0]
		if n >= last {
			t.Errorf("bound %g: %d bytes, as much as with a hundredth of it (%d)", bound, n, last)
		}
		last = n
	}
}

func TestFamily_Bounded(t *testing.T) {
	f, err := Bounded.WithOption("0.001")
	if err != nil || f.Name != "sleek-eb:0.001" || !f.Lossy {
		t.Fatalf("%+v, %v", f, err)
	}
	c, err := f.Train(make([]byte, 64), 64, dtype.Float32)
	if err != nil || c.Name() != "sleek-eb:0.0009765625" {
		t.Fatalf("%v, %v", c, err)
	}
	for option, want := range map[string]string{
		"": `sleek: bound ("") must be a number`, "x": `sleek: bound ("x") must be a number`, "0": "sleek: bound (0) must be positive and finite",
		"-1e-3": "sleek: bound (-0.001) must be positive and finite", "nan": "sleek: bound (NaN) must be positive and finite",
		"inf": "sleek: bound (+Inf) must be positive and finite", "1e999": `sleek: bound ("1e999") must be a number`,
	} {
		if _, err := Bounded.WithOption(option); err == nil || err.Error() != want {
			t.Errorf("option %q: got %v, want %s", option, err, want)
		}
	}
}
