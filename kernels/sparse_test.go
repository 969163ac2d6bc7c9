package kernels_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/codec/sparse"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
)

// sparseShape returns a shape with symbols for digits of the given bits.
func sparseShape(r *rand.Rand, elementBytes, digit int) sparse.Shape {
	s := sparse.Shape{ElementBytes: elementBytes, Rotate: r.IntN(2)}
	if r.IntN(2) == 0 {
		s.Background = r.Uint64() >> (64 - 8*elementBytes)
	}
	s.SymbolBits = max(1, digit) + r.IntN(min(12, 8*elementBytes)-max(1, digit)+1)
	for _, symbol := range r.Perm(1 << s.SymbolBits)[:1<<digit] {
		s.Symbols = append(s.Symbols, uint16(symbol))
	}
	return s
}

// sparseRow returns a row whose entries, of such a share, are of one of four kinds: one value, few values, symbols with any rest, any values.
func sparseRow(r *rand.Rand, s sparse.Shape, rowBytes int, share float64, kind int) []byte {
	width := 8 * s.ElementBytes
	palette := make([]uint64, 2+r.IntN(40))
	for i := range palette {
		palette[i] = r.Uint64()
	}
	row := make([]byte, 0, rowBytes+8)
	for len(row) < rowBytes {
		x := s.Background
		if r.Float64() < share {
			switch kind {
			case 0:
				x = palette[0]
			case 1:
				x = palette[r.IntN(len(palette))]
			case 2:
				x = uint64(s.Symbols[r.IntN(len(s.Symbols))])<<(width-s.SymbolBits) | r.Uint64()&(1<<(width-s.SymbolBits)-1)
				if s.Rotate == 1 {
					x = x>>1 | x&1<<(width-1)
				}
			default:
				x = r.Uint64()
			}
		}
		row = binary.LittleEndian.AppendUint64(row, x)[:len(row)+s.ElementBytes]
	}
	return row[:rowBytes]
}

// TestCoders_SparseHits decodes rows of one table that have any share of entries, of any kind: lists of entries and of background elements,
// bitmaps, and neither; by all lengths of digits and all units of stores; of one segment and of several, shorter and longer than a stage. A warp has rows
// of all of these at the same time.
func TestCoders_SparseHits(t *testing.T) { sparseHits(t, false) }

// TestCoders_SparseHitsCorrupt damages some of these rows: the host's decoder says which are corrupt, and the others are right.
func TestCoders_SparseHitsCorrupt(t *testing.T) {
	t.Run("sparse", func(t *testing.T) { sparseHits(t, true) })
}

func sparseHits(t *testing.T, damage bool) {
	gpu, reason := gputest.OpenIfAny(t)
	defer kernels.LimitLaunch(1, 2)()
	shares := []float64{0, 0.004, 0.05, 0.3, 0.5, 0.8, 0.97, 1}
	all, compressed := 0, 0
	for _, elementBytes := range []int{1, 2, 4, 8} {
		for i, rowBytes := range []int{16, 40, 131, 256, 300, 512, 520, 1030, 2048, 2408, 4096, 4100, 6000, 8188, 8192, 14_812, 20_001} {
			r := rand.New(rand.NewPCG(uint64(rowBytes), uint64(elementBytes)))
			s := sparseShape(r, elementBytes, (i+elementBytes)%7)
			t.Run(fmt.Sprintf("element=%d/row=%d", elementBytes, rowBytes), func(t *testing.T) {
				c, err := sparse.New(rowBytes, s)
				if err != nil {
					t.Fatal(err)
				}
				const distinct, rows = 96, 211
				var data []byte
				for k := range distinct {
					data = append(data, sparseRow(r, s, rowBytes, shares[k%8], k/8%4)...)
				}
				slabs, hits := encodeSlabs(c, data, rowBytes, rows, 1)
				damaged := map[slab.Location]bool{}
				for k, h := range hits {
					l := slab.Location(h.Word)
					if all++; !l.Compressed() {
						continue
					}
					if compressed++; damage && k < distinct && r.IntN(6) == 0 {
						slabs[0][l.Offset()+int64(r.IntN(l.Stored(0)))] ^= 1 << r.IntN(8)
						damaged[l] = true
					}
				}
				both(t, gpu, reason, func(b *bench) decodeResult {
					k, out := decodeOf(b, c, slabs, hits, rowBytes, 0)
					k.Leave = 100
					b.launch(k)
					return decodeResult{b.counters(k.Counters), out.read(b)}
				}, func(t *testing.T, want, got decodeResult) {
					if want.count.Corrupt != got.count.Corrupt || !damage && got.count.Corrupt != 0 {
						t.Errorf("%d corrupt rows, want %d", got.count.Corrupt, want.count.Corrupt)
					}
					for k, h := range hits {
						row := got.out[k*rowBytes:][:rowBytes]
						if !damaged[slab.Location(h.Word)] && !bytes.Equal(row, data[k*7919%distinct*rowBytes:][:rowBytes]) {
							t.Fatalf("row %d (share %g, kind %d) differs from its source", k, shares[k*7919%distinct%8], k*7919%distinct/8%4)
						}
					}
				})
			})
		}
	}
	if compressed < all/2 {
		t.Errorf("%d of %d rows are compressed, want most", compressed, all)
	}
}

// TestCoders_SparseOrderCorrupt damages the lists of rows: of two neighbours with the same upper half the second gets the first one's lower half, so
// that a position is there twice. Nothing but the order of positions says so.
func TestCoders_SparseOrderCorrupt(t *testing.T) { t.Run("sparse", sparseOrder) }

func sparseOrder(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	defer kernels.LimitLaunch(1, 2)()
	const rowBytes, elements, header, rows, damagedRows = 512, 128, 8 + 7, 600, 500
	r := rand.New(rand.NewPCG(1, 2))
	s := sparse.Shape{ElementBytes: 4, SymbolBits: 1}
	c, err := sparse.New(rowBytes, s)
	if err != nil {
		t.Fatal(err)
	}
	var data []byte
	for range rows {
		data = append(data, sparseRow(r, s, rowBytes, 0.15, 0)...)
	}
	slabs, hits := encodeSlabs(c, data, rowBytes, rows, 1)
	want := uint32(0)
	for k, h := range hits[:damagedRows] {
		row := data[k*7919%rows*rowBytes:][:rowBytes]
		var positions []int
		for e := range elements {
			if binary.LittleEndian.Uint32(row[4*e:]) != 0 {
				positions = append(positions, e)
			}
		}
		low := 0
		for len(positions)<<(low+1) <= elements {
			low++
		}
		var pairs []int
		for i := 1; i < len(positions); i++ {
			if positions[i]>>low == positions[i-1]>>low {
				pairs = append(pairs, i)
			}
		}
		l := slab.Location(h.Word)
		bitmap := len(positions)*(1+low)+(elements-1)>>low >= elements
		if len(pairs) == 0 || bitmap || !l.Compressed() {
			continue
		}
		stored := slabs[0][l.Offset():][:l.Stored(0)]
		at := header + len(positions) + (elements-1)>>low + pairs[r.IntN(len(pairs))]*low
		for bit := at; bit < at+low; bit++ {
			stored[bit/8] = stored[bit/8]&^(1<<(bit%8)) | stored[(bit-low)/8]>>((bit-low)%8)&1<<(bit%8)
		}
		want++
	}
	if want < damagedRows/2 {
		t.Fatalf("%d rows are damaged, want most of %d", want, damagedRows)
	}
	both(t, gpu, reason, func(b *bench) uint32 {
		k, out := decodeOf(b, c, slabs, hits, rowBytes, 0)
		b.launch(k)
		out.read(b)
		return b.counters(k.Counters).Corrupt
	}, func(t *testing.T, host, got uint32) {
		if host != want || got != want {
			t.Errorf("%d corrupt rows on the host and %d on the device, want %d", host, got, want)
		}
	})
}
