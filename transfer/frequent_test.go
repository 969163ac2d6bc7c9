package transfer

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestLoad_FrequentContents: rows of contents that many rows have share groups, though few other rows are equal, also rows shorter than those of which all
// equal ones are looked for. Others have no group.
func TestLoad_FrequentContents(t *testing.T) {
	const rows = 6000
	for _, rowBytes := range []int{16, 32, 64, 128, 512} {
		for name, shares := range map[string][]float64{"zeros": {0.2}, "three": {0.2, 0.05, 0.05}, "rare": {0.02}, "none": nil, "nearly all": {0.95}} {
			t.Run(fmt.Sprintf("%d/%s", rowBytes, name), func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(rowBytes), 9))
				data := rowsOf(rows, rowBytes, 5)
				counts := make([]int64, len(shares))
				for row := range rows {
					of := data[row*rowBytes:][:rowBytes]
					binary.LittleEndian.PutUint64(of, uint64(row)<<32|1<<63)
					x := r.Float64()
					for i, share := range shares {
						if x -= share; x < 0 {
							copy(of, bytes.Repeat([]byte{byte(i)}, rowBytes))
							counts[i]++
							break
						}
					}
				}
				want := int64(0)
				for i, n := range counts {
					if shares[i] > 1.0/frequentShare {
						want += n
					}
				}
				if want = min(want, rows*int64(rowBytes)/frequentBytes); rowBytes < frequentRow {
					want = 0
				}
				for _, codec := range []string{"none", "ibp4"} {
					tier := load(t, data, rowBytes, Options{Codec: codec, EqualRows: true})
					if name == "nearly all" && rowBytes >= groupedRow { // found by the search for all equal rows, which has its own bound
						want = min(counts[0], rows*int64(rowBytes)/groupedBytes)
						if got := tier.Totals().EqualRows; got < want*9/10 {
							t.Errorf("%s: %d rows are in groups, want about %d", codec, got, want)
						}
					} else if got := tier.Totals().EqualRows; got != want {
						t.Errorf("%s: %d rows are in groups, want %d", codec, got, want)
					}
					checkTotals(t, tier)
					checkGroups(t, tier, data)
					checkSlots(t, tier)
					numbers, err := Equal(context.Background(), data, rowBytes, InPlace, 2)
					if err != nil {
						t.Fatal(err)
					}
					for row := range int64(rows) {
						_, _, shared := tier.Shared(row)
						if alike := numbers != nil && numbers[row] != 0; alike != shared && name != "nearly all" {
							t.Fatalf("row %d shares a slot: %v, Equal says %v", row, shared, alike)
						}
					}
					if tier.Shares() { // a row that is written leaves its group
						row := int64(0)
						for _, _, ok := tier.Shared(row); !ok; _, _, ok = tier.Shared(row) {
							row++
						}
						before := tier.Totals().EqualRows
						if _, _, err := write(t, tier, row, data[:rowBytes]); err != nil {
							t.Fatal(err)
						}
						if got := tier.Totals().EqualRows; got != before-1 {
							t.Errorf("%d rows are in groups after one of %d was written", got, before)
						}
						checkSlots(t, tier)
					}
				}
			})
		}
	}
}
