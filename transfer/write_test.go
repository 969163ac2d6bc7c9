package transfer

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
)

// write encodes a row and writes it.
func write(t testing.TB, tier *Tier, row int64, data []byte) (Written, bool, error) {
	t.Helper()
	if c := tier.Codec(); c != nil {
		dst := make([]byte, c.EncodeBound())
		if n, err := c.Encode(dst, data); err == nil {
			return tier.Write(row, dst[:n], true)
		}
	}
	return tier.Write(row, data, false)
}

// TestWrite_RowsAndTotals writes rows that grow, shrink and turn raw until a packed tier is full more than once; all rows read
// back, the totals are those of the rows, and a device that stores the words it is told sees the same.
func TestWrite_RowsAndTotals(t *testing.T) {
	const rows, capacity, rowBytes = 200, 260, 60
	for _, mode := range []Mode{InPlace, Packed} {
		for _, codec := range []string{"none", "ibp4"} {
			r := rand.New(rand.NewPCG(1, 2))
			data := rowsOf(rows, rowBytes, 1)
			tier := load(t, bytes.Clone(data), rowBytes, Options{Codec: codec, Mode: mode, Capacity: capacity})
			attached, err := tier.AttachRows(newDevice())
			if err != nil {
				t.Fatal(err)
			}
			data = append(data, make([]byte, (capacity-rows)*rowBytes)...)
			tier.Grow(capacity)
			checkRows(t, tier, data)
			noisy, plain := rowsOf(capacity, rowBytes, 9), rowsOf(capacity, rowBytes, 1)
			for i := range noisy {
				noisy[i] = byte(r.Uint32())
			}
			repacked := 0
			for range 3000 {
				row := r.Int64N(capacity)
				from := [][]byte{noisy, plain}[r.IntN(2)]
				next := from[int(row)*rowBytes:][:rowBytes]
				w, changed, err := write(t, tier, row, next)
				if errors.Is(err, ErrFull) {
					old, err := tier.Repack()
					if err != nil {
						t.Fatal(err)
					}
					repacked++
					tier.home.Free(old.Mem)
					tier.home.Free(old.Index)
					if attached, err = tier.AttachRows(newDevice()); err != nil {
						t.Fatal(err)
					}
					if w, changed, err = write(t, tier, row, next); err != nil {
						t.Fatalf("after Repack: %v", err)
					}
				} else if err != nil {
					t.Fatal(err)
				}
				copy(data[int(row)*rowBytes:], next)
				if changed {
					target := attached.Index
					if mode == InPlace {
						target = attached.Compressed
					}
					b := target.Bytes()[8*w.Index:]
					for i := range 8 {
						b[i] = byte(w.Value >> (8 * i))
					}
				}
				stored, compressed := attached.Stored(row)
				mine, same := tier.host.Stored(row)
				if compressed != same || !bytes.Equal(stored, mine) {
					t.Fatalf("row %d: the device sees %x, %v, the host %x, %v", row, stored, compressed, mine, same)
				}
			}
			checkRows(t, tier, data)
			total := Totals{Rows: capacity, RawBytes: capacity * rowBytes}
			for row := range int64(capacity) {
				stored, compressed, err := tier.Stored(row)
				if err != nil {
					t.Fatal(err)
				}
				if !compressed {
					total.RawRows++
				}
				total.StoredBytes += int64(len(stored))
				total.SlotBytes += int64((len(stored) + 15) / 16 * 16)
			}
			total.EqualRows = tier.Totals().EqualRows // TestWrite_EqualRows counts them
			if got := tier.Totals(); got != total {
				t.Errorf("%v %s: totals %+v, want %+v", mode, codec, got, total)
			}
			if mode == Packed && codec != "none" && repacked == 0 {
				t.Errorf("%s: never repacked", codec)
			}
		}
	}
}

// TestWrite_StaticTiersCostNothing: a tier that cannot grow has no room for it, until it is written.
func TestWrite_StaticTiersCostNothing(t *testing.T) {
	data := rowsOf(100, 64, 1)
	tier := load(t, data, 64, Options{Codec: "ibp4", Mode: Packed})
	before := tier.HostBytes()
	if _, _, err := tier.Write(5, make([]byte, 64), false); !errors.Is(err, ErrFull) {
		t.Fatalf("a row that grew: %v", err)
	}
	checkRows(t, tier, data)
	if _, err := tier.Repack(); err != nil {
		t.Fatal(err)
	}
	checkRows(t, tier, data)
	if _, _, err := tier.Write(5, make([]byte, 64), false); err != nil {
		t.Fatal(err)
	}
	if tier.HostBytes() <= before {
		t.Error("no room was made")
	}
}
