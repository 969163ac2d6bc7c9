package kernels_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
)

// TestLookup_CountsPages: misses that the lookup has counted are put in the order of their pages without another count, batch after
// batch in the same buckets, be they rows in place or packed, all of the batch, some of it or none.
func TestLookup_CountsPages(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	const rows, cached, table = 1 << 16, 1 << 14, 3
	layout := hashmap.LayoutFor(cached)
	image := make([]uint64, layout.Bytes()/8)
	var entries []hashmap.Entry
	for row := range int64(cached) {
		entries = append(entries, hashmap.Entry{Key: hashmap.Key(table, row), Location: slab.Raw(0, 16*row)})
	}
	if _, err := hashmap.View(asBytes(image), layout).Build(entries); err != nil {
		t.Fatal(err)
	}
	index := make([]uint64, rows)
	for i := range index {
		index[i] = uint64(slab.Compressed(0, int64(i*7919%rows)*444, 443))
	}
	for _, n := range batchSizes() {
		for _, stride := range []int64{512, 1 << 16, 0} {
			t.Run(fmt.Sprintf("n=%d/stride=%d", n, stride), func(t *testing.T) {
				offset := func(row uint64) int64 {
					if stride == 0 {
						return slab.Location(index[row]).Offset()
					}
					return int64(row) * stride
				}
				both(t, gpu, reason, func(b *bench) (all [][]uint64) {
					pages := kernels.Pages{
						Buckets: b.alloc(kernels.OrderBytes),
						Tier:    kernels.HostRows{Mem: device.DeviceBuffer(0, rows*max(stride, 444)), Stride: stride, RowBytes: 440},
					}
					if stride == 0 {
						pages.Tier.Index = b.put(asBytes(index))
					}
					m, out := b.put(asBytes(image)), b.output(int64(n*8), 0)
					for turn, hits := range []float64{0.5, 0, 1, 0.9} {
						r, int32s := rand.New(rand.NewPCG(uint64(n), uint64(turn))), turn%2 == 1
						batch := make([]int64, n)
						for i := range batch {
							if batch[i] = cached + r.Int64N(rows-cached); r.Float64() < hits {
								batch[i] = r.Int64N(cached)
							}
							if r.IntN(100) == 0 {
								batch[i] = -1
							}
						}
						k := kernels.Lookup{
							Map: m, Layout: layout, Table: table, Limit: rows, Rows: b.putRows(batch, int32s), Int32: int32s, Out: out.rows, RowBytes: 8,
							Found: b.alloc(int64(n) * kernels.FoundBytes), Counters: b.alloc(kernels.CountersBytes), Pages: pages,
						}
						ordered := b.alloc(k.Found.Size())
						b.launch(&k)
						b.launch(&kernels.Order{Found: k.Found, Counters: k.Counters, Ordered: ordered, Pages: pages, Counted: true})
						if n == 0 {
							continue
						}
						var got []uint64
						for i, f := range kernels.FoundView(device.HostBuffer(b.get(ordered)))[:b.counters(k.Counters).Misses] {
							got = append(got, f.Word)
							if batch[f.Position] != int64(f.Word) {
								b.t.Fatalf("%v: miss %d is of row %d at position %d, which asks for %d", b.d.Info(), i, f.Word, f.Position, batch[f.Position])
							}
							if i > 0 && offset(got[i-1])>>19 > offset(f.Word)>>19 {
								b.t.Fatalf("%v: %d and %d are out of order", b.d.Info(), i-1, i)
							}
						}
						slices.Sort(got)
						all = append(all, got)
					}
					return all
				}, func(t *testing.T, want, got [][]uint64) {
					for i := range want {
						if !slices.Equal(want[i], got[i]) {
							t.Fatalf("batch %d: %d misses in order, want %d", i, len(got[i]), len(want[i]))
						}
					}
				})
			})
		}
	}
}
