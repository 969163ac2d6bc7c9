package kernels_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/rank"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
)

// rankRows returns rows of a shape's symbols: each row has its own share of elements that a level passes on, from none to most, so
// that lists are empty, fit a tile, and exceed it. Their last bytes are those of no whole element.
func rankRows(r *rand.Rand, s rank.Shape, n, rowBytes int) []byte {
	var all []byte
	width := 8 * s.ElementBytes
	for i := range n {
		share := []float64{0, 0.05, 0.25, 0.6, 0.9}[i%5]
		row := make([]byte, 0, rowBytes+8)
		for len(row) < rowBytes {
			symbol, named := uint64(r.IntN(1<<s.SymbolBits)), s.Symbols
			for _, bits := range s.Digits {
				if r.Float64() >= share {
					symbol = uint64(named[r.IntN(1<<bits-1)])
					break
				}
				named = named[1<<bits-1:]
			}
			x := symbol<<(width-s.SymbolBits) | r.Uint64()&(1<<(width-s.SymbolBits)-1)
			if column := len(row) / s.ElementBytes; s.Bases != nil && column < len(s.Bases[0]) {
				x = (x + uint64(s.Bases[i%len(s.Bases)][column])<<(width-16)) & (1<<width - 1)
			}
			if s.Rotate == 1 {
				x = x>>1 | x&1<<(width-1)
			}
			row = binary.LittleEndian.AppendUint64(row, x)[:len(row)+s.ElementBytes]
		}
		all = append(all, row[:rowBytes]...)
	}
	return all
}

// rankDecodes is damagedDecodes of rows of a shape.
func rankDecodes(t *testing.T, gpu device.Device, reason error, r *rand.Rand, s rank.Shape, rowBytes int) (all, compressed int) {
	c, err := rank.New(rowBytes, s)
	if err != nil {
		t.Fatal(err)
	}
	return damagedDecodes(t, gpu, reason, r, c, rankRows(r, s, 30, rowBytes))
}

// damagedDecodes decodes rows, some of them damaged: the host's decoder says which of these are corrupt. It returns how many
// rows there were, and how many of them were compressed.
func damagedDecodes(t *testing.T, gpu device.Device, reason error, r *rand.Rand, c codec.Codec, data []byte) (all, compressed int) {
	rowBytes := c.RowBytes()
	rows := len(data) / rowBytes
	slabs, hits := encodeSlabs(c, data, rowBytes, rows, 1)
	damaged := make([]bool, rows)
	for k, h := range hits {
		l := slab.Location(h.Word)
		if all++; !l.Compressed() {
			continue
		}
		compressed++
		switch r.IntN(16) {
		case 0, 1, 2, 3:
			slabs[0][l.Offset()+int64(r.IntN(l.Stored(0)))] ^= 1 << r.IntN(8)
			damaged[k] = true
		case 4: // no stored row is as long
			hits[k].Word = uint64(slab.Compressed(0, l.Offset(), rowBytes+r.IntN(8)))
			damaged[k] = true
		}
	}
	both(t, gpu, reason, func(b *bench) decodeResult {
		k, out := decodeOf(b, c, slabs, hits, rowBytes, 0)
		b.launch(k)
		return decodeResult{b.counters(k.Counters), out.read(b)}
	}, func(t *testing.T, want, got decodeResult) {
		if want.count.Corrupt != got.count.Corrupt {
			t.Errorf("%d corrupt rows, want %d", got.count.Corrupt, want.count.Corrupt)
		}
		for k := range hits {
			row := got.out[k*rowBytes:][:rowBytes]
			if !damaged[k] && !bytes.Equal(row, data[k*7919%rows*rowBytes:][:rowBytes]) {
				t.Fatalf("row %d differs from its source", k)
			}
		}
	})
	return all, compressed
}

// randomBases returns bases for rows of rowBytes, of as many classes, up to those given, as there can be.
func randomBases(r *rand.Rand, s rank.Shape, rowBytes, classes int) (bases [][]uint16) {
	for classes > 1 && classes*((rowBytes+15)&^15) > 8192 {
		classes /= 2
	}
	for range classes {
		of := make([]uint16, rowBytes/s.ElementBytes)
		for j := range of {
			of[j] = uint16(r.Uint32())
		}
		bases = append(bases, of)
	}
	return bases
}

// names returns how many symbols digits of these lengths name.
func names(digits []int) int {
	n := 0
	for _, bits := range digits {
		n += 1<<bits - 1
	}
	return n
}

// TestCoders_RankShapes decodes rows of rank planes of many shapes: all lengths of level 0's digits, symbols of more and fewer bits than
// a byte, one level and eight.
func TestCoders_RankShapes(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	defer kernels.LimitLaunch(1, 1)() // several rows a tile
	all, compressed := 0, 0
	for i, digits := range [][]int{{1}, {2}, {3}, {4}, {1, 3, 4}, {2, 1, 2, 3}, {3, 2, 1, 1, 1}, {4, 4, 4, 2}, {1, 1, 1, 1, 1, 1, 1, 1}, {2, 2, 2, 2, 2, 2, 2, 2}} {
		for _, elementBytes := range []int{2, 4, 8} {
			for j, rowBytes := range race.Some([]int{48, 200, 256, 516, 1031, 2050, 4096, 9000}) {
				r := rand.New(rand.NewPCG(uint64(rowBytes*elementBytes), uint64(i)))
				s := rank.Shape{ElementBytes: elementBytes, Rotate: (i + j) % 2, Digits: digits}
				for s.SymbolBits = 2 + (5*i+3*j+elementBytes)%11; 1<<s.SymbolBits < names(digits); s.SymbolBits++ {
				}
				for _, symbol := range r.Perm(1 << s.SymbolBits)[:names(digits)] {
					s.Symbols = append(s.Symbols, uint16(symbol))
				}
				t.Run(fmt.Sprintf("element=%d/symbol=%d/digits=%v/row=%d", elementBytes, s.SymbolBits, digits, rowBytes), func(t *testing.T) {
					a, c := rankDecodes(t, gpu, reason, r, s, rowBytes)
					all, compressed = all+a, compressed+c
				})
				if elementBytes == 8 || rowBytes > 4096 {
					continue
				}
				s.Bases = randomBases(r, s, rowBytes, 1<<(i%5))
				t.Run(fmt.Sprintf("bases/element=%d/symbol=%d/digits=%v/row=%d", elementBytes, s.SymbolBits, digits, rowBytes), func(t *testing.T) {
					rankDecodes(t, gpu, reason, r, s, rowBytes)
				})
			}
		}
	}
	if compressed < all/2 {
		t.Errorf("%d of %d rows are compressed, want most", compressed, all)
	}
}

// TestCoders_RankBytes decodes rows of shapes that hits have kernels of their own for, of one segment and several, with the last one short.
func TestCoders_RankBytes(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	defer kernels.LimitLaunch(1, 1)() // several rows a tile
	all, compressed := 0, 0
	for i, digits := range [][]int{{2, 2}, {2, 1}, {2, 2, 2, 2}, {2, 1, 2, 3}, {2, 2, 4, 3}, {2, 1, 1, 1, 1, 1, 1, 1}, {1, 2, 2, 3}, {1, 1, 2}} {
		for _, elementBytes := range []int{2, 4} {
			for _, rowBytes := range []int{16, 48, 144, 256, 400, 512, 528, 1024, 1520, 2048, 3088, 4096, 8176} {
				r := rand.New(rand.NewPCG(uint64(rowBytes*elementBytes), uint64(i)))
				s := rank.Shape{ElementBytes: elementBytes, Rotate: 1, SymbolBits: 8, Digits: digits}
				for _, symbol := range r.Perm(256)[:names(digits)] {
					s.Symbols = append(s.Symbols, uint16(symbol))
				}
				t.Run(fmt.Sprintf("element=%d/digits=%v/row=%d", elementBytes, digits, rowBytes), func(t *testing.T) {
					a, c := rankDecodes(t, gpu, reason, r, s, rowBytes)
					all, compressed = all+a, compressed+c
				})
				if rowBytes > 4096 {
					continue
				}
				s.Rotate, s.Bases = i/2%2, randomBases(r, s, rowBytes, 1<<(i%5))
				t.Run(fmt.Sprintf("bases/element=%d/rotate=%d/digits=%v/row=%d", elementBytes, s.Rotate, digits, rowBytes), func(t *testing.T) {
					a, c := rankDecodes(t, gpu, reason, r, s, rowBytes)
					all, compressed = all+a, compressed+c
				})
				// Nine bits, of which digits name those with a 0 in bit 7, or fewer than eight.
				s.SymbolBits = 9
				if elementBytes == 2 && (i+rowBytes/16)%2 == 0 {
					s.SymbolBits = 5 + i%3
				}
				s.Symbols = nil
				for _, symbol := range r.Perm(1 << s.SymbolBits) {
					if symbol&(s.SymbolBits<<4&0x80) == 0 && len(s.Symbols) < names(digits) {
						s.Symbols = append(s.Symbols, uint16(symbol))
					}
				}
				t.Run(fmt.Sprintf("bits/element=%d/symbol=%d/digits=%v/row=%d", elementBytes, s.SymbolBits, digits, rowBytes), func(t *testing.T) {
					rankDecodes(t, gpu, reason, r, s, rowBytes)
				})
			}
		}
	}
	if compressed < all/2 {
		t.Errorf("%d of %d rows are compressed, want most", compressed, all)
	}
}

// TestCoders_RankClasses encodes rows of several classes on a GPU as the Go encoder does: the class of each row, in the length field or in
// front of the stream, included.
func TestCoders_RankClasses(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	for i, digits := range [][]int{{2, 1, 2, 3}, {1, 2, 2, 3}, {4, 4}} {
		for _, elementBytes := range []int{2, 4} {
			for j, rowBytes := range []int{20, 64, 128, 200, 256, 500, 1024, 2048, 4096} {
				r := rand.New(rand.NewPCG(uint64(rowBytes*elementBytes), uint64(i)))
				s := rank.Shape{ElementBytes: elementBytes, Rotate: (i + j) % 2, SymbolBits: 8 + j%3, Digits: digits}
				for _, symbol := range r.Perm(1 << s.SymbolBits)[:names(digits)] {
					s.Symbols = append(s.Symbols, uint16(symbol))
				}
				s.Bases = randomBases(r, s, rowBytes, 2<<(j%4))
				t.Run(fmt.Sprintf("element=%d/classes=%d/digits=%v/row=%d", elementBytes, len(s.Bases), digits, rowBytes), func(t *testing.T) {
					c, err := rank.New(rowBytes, s)
					if err != nil {
						t.Fatal(err)
					}
					const n = 40
					data := rankRows(r, s, n, rowBytes)
					stride := int64(rowBytes+3) &^ 3
					both(t, gpu, reason, func(b *bench) []byte {
						source := make([]byte, stride*n+slab.TailSlack)
						for i := range n {
							copy(source[int64(i)*stride:], data[i*rowBytes:][:rowBytes])
						}
						attached, err := kernels.AttachCodec(b.d, c)
						b.check(err)
						defer b.d.Free(attached.Meta)
						k := kernels.Encode{
							Rows: b.put(source), Stride: stride, Count: n, Codec: attached, Bits: b.alloc(8), Lengths: b.alloc(4 * n),
							Totals: b.alloc(abi.EncodeTotalsBytes), Scratch: b.alloc(16),
						}
						b.launch(&k)
						return append(b.get(k.Rows), b.get(k.Lengths)...)
					}, func(t *testing.T, want, got []byte) {
						if !bytes.Equal(want, got) {
							t.Error("rows or lengths differ from those that the Go encoder makes")
						}
					})
				})
			}
		}
	}
}
