package transfer

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/internal/race"
	"github.com/tensorcache/tensorcache/kernels"
)

// TestLoad_FrequentContents: rows of contents that many rows have share groups, though few other rows are equal, also rows shorter than those of which all
// equal ones are looked for. Others have no group.
func TestLoad_FrequentContents(t *testing.T) {
	race.SkipSequential(t)
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
					numbers, err := equalNumbers(context.Background(), data, rowBytes, InPlace, 2)
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

// equalNumbers returns a number for each content whose rows share slots in a cache whose host tier has the given layout, from 1 on, and 0 for other rows. The rows of
// the table lie back to back. It returns nil if no rows share.
func equalNumbers(ctx context.Context, rows []byte, rowBytes int, mode Mode, workers int) ([]uint32, error) {
	n := int64(len(rows) / rowBytes)
	t := &Tier{rows: n, rowBytes: rowBytes, host: kernels.HostRows{Mem: device.HostBuffer(rows), Stride: int64(rowBytes), RowBytes: rowBytes}}
	least := int64(0)
	if mode == InPlace {
		least = (n - 1) / groupedShare
	}
	a := t.newDuplicates()
	defer a.free()
	var sample []int64
	if mode == InPlace && rowBytes < groupedRow {
		if rowBytes < frequentRow {
			return nil, nil
		}
		for i := range min(n, groupedSample) {
			sample = append(sample, i*n/min(n, groupedSample))
		}
	} else {
		a.on.Store(true)
	}
	w := interruptible{host.Workers(workers), ctx}
	if err := a.finish(w, sample); err != nil {
		return nil, err
	}
	g := a.groups(w.Workers, least).groups
	if g == nil {
		return nil, nil
	}
	all := make([]uint32, n)
	for row := range n {
		all[row], _ = g.of(row)
	}
	return all, nil
}
