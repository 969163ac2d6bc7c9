package kernels

import (
	"bytes"
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/abi"
	"github.com/tensorcache/tensorcache/slab"
)

// checkOrder orders misses of the given rows behind a few hits, and checks that they come out at the front a permutation
// in the order of page(row), with nothing else changed.
func checkOrder(t *testing.T, tier HostRows, rows []int64, page func(row int64) int64) {
	t.Helper()
	hits := []Found{{Word: 1, Position: 1 << 20}, {Word: 2, Position: 1<<20 + 1}}
	misses := make([]Found, len(rows))
	for i, r := range rows {
		misses[i] = Found{Word: uint64(r), Position: uint32(i), Reason: uint32(i % slab.NumReasons)}
	}
	found, counters := buffers(t, hits, misses)
	ordered, buckets := alloc(t, found.Size(), 0x5c), alloc(t, OrderBytes, 0xb5)
	before := *CountersView(counters.Buffer)
	run(t, 4, &Order{Found: found.Buffer, Counters: counters.Buffer, Ordered: ordered.Buffer, Pages: Pages{Buckets: buckets.Buffer, Tier: tier}})
	found.check(t, "found")
	ordered.check(t, "ordered")
	buckets.check(t, "buckets")
	counters.check(t, "counters")
	if *CountersView(counters.Buffer) != before {
		t.Fatalf("counters are %+v, want %+v", *CountersView(counters.Buffer), before)
	}
	if got := FoundView(found.Buffer); !slices.Equal(got[:len(hits)], hits) || !slices.Equal(got[len(hits):], misses) {
		t.Fatal("the list that Lookup left was written")
	}
	if rest := ordered.Bytes()[len(misses)*FoundBytes:]; !bytes.Equal(rest, bytes.Repeat([]byte{ordered.canary}, len(rest))) {
		t.Fatal("ordered was written behind the misses")
	}
	got := FoundView(ordered.Buffer)[:len(misses)]
	for i := 1; i < len(got); i++ {
		if a, b := page(int64(got[i-1].Word)), page(int64(got[i].Word)); a > b {
			t.Fatalf("miss %d of page %d comes before one of page %d", i-1, a, b)
		}
	}
	got = slices.Clone(got)
	slices.SortFunc(got, func(a, b Found) int { return cmp.Compare(a.Position, b.Position) })
	if !slices.Equal(got, misses) {
		t.Fatal("misses are not a permutation of what they were")
	}
}

// emptySpan is memory of a size that nobody may touch.
func emptySpan(size int64) device.Buffer { return device.Buffer{}.Slice(0, size) }

func TestOrder_ByPage(t *testing.T) {
	const rows, stride = 20000, 4096 // 40 pages
	index := make([]uint64, rows)    // packed the other way round
	for i := range index {
		index[i] = uint64(slab.Compressed(0, int64(rows-1-i)*stride, 100))
	}
	inPlace := HostRows{Mem: emptySpan(rows*stride + slab.TailSlack), Stride: stride, RowBytes: stride}
	packed := HostRows{Mem: inPlace.Mem, Index: wordBuffer(index), RowBytes: stride}
	r := rand.New(rand.NewPCG(2, 2))
	for _, n := range batchSizes {
		batch := make([]int64, n)
		for i := range batch {
			batch[i] = r.Int64N(rows)
			if r.IntN(3) == 0 {
				batch[i] = batch[r.IntN(i+1)]
			}
		}
		checkOrder(t, inPlace, batch, func(row int64) int64 { return row * stride >> abi.OrderPageBits })
		checkOrder(t, packed, batch, func(row int64) int64 { return (rows - 1 - row) * stride >> abi.OrderPageBits })
	}
}

// TestOrder_ManyPages orders tables around and beyond the size at which every page has a bucket of its own, their first
// and last rows included.
func TestOrder_ManyPages(t *testing.T) {
	const stride = 1 << 19
	for _, c := range []struct {
		size int64
		page int
	}{
		{abi.OrderBuckets<<abi.OrderPageBits - 1, abi.OrderPageBits},
		{abi.OrderBuckets << abi.OrderPageBits, abi.OrderPageBits + 1},
		{abi.OrderBuckets<<abi.OrderPageBits + slab.TailSlack, abi.OrderPageBits + 1},
		{abi.OrderBuckets<<abi.OrderPageBits + stride, abi.OrderPageBits + 1},
		{(abi.OrderBuckets + 2) << abi.OrderPageBits, abi.OrderPageBits + 1},
		{37 << 30, abi.OrderPageBits + 6},
		{slab.MaxBytes - 1, 26},
	} {
		rows := c.size / stride
		r := rand.New(rand.NewPCG(3, uint64(c.size)))
		batch := []int64{rows - 1, 0, rows - 1, 1}
		for range 2000 {
			batch = append(batch, r.Int64N(rows))
		}
		tier := HostRows{Mem: emptySpan(c.size), Stride: stride, RowBytes: stride}
		checkOrder(t, tier, batch, func(row int64) int64 { return row * stride >> c.page })
	}
}
