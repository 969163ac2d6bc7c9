//go:build long

package ibp

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestLong_PackExpandEveryMaskShape takes every mask of 16 neighbouring bits at every place of a word, and 20 M random
// masks, and holds pack and expand against moving bit by bit.
func TestLong_PackExpandEveryMaskShape(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	check := func(mask uint64, chunk int) {
		val := r.Uint64() & mask
		g := newGroup(mask, val, chunk)
		x := r.Uint64()&^mask | val
		packed, garbage, width := uint64(0), uint64(0), 8*chunk
		for c := 0; c < 64; c += width {
			n := c
			for b := c; b < c+width; b++ {
				if mask>>b&1 == 0 {
					packed |= x >> b & 1 << n
					n++
				}
			}
			if n < c+width {
				garbage |= r.Uint64() << n & (^uint64(0) >> (64 - c - width))
			}
		}
		got := g.pack(x)
		if got != packed {
			t.Fatalf("S=%d mask %016x: pack(%016x) = %016x, want %016x", chunk, mask, x, got, packed)
		}
		// What lies above the kept bits must not matter.
		if back := g.expand(packed | garbage); back != x {
			t.Fatalf("S=%d mask %016x: expand(%016x) = %016x, want %016x", chunk, mask, packed, back, x)
		}
		if g.short {
			if back := g.expandShort(packed | garbage); back != x {
				t.Fatalf("S=%d mask %016x: expandShort(%016x) = %016x, want %016x", chunk, mask, packed, back, x)
			}
		}
	}
	for _, chunk := range []int{4, 8} {
		for shape := range uint64(1 << 16) {
			for shift := range 49 {
				check(shape<<shift, chunk)
			}
		}
		for range 10_000_000 {
			check(r.Uint64()&r.Uint64()|r.Uint64(), chunk)
		}
	}
}

// TestLong_EveryRowLength round-trips rows of every length up to 16 KiB, trained on their own table.
func TestLong_EveryRowLength(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for n := 1; n <= 16<<10; n++ {
		for _, chunk := range []int{4, 8} {
			c := randomCodec(r, chunk, n)
			row, got, dst := make([]byte, n), make([]byte, n), make([]byte, c.EncodeBound())
			for range 2 {
				randomRow(r, c, row)
				stored := c.encode(dst, row)
				if m, err := c.Decode(got, dst[:stored:stored]); err != nil || m != stored || !bytes.Equal(got, row) {
					t.Fatalf("%s row %d: %d of %d bytes, %v", c.name, n, m, stored, err)
				}
			}
		}
	}
}
