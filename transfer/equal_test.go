package transfer

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/dtype"
)

// repeated returns rows of which most are one of a few: all zeros, one element throughout, or a row that was drawn once.
func repeated(rows, rowBytes int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 3))
	initial := rowsOf(1, rowBytes, seed+1)
	data := rowsOf(rows, rowBytes, seed+2)
	for i := range rows {
		row := data[i*rowBytes:][:rowBytes]
		switch r.IntN(5) {
		case 0:
			clear(row)
		case 1:
			copy(row, bytes.Repeat([]byte{9}, rowBytes))
		case 2:
			copy(row, initial)
		}
	}
	return data
}

// distinct returns the number of contents that several rows have, and of the rows that have them.
func distinct(data []byte, rowBytes int) (contents int, several int64) {
	counts := map[string]int64{}
	for i := 0; i < len(data); i += rowBytes {
		counts[string(data[i:][:rowBytes])]++
	}
	for _, n := range counts {
		if n > 1 {
			contents++
			several += n
		}
	}
	return contents, several
}

// TestPack_EqualRows: rows that are alike take one place, whether they are stored raw or compressed, and read back. Others do not.
func TestPack_EqualRows(t *testing.T) {
	for _, codec := range []string{"none", "ibp4", "sparse"} {
		for _, rowBytes := range []int{1, 30, 64, 600} {
			t.Run(fmt.Sprintf("%s/row=%d", codec, rowBytes), func(t *testing.T) {
				const rows = 100_000 // more than a part
				n := rows / (1 + rowBytes/64)
				data := repeated(n, rowBytes, uint64(rowBytes))
				tier := load(t, data, rowBytes, Options{Codec: codec, DType: dtype.Uint8, Mode: Packed})
				checkRows(t, tier, data)
				places, bytesOf := map[int64]int64{}, int64(0)
				for _, l := range tier.locations() {
					if places[l.Offset()]++; places[l.Offset()] == 1 {
						bytesOf += roundUp(int64(l.Stored(rowBytes)))
					}
				}
				sharing := int64(0)
				for _, n := range places {
					if n > 1 {
						sharing += n
					}
				}
				contents, several := distinct(data, rowBytes)
				if rowBytes > 1 && (contents != 3 || sharing != several) || sharing > several || sharing < several*9/10 {
					t.Errorf("%d rows share places, want %d of %d contents", sharing, several, contents)
				}
				if got := tier.Totals().EqualRows; got != sharing {
					t.Errorf("EqualRows (%d), want %d", got, sharing)
				}
				if got := tier.HostBytes(); got > bytesOf+200 {
					t.Errorf("host tier takes %d bytes, its places %d", got, bytesOf)
				}
				if inPlace := load(t, data, rowBytes, Options{Codec: codec, DType: dtype.Uint8}); inPlace.Totals().EqualRows != 0 {
					t.Errorf("in place %d rows share places", inPlace.Totals().EqualRows)
				}
			})
		}
	}
}

// TestWrite_EqualRows writes rows that share a place: the others keep theirs, also when the tier is packed anew, which shares the places again.
func TestWrite_EqualRows(t *testing.T) {
	const rows, capacity, rowBytes = 500, 600, 64
	for _, codec := range []string{"none", "ibp4"} {
		t.Run(codec, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			data := repeated(rows, rowBytes, 1)
			tier := load(t, data, rowBytes, Options{Codec: codec, Mode: Packed, Capacity: capacity})
			tier.Grow(capacity)
			data = append(bytes.Clone(data), make([]byte, (capacity-rows)*rowBytes)...)
			_, several := distinct(data[:rows*rowBytes], rowBytes)
			if got := tier.Totals().EqualRows; got != several {
				t.Fatalf("EqualRows (%d), want %d", got, several)
			}
			written := map[int64]bool{}
			for range 3 {
				for range 100 {
					row := r.Int64N(capacity)
					next := make([]byte, rowBytes)
					for i := range next {
						next[i] = byte(r.Uint32N(4)) // it may fit where the row lay
					}
					if _, _, err := write(t, tier, row, next); err == ErrFull {
						break
					} else if err != nil {
						t.Fatal(err)
					}
					copy(data[row*rowBytes:], next)
					written[row] = true
				}
				checkRows(t, tier, data)
				checkSlots(t, tier)
				old, err := tier.Repack()
				if err != nil {
					t.Fatal(err)
				}
				tier.home.Free(old.Mem)
				tier.home.Free(old.Index)
				checkRows(t, tier, data)
				checkSlots(t, tier)
				places := map[int64]int{}
				for row := range int64(capacity) {
					if !written[row] {
						places[tier.locations()[row].Offset()]++
					}
				}
				shared := 0
				for _, n := range places {
					if n > 10 {
						shared++
					}
				}
				if shared != 4 { // three contents, and the row of zeros behind them
					t.Fatalf("after Repack %d places have many rows, want 4", shared)
				}
			}
			for row := range int64(capacity) {
				if !written[row] {
					if _, _, err := write(t, tier, row, data[row*rowBytes:][:rowBytes]); err == ErrFull {
						old, err := tier.Repack()
						if err != nil {
							t.Fatal(err)
						}
						tier.home.Free(old.Mem)
						tier.home.Free(old.Index)
					} else if err != nil {
						t.Fatal(err)
					}
				}
			}
			checkRows(t, tier, data)
		})
	}
}

// checkSlots adds up the slots of rows: those at a place of several rows have one, but not the rows of zeros that the tier has grown by.
func checkSlots(t *testing.T, tier *Tier) {
	t.Helper()
	sum, several, places := int64(0), int64(0), map[Place]bool{}
	for row := range tier.Rows() {
		n, err := tier.SlotBytes(row)
		if err != nil {
			t.Fatal(err)
		}
		p, _, shared := tier.Shared(row)
		if shared && row < tier.owned && places[p] {
			continue
		}
		if places[p] = places[p] || shared; shared && row < tier.owned {
			several += int64(n)
		}
		sum += int64(n)
	}
	if got := tier.SharedBytes(); got != several {
		t.Fatalf("bytes of shared slots (%d), want %d", got, several)
	}
	if got := tier.Totals().SlotBytes; got != sum {
		t.Fatalf("slot bytes (%d), want %d", got, sum)
	}
}
