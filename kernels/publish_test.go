package kernels_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// TestEnding_PublishesOnce: whichever of Decode and Fetch ends last, on streams of their own, the counters of both go to the result with
// the batch's number, and are zero afterwards; and so they do where Fetch ends the batch alone, with misses and without.
func TestEnding_PublishesOnce(t *testing.T) {
	gpu, reason := gputest.OpenIfAny(t)
	for _, c := range []struct {
		codec    string
		rowBytes int
	}{{"none", 64}, {"ibp4", 512}, {"ibp4", 404}, {"ibp8", 2048}, {"ibp4", 8192}, {"zipnn", 256}, {"zipnn", 1024}, {"rank", 512}, {"rank", 20_000}} {
		t.Run(fmt.Sprintf("%s/row=%d", c.codec, c.rowBytes), func(t *testing.T) {
			const rows = 100
			rowBytes := c.rowBytes
			data := gputest.Rows("normal", rows, rowBytes, 3)
			both(t, gpu, reason, func(b *bench) []kernels.Counters {
				tier, err := transfer.Load(b.d, transfer.SourceOf(data, rowBytes), transfer.Options{Codec: c.codec, DType: gputest.DType(rowBytes), Seed: 1, OnHost: short()})
				b.check(err)
				defer tier.Close()
				tierRows, attached, err := tier.Attach(b.d)
				b.check(err)
				defer transfer.Detach(b.d, tierRows, attached)
				side, err := b.d.NewStream()
				b.check(err)
				defer side.Close()
				result, err := b.d.AllocHost(kernels.CountersBytes, "test")
				b.check(err)
				defer b.d.Free(result)
				slabs, hits := encodeSlabs(tier.Codec(), data, rowBytes, rows, 1)
				hits[7].Word = uint64(slab.Compressed(0, 0, 1)) // corrupt
				var misses []kernels.Found
				for i := range rows {
					misses = append(misses, kernels.Found{Word: uint64(i * 7 % rows), Position: uint32(rows + i)})
				}
				out := b.output(2*rows*int64(rowBytes), 0)
				counters, store := b.alloc(kernels.CountersBytes), b.put(slabs[0])
				found, ordered := b.put(asBytes(hits)), b.put(asBytes(misses))
				var all []kernels.Counters
				for i, n := range []struct{ hits, misses, kernels int }{
					{rows, rows, 2}, {rows, 0, 2}, {0, rows, 2}, {1, 1, 2}, {rows, rows, 2}, {0, rows, 1}, {0, 0, 1}, {0, 0, 2}, {rows, 33, 2},
				} {
					set := kernels.Counters{
						Hits: uint32(n.hits), Misses: uint32(n.misses), Reasons: [5]uint32{3, 4, 5, 6, 7}, OutOfRange: 10, NotFirst: 11, Peers: 12,
					}
					b.check(device.Upload(b.d, counters, asBytes([]kernels.Counters{set})))
					batch := 1<<33 | uint64(i+1)
					end := kernels.Ending{Result: result, Batch: batch, Kernels: n.kernels}
					fetch := kernels.Fetch{Misses: ordered, Counters: counters, Tier: tierRows, Codec: attached, Out: out.rows, End: end}
					decode := kernels.Decode{
						Found: found, Counters: counters, Slabs: []device.Buffer{store}, Codec: attached, Out: out.rows, RowBytes: rowBytes, End: end,
					}
					launches := []func() error{func() error { return b.s.Launch(&fetch) }, func() error { return side.Launch(&decode) }}
					if i%2 != 0 {
						launches[0], launches[1] = launches[1], launches[0]
					}
					if n.kernels == 1 {
						launches = []func() error{func() error { return b.s.Launch(&fetch) }}
					}
					if (kernels.Ending{Result: result, Batch: batch}).Published() {
						b.t.Fatal("published before the batch")
					}
					for _, launch := range launches {
						b.check(launch())
					}
					b.check(b.s.Synchronize())
					b.check(side.Synchronize())
					if left := b.counters(counters); left != (kernels.Counters{}) {
						b.t.Fatalf("counters left behind: %+v", left)
					}
					got := *kernels.CountersView(device.HostBuffer(bytes.Clone(result.Bytes())))
					want := set
					want.Batch, want.HostBytes, want.Corrupt, want.CorruptPosition = uint32(batch), got.HostBytes, got.Corrupt, got.CorruptPosition
					if got != want || (got.HostBytes != 0) != (n.misses != 0) || (got.Corrupt != 0) != (n.hits == rows) {
						b.t.Fatalf("published %+v, want %+v", got, want)
					}
					all = append(all, got)
				}
				return all
			}, func(t *testing.T, want, got []kernels.Counters) {
				for i := range want {
					if want[i] != got[i] {
						t.Fatalf("batch %d: published %+v, want %+v", i, got[i], want[i])
					}
				}
			})
		})
	}
}
