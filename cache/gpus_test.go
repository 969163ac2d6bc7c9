package cache_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/internal/gputest"
)

// eachCount runs a test for each usable number of GPUs.
func eachCount(t *testing.T, test func(t *testing.T, n int)) {
	for _, n := range []int{2, 4, 8} {
		t.Run(fmt.Sprintf("gpus=%d", n), func(t *testing.T) {
			gputest.RequireGPUs(t, n)
			test(t, n)
		})
	}
}

// TestGPUs_PagesEqualVersionedMap is TestGPU_EqualsVersionedMap for tables of pages on several GPUs.
func TestGPUs_PagesEqualVersionedMap(t *testing.T) {
	eachCount(t, func(t *testing.T, n int) {
		o := cache.Options{Budget: 20_000, Host: cache.HostOptions{Memory: 50_000}, Devices: cache.DeviceOptions{Backend: "cuda", Rates: hotRates}}
		runModel(t, int64(gputest.Few(100_000, 600)), modelCase{o: o}, n, nil)
	})
}

// TestGPUs_EqualHost: every GPU returns the rows, hits and misses that the emulation on the host returns, for every placement.
func TestGPUs_EqualHost(t *testing.T) {
	eachCount(t, func(t *testing.T, n int) {
		const rows, rowBytes = 6000, 256
		data := gputest.Rows("mixed", rows, rowBytes, 1)
		r := rand.New(rand.NewPCG(1, uint64(n)))
		training := zipf(r, rows, 4*rows)
		sizes := []int{1, 33, 3000}
		if testing.Short() {
			sizes = []int{1, 300}
		}
		for _, placement := range []cache.PlacementMode{cache.PlacementPartition, cache.PlacementReplicate, cache.PlacementAuto} {
			var caches []*cache.Cache
			for _, backend := range []cache.Backend{"host", "cuda"} {
				caches = append(caches, newCache(t, cache.Options{
					Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Budget: 200_000, Devices: cache.DeviceOptions{Backend: backend, Count: n, Placement: placement, Rates: hotRates}, Codec: "ibp4",
					Admission: cache.AdmissionOptions{Policy: admission.NewFrequency(), Training: batches(0, training)}, Seed: 1,
				}))
			}
			for _, size := range sizes {
				ids := zipf(r, rows, size)
				for i := range n {
					var outs [2][]byte
					for k, c := range caches {
						outs[k] = make([]byte, size*rowBytes)
						if err := c.On(i).Gather(ctx, cache.Request{Rows: ids, Out: outs[k]}); err != nil {
							t.Fatal(err)
						}
					}
					checkRows(t, data, rowBytes, ids, outs[1])
					if !bytes.Equal(outs[0], outs[1]) {
						t.Fatal("rows differ")
					}
				}
			}
			a, b := stats(t, caches[0]), stats(t, caches[1])
			for i := range n {
				b.Devices[i].Node = a.Devices[i].Node // the host's are near none
			}
			if !reflect.DeepEqual(a.Devices, b.Devices) || !reflect.DeepEqual(a.Placement, b.Placement) {
				t.Errorf("%s: host %+v %+v\nGPU %+v %+v", placement, a.Devices, a.Placement, b.Devices, b.Placement)
			}
			if copied := b.Placement.CopiedRows > 0; copied == (placement == cache.PlacementPartition) {
				t.Errorf("%s: %d rows are copied: %s", placement, b.Placement.CopiedRows, b.Placement.Why)
			}
		}
	})
}

// TestGPUs_PeerReadsBesideRefresh gathers a million rows on every GPU, most of them from peers' slabs, while cycles and updates run. All
// rows must be right.
func TestGPUs_PeerReadsBesideRefresh(t *testing.T) {
	eachCount(t, func(t *testing.T, n int) {
		rows, total := int64(20_000), int64(1_000_000)
		if testing.Short() {
			rows, total = 2000, 20_000
		}
		const rowBytes, batch = 256, 2000
		for _, placement := range []cache.PlacementMode{cache.PlacementPartition, cache.PlacementAuto} {
			m := newModel(int(rows), int(rows), rowBytes)
			c := newCache(t, cache.Options{
				Tables: []cache.Table{fromBytes(t, "x", m.source(), rowBytes)}, Budget: 64 * rows, Devices: cache.DeviceOptions{Backend: "cuda", Count: n, Placement: placement, Rates: hotRates}, Codec: "ibp4",
				Admission: cache.AdmissionOptions{Policy: &randomPolicy{}}, Refresh: cache.RefreshOptions{MaxChurn: 0.3},
			})
			var wg, changing sync.WaitGroup
			var done atomic.Bool
			changing.Go(func() {
				r := rand.New(rand.NewPCG(1, 1))
				for !done.Load() {
					if err := c.Refresh(ctx); err != nil {
						t.Error(err)
						return
					}
					first := r.Int64N(rows - 8)
					if err := m.update(c, 0, []int64{first, first + 3, first + 7}); err != nil {
						t.Error(err)
						return
					}
				}
			})
			for i := range n {
				wg.Go(func() {
					r := rand.New(rand.NewPCG(uint64(i), 2))
					for read := int64(0); read < total; read += batch {
						ids := make([]int64, batch)
						for k := range ids {
							ids[k] = r.Int64N(rows)
						}
						if err := m.gather(func(rows []int64, out []byte) error { return c.On(i).Gather(ctx, cache.Request{Rows: rows, Out: out}) }, ids); err != nil {
							t.Errorf("GPU %d: %v", i, err)
							return
						}
					}
				})
			}
			wg.Wait()
			done.Store(true)
			changing.Wait()
			s := stats(t, c)
			if s.Tables[0].PeerHits == 0 || s.Changes.AdmittedRows == 0 || s.Changes.UpdatedRows == 0 {
				t.Errorf("%s: %d peer hits, %+v", placement, s.Tables[0].PeerHits, s.Changes)
			}
			t.Logf("%s: %d rows read, %d of peers' slabs, %d admitted", placement, s.Tables[0].Lookups, s.Tables[0].PeerHits, s.Changes.AdmittedRows)
		}
	})
}
