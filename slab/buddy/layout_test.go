package buddy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tensorcache/tensorcache/slab"
)

// The golden values of docs/format/buddy.md.
func TestWord_Golden(t *testing.T) {
	for _, c := range []struct {
		word       Word
		bits       uint64
		text       string
		home, comp bool
		stored     int
	}{
		{Raw, 1, "home raw", true, false, 300},
		{Home(300, false), 1, "home raw", true, false, 300},
		{Compressed(200), 0x000c880000000001, "home compressed 200", true, true, 200},
		{Home(slab.MaxStored, true), 0xffffe80000000001, "home compressed 1048574", true, true, slab.MaxStored},
		{Compressed(200).In(13), 0x000c88000000001b, "home compressed 200 in range 13", true, true, 200},
		{Compressed(200).In(15).In(2), 0x000c880000000005, "home compressed 200 in range 2", true, true, 200},
		{At(slab.Compressed(7, 0x40, 200)), 0x000c8f0000000040, "slab 7+64 compressed 200", false, true, 200},
		{At(slab.Raw(1, 32)), 0x10000000020, "slab 1+32 raw", false, false, 300},
	} {
		if uint64(c.word) != c.bits || c.word.String() != c.text || c.word.IsHome() != c.home || c.word.IsCompressed() != c.comp || c.word.Stored(300) != c.stored {
			t.Errorf("%#x, %v, home %v, compressed %v, stored %d; want %#x, %+v", uint64(c.word), c.word, c.word.IsHome(), c.word.IsCompressed(), c.word.Stored(300), c.bits, c)
		}
		if !c.home && Word(c.word.Location()) != c.word {
			t.Errorf("%v: location %v", c.word, c.word.Location())
		}
	}
}

func TestLayout_Golden(t *testing.T) {
	l, err := NewLayout(208, 300, 10, 3)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(l.Over(), l.Device(7), l.Local(7), l.Slot(7), l.Overflow(7), l.LocalRows(0), l.LocalRows(1), l.LocalRows(2),
		l.SlotsBytes(0), l.WordsBytes(0), l.BuddyBytes(0), l.DeviceBytes(1))
	if want := "96 1 2 416 192 4 3 3 960 32 512 776"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	slot, overflow := l.Split(make([]byte, 250))
	if len(slot) != 208 || len(overflow) != 42 {
		t.Errorf("split into %d and %d bytes", len(slot), len(overflow))
	}
	if slot, overflow = l.Split(make([]byte, 9)); len(slot) != 9 || len(overflow) != 0 {
		t.Errorf("split into %d and %d bytes", len(slot), len(overflow))
	}
}

// Every place of every row is within its array, apart from all others, and long enough for the longest row.
func TestLayout_PlacesAreDisjoint(t *testing.T) {
	for devices := 1; devices <= slab.MaxSlabs; devices++ {
		for _, rowBytes := range []int{4, 15, 16, 17, 64, 300, 8192} {
			for target := MinTarget; target <= MaxTarget(rowBytes); target = max(target+16, target*3/2/16*16) {
				for _, rows := range []int64{0, 1, 7, 8, 100} {
					l, err := NewLayout(target, rowBytes, rows, devices)
					if err != nil {
						t.Fatal(err)
					}
					seen, total := map[[2]int64]bool{}, int64(0)
					for d := range devices {
						total += l.LocalRows(d)
					}
					if total != rows || l.Target+l.Over() < rowBytes {
						t.Fatalf("%+v: %d rows, %d + %d bytes", l, total, l.Target, l.Over())
					}
					for r := range rows {
						d, i := l.Device(r), l.Local(r)
						if seen[[2]int64{int64(d), i}] || l.Row(d, i) != r || i >= l.LocalRows(d) {
							t.Fatalf("%+v: row %d is at %d, %d", l, r, d, i)
						}
						seen[[2]int64{int64(d), i}] = true
						if l.Slot(r)+int64(l.Target)+slab.TailSlack > l.SlotsBytes(d) || l.Over() > 0 && l.Overflow(r)+int64(l.Over())+slab.TailSlack > l.BuddyBytes(d) {
							t.Fatalf("%+v: row %d lies behind the end", l, r)
						}
					}
				}
			}
		}
	}
}

func TestNewLayout_RefusesWhatCannotBe(t *testing.T) {
	for _, c := range []struct {
		target, rowBytes int
		rows             int64
		devices          int
		want             string
	}{
		{0, 64, 1, 1, "target (0 bytes) must be a multiple of 16 from 16 to 64"},
		{24, 64, 1, 1, "target (24 bytes)"},
		{80, 64, 1, 1, "target (80 bytes)"},
		{32, 10, 1, 1, "target (32 bytes) must be a multiple of 16 from 16 to 16, for rows of 10 bytes"},
		{16, 0, 1, 1, "row (0 bytes) must be 1 to"},
		{16, slab.MaxRowBytes + 1, 1, 1, "row (1048576 bytes)"},
		{16, 64, -1, 1, "rows (-1)"},
		{16, 64, slab.MaxBytes, 1, "rows ("},
		{16, 64, 1, 9, "devices (9) must be 1 to 8"},
	} {
		if _, err := NewLayout(c.target, c.rowBytes, c.rows, c.devices); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
