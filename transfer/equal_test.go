package transfer

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/race"
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
	race.SkipSequential(t)
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
				inPlace := load(t, data, rowBytes, Options{Codec: codec, DType: dtype.Uint8, EqualRows: true})
				most := int64(n * rowBytes / groupedBytes) // found beside the first of each content
				switch {
				case rowBytes < frequentRow:
					several, most = 0, 0
				case rowBytes < groupedRow: // each content is frequent
					most = int64(n * rowBytes / frequentBytes)
				}
				if got := inPlace.Totals().EqualRows; got > several || got < min(several, most) {
					t.Errorf("in place %d rows are in groups, want %d of %d contents, or %d", got, several, contents, most)
				}
				checkRows(t, inPlace, data)
				checkTotals(t, inPlace)
				checkGroups(t, inPlace, data)
				if apart := load(t, data, rowBytes, Options{Codec: codec, DType: dtype.Uint8}); apart.Totals().EqualRows != 0 || apart.Shares() {
					t.Errorf("%d rows are in groups, want none", apart.Totals().EqualRows)
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
		p, _, shared := sharedAt(tier, row)
		if shared && places[p] {
			continue
		}
		if shared {
			places[p] = true
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

// checkGroups: rows in one group are equal, and what says so takes at most 1/20 of the rows' bytes.
func checkGroups(t *testing.T, tier *Tier, data []byte) {
	t.Helper()
	n := int64(tier.RowBytes())
	contents := map[Place][]byte{}
	for row := range tier.Rows() {
		p, _, ok := tier.Shared(row)
		if !ok {
			continue
		}
		of := data[row*n:][:n]
		if contents[p] == nil {
			contents[p] = of
		}
		if !bytes.Equal(contents[p], of) {
			t.Fatalf("row %d is in group %v of other rows", row, p)
		}
	}
	if got, most := tier.EqualBytes(), int64(len(data)/20)+tier.rows/7+100; got > most {
		t.Fatalf("groups take %d bytes, want at most %d", got, most)
	}
}

// TestLoad_GroupsOfFewRows: rows are in groups if they have one equal row each, next to them or anywhere; not if few rows have one.
func TestLoad_GroupsOfFewRows(t *testing.T) {
	race.SkipSequential(t)
	const rows, rowBytes = 20_000, 1024
	for name, of := range map[string]struct {
		pairs int
		with  func(row int) int
		found bool
	}{
		"next":     {rows / 2, func(row int) int { return row + 1 }, true},
		"anywhere": {rows / 2, func(row int) int { return row + rows/2 }, true},
		"few":      {rows / 400, func(row int) int { return row + rows/2 }, false},
		"none":     {0, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			data := rowsOf(rows, rowBytes, 5)
			for row := range rows { // no two rows are equal
				copy(data[row*rowBytes:], fmt.Sprintf("%08d", row))
			}
			want := int64(0)
			for pair := range of.pairs {
				row := pair
				if name == "next" {
					row *= 2
				}
				copy(data[of.with(row)*rowBytes:][:rowBytes], data[row*rowBytes:])
				want += 2
			}
			if !of.found {
				want = 0
			}
			for _, codec := range []string{"none", "ibp4"} {
				tier := load(t, data, rowBytes, Options{Codec: codec, EqualRows: true})
				if got := tier.Totals().EqualRows; got > want || got < want*9/10 {
					t.Errorf("%s: %d rows are in groups, want about %d", codec, got, want)
				}
				checkTotals(t, tier)
				checkGroups(t, tier, data)
			}
		})
	}
}

// TestWrite_Groups writes rows of groups in place, until none is left there.
func TestWrite_Groups(t *testing.T) {
	const rows, capacity, rowBytes = 500, 600, 256
	for _, codec := range []string{"none", "ibp4"} {
		t.Run(codec, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			data := repeated(rows, rowBytes, 1)
			tier := load(t, data, rowBytes, Options{Codec: codec, Capacity: capacity, EqualRows: true})
			_, several := distinct(data, rowBytes)
			if got := tier.Totals().EqualRows; got != several {
				t.Fatalf("EqualRows (%d), want %d", got, several)
			}
			tier.Grow(capacity)
			data = append(bytes.Clone(data), make([]byte, (capacity-rows)*rowBytes)...)
			for i, row := range r.Perm(capacity) {
				next := make([]byte, rowBytes)
				for i := range next {
					next[i] = byte(r.Uint32N(4))
				}
				if _, _, err := write(t, tier, int64(row), next); err != nil {
					t.Fatal(err)
				}
				copy(data[row*rowBytes:], next)
				if _, _, ok := tier.Shared(int64(row)); ok {
					t.Fatalf("row %d is in a group after it was written", row)
				}
				if i%100 == 50 {
					checkRows(t, tier, data)
					checkTotals(t, tier)
					checkSlots(t, tier)
				}
			}
			checkSlots(t, tier)
			if total := tier.Totals(); total.EqualRows != 0 || tier.SharedBytes() != 0 {
				t.Fatalf("%+v, %d bytes of shared slots after all rows were written", total, tier.SharedBytes())
			}
		})
	}
}

// TestEqualSearch_ComparesOnce: a row is compared with about one other, whatever number of rows have a content.
func TestEqualSearch_ComparesOnce(t *testing.T) {
	const rows, rowBytes = 1 << 16, 512
	for _, contents := range []int{rows, rows / 2, rows / 10, rows / 1000, 1} {
		s := newEqualSearch(rows*rowBytes, rows)
		compared, found := 0, 0
		for row := range rows {
			content := uint64(row % contents)
			_, _, ok := s.find(int64(row), hashmap.Hash(content+1), func(other int64) bool {
				compared++
				return uint64(other)%uint64(contents) == content
			})
			if ok {
				found++
			}
		}
		s.memory.Free()
		if compared > rows+rows/50 || found < (rows-contents)*95/100 {
			t.Errorf("%d contents of %d rows: %d compared, %d found", contents, rows, compared, found)
		}
	}
}

// TestTier_Groups: rows have the number of their group or place, from the given number on, and others none. Each number has the place and the size that Shared has.
func TestTier_Groups(t *testing.T) {
	race.SkipSequential(t)
	const rows, rowBytes = 20_000, 256
	data := repeated(rows, rowBytes, 4)
	for _, mode := range modes {
		tier := load(t, data, rowBytes, Options{Codec: "ibp4", DType: dtype.Uint8, Mode: mode, EqualRows: true})
		numbers := make([]uint32, rows)
		before := []uint32{0, 1, 2, 3}
		sizes := tier.Groups(t.Context(), numbers, before)
		if len(sizes) != 7 || !slices.Equal(sizes[:4], before) {
			t.Fatalf("%v: sizes %v, want 3 behind those given", mode, sizes)
		}
		found := map[uint32]bool{}
		for row, number := range numbers {
			p, size, shared := tier.Shared(int64(row))
			if shared != (number != 0) || shared && (number < 4 || number >= 7) {
				t.Fatalf("%v: row %d has number %d of 4 to 6, shared %t", mode, row, number, shared)
			}
			if !shared {
				continue
			}
			if found[number] = true; tier.GroupPlace(number-4) != p || int64(sizes[number]) != size {
				t.Fatalf("%v: row %d: number %d is %v of %d rows, want %v, %d", mode, row, number, tier.GroupPlace(number-4), sizes[number], p, size)
			}
		}
		if len(found) != 3 {
			t.Errorf("%v: %d groups, want 3", mode, len(found))
		}
	}
}
