package cache_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/internal/gputest"
)

// TestGPU_PackedRowsMoveWhileShared updates rows of a packed table, which grow, turn raw and shrink again, so that the tier is packed anew,
// while batches are shared with the host's processors: every batch has whole rows of versions that there were.
func TestGPU_PackedRowsMoveWhileShared(t *testing.T) {
	gputest.Open(t)
	cache.ShareAlways(t)
	t.Cleanup(cache.ServeApart())
	for i, rowBytes := range []int{128, 1024} {
		if !gputest.Drawn(i, 2) {
			continue
		}
		t.Run(fmt.Sprintf("row=%d", rowBytes), func(t *testing.T) {
			const rows = 500
			// A row's bytes are those of one version: rows of versions that differ by 2 are as long as each other.
			versions := make([][]byte, 4)
			for v := range versions {
				versions[v] = normalTable(rows, rowBytes/4, uint64(v+1))
				if v%2 == 1 {
					versions[v] = noise(rows, rowBytes, uint64(v+1))
				}
			}
			c := newCache(t, cache.Options{
				Tables: []cache.Table{fromBytes(t, "x", versions[0], rowBytes)}, Codec: "ibp4", Budget: 40_000, Devices: cache.DeviceOptions{Backend: "cuda"},
				Host: cache.HostOptions{Tier: cache.Packed, Threads: 2, Overlay: int64(125 * rowBytes)},
			})
			stop, failed := make(chan struct{}), make(chan error, 1)
			var readers sync.WaitGroup
			for g := range 2 {
				readers.Go(func() {
					r, out := rand.New(rand.NewPCG(1, uint64(g))), make([]byte, 400*rowBytes)
					for {
						select {
						case <-stop:
							return
						default:
						}
						ids := make([]int64, 400)
						for i := range ids {
							ids[i] = r.Int64N(rows)
						}
						err := c.Gather(ctx, cache.Request{Rows: ids, Out: out})
						for i, id := range ids {
							whole := err != nil
							for _, v := range versions {
								whole = whole || bytes.Equal(out[i*rowBytes:][:rowBytes], v[int(id)*rowBytes:][:rowBytes])
							}
							if !whole {
								err = fmt.Errorf("row %d is of no version", id)
							}
						}
						if err != nil {
							select {
							case failed <- err:
							default:
							}
							return
						}
					}
				})
			}
			ids := make([]int64, rows)
			for i := range ids {
				ids[i] = int64(i)
			}
			var err error
			for round := range gputest.Few(12, 2) {
				err = errors.Join(err, c.Update(ctx, 0, ids, versions[(round+1)%len(versions)]))
			}
			last := versions[gputest.Few(12, 2)%len(versions)]
			close(stop)
			readers.Wait()
			select {
			case f := <-failed:
				err = errors.Join(err, f)
			default:
			}
			if err != nil {
				t.Fatal(err)
			}
			settle(t, c)
			gatherAll(t, c, last)
			if how := stats(t, c).Tables[0].MissStrategy[0]; how.Strategy != "shared" || how.Shared == 0 {
				t.Errorf("%+v", how)
			}
		})
	}
}
