package slab

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"
)

func TestLocation_GoldenWords(t *testing.T) {
	for _, c := range []struct {
		got  Location
		want uint64
	}{
		{Raw(0, 0), 0},
		{Raw(7, 1<<40-16), 0x7ff_ffff_fff0},
		{Compressed(0, 0, 1), 0x0000_1800_0000_0000},
		{Compressed(5, 0x1234567890, 0xabcde), 0xabcd_ed12_3456_7890},
		{Compressed(7, 1<<40-16, MaxStored), 0xffff_efff_ffff_fff0},
		{NoLocation(Cold), 0xffff_ffff_ffff_ff00},
		{NoLocation(Oversize), 0xffff_ffff_ffff_ff04},
	} {
		if uint64(c.got) != c.want {
			t.Errorf("got %016x, want %016x", uint64(c.got), c.want)
		}
	}
}

func TestLocation_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slabID := rapid.IntRange(0, MaxSlabs-1).Draw(t, "slab")
		offset := rapid.Int64Range(0, MaxBytes-1).Draw(t, "offset")
		rowBytes := rapid.IntRange(2, MaxRowBytes).Draw(t, "row bytes")
		stored := rapid.IntRange(1, rowBytes-1).Draw(t, "stored")
		for _, l := range []Location{Raw(slabID, offset), Compressed(slabID, offset, stored)} {
			want := rowBytes
			if l.Compressed() {
				want = stored
			}
			if !l.Valid() || l.Slab() != slabID || l.Offset() != offset || l.Stored(rowBytes) != want {
				t.Fatalf("%v: does not read back", l)
			}
		}
	})
}

func TestLocation_FieldsOutOfRangePanic(t *testing.T) {
	for name, f := range map[string]func(){
		"slab":       func() { Raw(8, 0) },
		"negative":   func() { Raw(-1, 0) },
		"offset":     func() { Raw(0, 1<<40) },
		"offset < 0": func() { Raw(0, -16) },
		"stored 0":   func() { Compressed(0, 0, 0) },
		"stored max": func() { Compressed(0, 0, MaxRowBytes) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Fatal("no panic")
				}
			}()
			f()
		})
	}
}

// FuzzLocation reads arbitrary words: a word is a location that packs back to itself, or none with a reason.
func FuzzLocation(f *testing.F) {
	for _, l := range []Location{0, Raw(7, 16), Compressed(3, 1<<39, 77), NoLocation(Evicted), ^Location(0)} {
		f.Add(binary.LittleEndian.AppendUint64(nil, uint64(l)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 8 {
			return
		}
		l := Location(binary.LittleEndian.Uint64(b))
		_ = l.String()
		if !l.Valid() {
			if w := NoLocation(l.Reason()); l == l|^Location(0xff) && w != l {
				t.Fatalf("%016x reads back as %016x", uint64(l), uint64(w))
			}
			return
		}
		var again Location
		switch {
		case !l.Compressed():
			again = Raw(l.Slab(), l.Offset()) | l&noLocation // raw words carry no length
		case l.Stored(0) == 0:
			return
		default:
			again = Compressed(l.Slab(), l.Offset(), l.Stored(0))
		}
		if again != l {
			t.Fatalf("%016x reads back as %016x", uint64(l), uint64(again))
		}
	})
}

// TestLocation_EverySlabAndOffset: words of all eight slabs, up to the last offset, raw and compressed.
func TestLocation_EverySlabAndOffset(t *testing.T) {
	offsets := []int64{0, Align, 1<<32 - Align, 1 << 32, 1<<39 + Align, MaxBytes - Align, MaxBytes - 1}
	seen := map[Location]bool{}
	for id := range MaxSlabs {
		for _, offset := range offsets {
			for _, stored := range []int{0, 1, 511, 1 << 19, MaxStored} {
				l := Raw(id, offset)
				if stored > 0 {
					l = Compressed(id, offset, stored)
				}
				if !l.Valid() || l.Slab() != id || l.Offset() != offset || l.Compressed() != (stored > 0) || stored > 0 && l.Stored(9) != stored || stored == 0 && l.Stored(9) != 9 {
					t.Fatalf("slab %d offset %d stored %d reads back as %v", id, offset, stored, l)
				}
				if seen[l] {
					t.Fatalf("%v is the word of two places", l)
				}
				seen[l] = true
			}
		}
	}
	if MaxSlabs != 8 || MaxBytes != 1<<40 {
		t.Errorf("%d slabs of %d bytes", MaxSlabs, int64(MaxBytes))
	}
}
