package kernels_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/codec/parts"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/kernels"
)

// codedPart returns a part all of whose planes are coded, with symbols at random and, if based is set, bases.
func codedPart(r *rand.Rand, elementBytes, elements, rotate, symbolBits int, digits [2]int, based bool) parts.Part {
	p := parts.Part{ElementBytes: elementBytes, Elements: elements, Rotate: rotate}
	for range elementBytes {
		plane := parts.Plane{Kind: parts.Coded, SymbolBits: symbolBits, Digits: digits}
		symbols := r.Perm(1 << symbolBits)
		for level, n := range digits {
			for digit := range 1<<n - 1 {
				plane.Symbols[level][digit] = byte(symbols[0])
				symbols = symbols[1:]
			}
		}
		if based {
			for range elements {
				plane.Bases = append(plane.Bases, byte(r.Uint32()))
			}
		}
		p.Planes = append(p.Planes, plane)
	}
	return p
}

// partsRows returns rows of coded parts: each row has its own share of elements that a level passes on, from none to most.
func partsRows(r *rand.Rand, of []parts.Part, n int) (all []byte) {
	for i := range n {
		share := []float64{0, 0.05, 0.25, 0.6, 0.9}[i%5]
		for _, part := range of {
			for e := range part.Elements {
				var x uint64
				for k, p := range part.Planes {
					symbol := byte(r.IntN(1 << p.SymbolBits))
					for level, n := range p.Digits {
						if r.Float64() >= share {
							symbol = p.Symbols[level][r.IntN(1<<n-1)]
							break
						}
					}
					b := symbol<<(8-p.SymbolBits) | byte(r.IntN(1<<(8-p.SymbolBits)))
					if p.Bases != nil {
						b += p.Bases[e]
					}
					x |= uint64(b) << (8 * k)
				}
				if part.Rotate == 1 {
					x = x>>1 | x&1<<(8*part.ElementBytes-1)
				}
				all = append(all, binary.LittleEndian.AppendUint64(nil, x)[:part.ElementBytes]...)
			}
		}
	}
	return all
}

// TestCoders_PartsShapes decodes rows of coded parts of many shapes: one segment and several, the last one short; parts that are shorter than a lane's unit, and
// that do not begin at 16 bytes; elements of several bytes; all lengths of digits and of symbols, and bases.
func TestCoders_PartsShapes(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	defer kernels.LimitLaunch(1, 1)() // several rows a tile
	all, compressed := 0, 0
	for i, digits := range [][2]int{{2, 2}, {2, 1}, {1, 2}, {1, 1}} {
		for j, sizes := range [][][2]int{{{1, 256}, {1, 8}}, {{1, 512}, {1, 16}}, {{1, 2048}, {1, 64}}, {{1, 31}, {1, 1}, {1, 33}, {4, 9}}, {{2, 40}, {1, 1300}, {8, 5}}, {{1, 8000}, {4, 40}},
			{{1, 480}, {1, 8}}, {{1, 16}, {1, 64}, {1, 16}}, {{1, 4112}, {1, 16}}, {{1, 16}}} {
			r := rand.New(rand.NewPCG(uint64(i), uint64(j)))
			var of []parts.Part
			for k, size := range sizes {
				symbolBits, rotate, based := 3+(i+2*j+3*k)%6, (i+j+k)%2, (i+j+k)%3 == 0
				quads := (k == 0 || k == 2 && j == 7) && digits == [2]int{2, 2}
				switch {
				case quads: // those of 16 elements each have a decoder of their own
					symbolBits, rotate, based = 4, 1, j%2 == 0
				case k == 1 && j != 4: // and so have the shorter ones of these
					symbolBits, rotate, based = 8, 0, false
				}
				p := codedPart(r, size[0], size[1], rotate, symbolBits, digits, based)
				for e, base := range p.Planes[0].Bases {
					if quads && j != 8 { // odd ones are for the other decoder
						p.Planes[0].Bases[e] = base &^ 1
					}
				}
				of = append(of, p)
			}
			t.Run(fmt.Sprintf("digits=%v/parts=%v", digits, sizes), func(t *testing.T) {
				c, err := parts.New(1+j%2, of)
				if err != nil {
					t.Fatal(err)
				}
				a, n := damagedDecodes(t, gpu, reason, r, c, partsRows(r, of, 30))
				all, compressed = all+a, compressed+n
			})
		}
	}
	if compressed < all/3 {
		t.Errorf("%d of %d rows are compressed, want a third", compressed, all)
	}
}
