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
