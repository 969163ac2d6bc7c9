package transfer

import (
	"slices"
	"testing"

	"github.com/tensorcache/tensorcache/internal/gputest"
)

func TestCheapest(t *testing.T) {
	of := func(length, n int) []int { return slices.Repeat([]int{length}, n) }
	for _, c := range []struct {
		name    string
		lengths []int
		want    int
	}{
		{"no sample", nil, 512},
		{"all equal", of(400, 100), 400},
		{"none shrinks", of(512, 100), 512},
		{"one in five is raw", append(of(400, 80), of(512, 20)...), 512},
		{"one in ten is raw", append(of(400, 90), of(512, 10)...), 400},
		{"short ones, which save more", append(of(100, 70), of(512, 30)...), 100},
		{"three lengths, the longest rare", slices.Concat(of(300, 50), of(420, 45), of(512, 5)), 420},
	} {
		if got := cheapest(slices.Clone(c.lengths), 512); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// TestLoad_CommonBytes: what is gathered of a row is found for both layouts, and kept when a packed tier is packed anew.
func TestLoad_CommonBytes(t *testing.T) {
	same := make([]byte, 0, 1000*256)
	for range 1000 {
		same = append(same, rowsOf(1, 256, 3)...)
	}
	for _, mode := range []Mode{InPlace, Packed} {
		tier := load(t, same, 256, Options{Codec: "ibp4", Mode: mode})
		stored, compressed, err := tier.Stored(0)
		if err != nil || !compressed {
			t.Fatal(compressed, err)
		}
		if got := tier.host.Common; got != len(stored) {
			t.Errorf("%v: %d bytes, want those of every row, %d", mode, got, len(stored))
		}
		mixed := load(t, gputest.Rows("noise", 1000, 256, 1), 256, Options{Codec: "ibp4", Mode: mode})
		if got := mixed.host.Common; got != 256 {
			t.Errorf("%v: %d bytes of rows of noise, want whole rows", mode, got)
		}
		if mode == Packed {
			old, err := tier.Repack()
			if err != nil {
				t.Fatal(err)
			}
			tier.home.Free(old.Mem)
			tier.home.Free(old.Index)
			if got := tier.host.Common; got != len(stored) {
				t.Errorf("packed anew: %d bytes, want %d", got, len(stored))
			}
		}
	}
}
