//go:build long

package cache_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
)

// TestLong_GatherEverywhere gathers 20 M rows from 8 devices by 8 goroutines, in both host tiers, with every codec.
func TestLong_GatherEverywhere(t *testing.T) {
	const rows, rowBytes = 20_000, 200
	data := normalTable(rows, rowBytes/4, 1)
	for _, codec := range []string{"none", "ibp4", "ibp8"} {
		for _, tier := range []cache.HostTier{cache.InPlace, cache.Packed} {
			t.Run(fmt.Sprintf("%s/%v", codec, tier), func(t *testing.T) {
				c := newCache(t, cache.Options{
					Tables: []cache.Table{fromBytes(t, "f", data, rowBytes)}, Budget: 100_000, Devices: cache.DeviceOptions{Count: 8}, Codec: cache.Codec(codec), Host: cache.HostOptions{Tier: tier},
				})
				var wg sync.WaitGroup
				for g := range 8 {
					wg.Go(func() {
						r := rand.New(rand.NewPCG(uint64(g), 2))
						for range 140 {
							ids := zipf(r, rows, 3000)
							out := make([]byte, len(ids)*rowBytes)
							if err := c.On(g).Gather(ctx, cache.Request{Rows: ids, Out: out}); err != nil {
								t.Error(err)
							}
							checkRows(t, data, rowBytes, ids, out)
						}
					})
				}
				wg.Wait()
				stats(t, c)
			})
		}
	}
}
