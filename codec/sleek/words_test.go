package sleek

import (
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/dtype"
)

// transcribed are the steps of SLEEK's transform as published for float32, with the exponent's bits as a parameter.
func transcribed(x uint64, l layout) uint64 {
	width := 8 * l.word
	full, half, one := ^uint64(0)>>(64-width), uint64(1)<<(width-1), uint64(1)<<(width-l.exponent)
	top := full &^ (one - 1)
	v := (x<<1 | x>>(width-1)) & full
	if v&top != 0 {
		v = (v - half) & full
		if v&top == 0 || v >= half {
			v = (v - one) & full
		}
	}
	sign := uint64(0)
	if v >= half {
		sign = full
	}
	return (v<<1 ^ sign) & full
}

// transcribedInverse is the published inverse.
func transcribedInverse(v uint64, l layout) uint64 {
	width := 8 * l.word
	full, half, one := ^uint64(0)>>(64-width), uint64(1)<<(width-1), uint64(1)<<(width-l.exponent)
	v = (v>>1 ^ -(v & 1)) & full
	if v&^(one-1) != 0 {
		if v >= half {
			v = (v + one) & full
		}
		v = (v + half) & full
	}
	return v>>1 | v&1<<(width-1)
}

func TestForward_Golden(t *testing.T) {
	l := lanesOf(layouts[dtype.Float32])
	for in, out := range map[uint64]uint64{
		0: 0, 0x80000000: 2, 0x3f800000: 0x03ffffff, 0xbf800000: 0x03fffffd, 0x40490fdb: 0x00dbc093, 0x7f800000: 0xfe000000,
		0x7fc00000: 0xff000000, 0xffffffff: 0xfffffffe, 1: 4,
	} {
		if got := l.forward(in | in<<32); got != out|out<<32 {
			t.Errorf("forward(%08x) = %016x, want %08x in both lanes", in, got, out)
		}
		if got := l.inverse(out | out<<32); got != in|in<<32 {
			t.Errorf("inverse(%08x) = %016x, want %08x in both lanes", out, got, in)
		}
	}
}

// TestForward_EqualsPublishedSteps: every word of 16 bits, in every lane beside random others, and random wider ones
// with exponents at both ends.
func TestForward_EqualsPublishedSteps(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, of := range layouts {
		l := lanesOf(of)
		check := func(x uint64) {
			z, back := l.forward(x), l.inverse(x)
			var want, wantBack uint64
			widest := 0
			for lane := uint(0); lane < 64; lane += l.width {
				word := x >> lane & l.full
				want |= transcribed(word, of) << lane
				wantBack |= transcribedInverse(word, of) << lane
				widest = max(widest, bits.Len64(transcribed(word, of)))
			}
			if z != want || l.inverse(z) != x {
				t.Fatalf("%v: forward(%016x) = %016x, want %016x; back %016x", of, x, z, want, l.inverse(z))
			}
			if back != wantBack {
				t.Fatalf("%v: inverse(%016x) = %016x, want %016x", of, x, back, wantBack)
			}
			if got := l.widest(z); got != uint(widest) {
				t.Fatalf("%v: widest(%016x) = %d, want %d", of, z, got, widest)
			}
		}
		if of.word == 2 {
			for word := range uint64(1 << 16) {
				for lane := 0; lane < 64; lane += 16 {
					check(r.Uint64()&^(0xffff<<lane) | word<<lane)
				}
			}
			continue
		}
		for range 300_000 {
			x := r.Uint64()
			check(x)
			// Exponents at the ends of what the transform tells apart, whatever the sign and the mantissa.
			mantissa := l.width - 1 - uint(of.exponent)
			exponents := [...]uint64{0, 1, 1<<(of.exponent-1) - 1, 1 << (of.exponent - 1), 1<<(of.exponent-1) + 1, 1<<of.exponent - 1}
			for lane := uint(0); lane < 64; lane += l.width {
				x = x&^((1<<of.exponent-1)<<mantissa<<lane) | exponents[r.IntN(len(exponents))]<<mantissa<<lane
			}
			check(x)
			check(x & (l.low * (1<<(l.width-1) | 0xff))) // subnormal ones and zeros
		}
	}
}
