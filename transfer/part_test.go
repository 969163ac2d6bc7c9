package transfer

import (
	"slices"
	"testing"

	"github.com/tensorcache/tensorcache/device/host"
)

// TestVictims_GoesOn: a caller that goes on from where the last search ended looks at each row once.
func TestVictims_GoesOn(t *testing.T) {
	const rows, rowBytes = 1000, 64
	tier, err := OpenPart(host.Open(1, 1)[0], PartOptions{Rows: rows, RowBytes: rowBytes, Mean: rowBytes, Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer tier.Close()
	for row := range int64(rows) {
		if row%2 == 0 {
			continue // absent
		}
		at, ok := tier.Put(make([]byte, rowBytes), false)
		if !ok {
			t.Fatal("no room")
		}
		tier.Show(row, at, false)
	}
	looked := 0
	var victims []int64
	for from := int64(0); from < rows; {
		left := int64(0)
		victims, from, left = tier.Victims(victims, from, 2*rowBytes, func(row int64) bool { looked++; return row%3 > 0 })
		if left > 0 && from < rows {
			t.Fatalf("%d bytes are left at row %d", left, from)
		}
	}
	var want []int64
	for row := int64(3); row < rows; row += 6 {
		want = append(want, row)
	}
	if !slices.Equal(victims, want) {
		t.Errorf("victims %v, want %v", victims, want)
	}
	if looked != rows/2 {
		t.Errorf("looked at %d rows, want %d", looked, rows/2)
	}
}

// TestFillAhead_LeavesASegment: filling the ring leaves one segment free, where rows that are put there later find room at once, and the rows that it has
// filled in give way before those.
func TestFillAhead_LeavesASegment(t *testing.T) {
	const rows, rowBytes = 1000, 64
	tier, err := OpenPart(host.Open(1, 1)[0], PartOptions{Rows: rows, RowBytes: rowBytes, Mean: rowBytes, Memory: LeastPart(rows, rowBytes) + 300*rowBytes})
	if err != nil {
		t.Fatal(err)
	}
	defer tier.Close()
	memory, staged := make([]byte, rows*rowBytes), []Staged{}
	for row := range int64(rows) {
		memory[row*rowBytes] = byte(row)
		staged = append(staged, Staged{Row: row, At: int(row) * rowBytes, Bytes: rowBytes})
	}
	segment := int(tier.RingBytes() / int64(len(tier.part.ring.rows)) / rowBytes) // in rows
	most := segment * (len(tier.part.ring.rows) - 1)
	if n := tier.FillAhead(memory, staged); n != most || int64(n*rowBytes) > tier.FillAheadBytes() {
		t.Fatalf("%d rows were filled in, want %d", n, most)
	}
	for row := range int64(most) {
		stored, compressed, err := tier.Stored(row)
		if err != nil || compressed || stored[0] != byte(row) || tier.InMain(row) {
			t.Fatalf("row %d: %v, %x", row, err, stored)
		}
	}
	if held, bytes, _ := tier.Held(); held != int64(most) || bytes != held*rowBytes {
		t.Errorf("%d rows, %d bytes are held", held, bytes)
	}
	for i := range segment {
		at, ok := tier.PutAhead(int64(900+i), memory[:rowBytes], false)
		if !ok {
			t.Fatalf("no room for row %d of a segment of %d", i, segment)
		}
		tier.Show(int64(900+i), at, true)
	}
	if _, ok := tier.PutAhead(999, memory[:rowBytes], false); ok {
		t.Error("there is room for more")
	}
	words, unused, ok := tier.Withdraw()
	if !ok || unused != 0 || len(words) != segment || words[0].Index != 0 {
		t.Errorf("%d rows gave way, %d of them unused, the first %+v, %v", len(words), unused, words[0], ok)
	}
}
