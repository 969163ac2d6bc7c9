//go:build cuda && linux

package cache_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/gputest"
)

// TestGPUs_PooledPeers adds up rows that lie on other GPUs, in one launch and written first, alone and with other tables, and in replays, and compares what is counted
// with the same on the host.
func TestGPUs_PooledPeers(t *testing.T) {
	if !gputest.Two(t) {
		return
	}
	for i, codec := range []cache.Codec{"none", "ibp4", "rank"} {
		t.Run(string(codec), func(t *testing.T) {
			const rows, columns, n, bag = 900, 64, 640, 20
			of := floats[i]
			data := floatTable(rows, columns, of, true, 3)
			r := rand.New(rand.NewPCG(2, uint64(i)))
			training := zipf(r, rows, 4*rows)
			var caches []*cache.Cache
			for _, backend := range []cache.Backend{"host", "cuda"} {
				caches = append(caches, newCache(t, cache.Options{
					Tables: []cache.Table{floatsOf(t, "a", of, data, columns), floatsOf(t, "b", of, data, columns)}, Budget: 50_000, Codec: codec,
					Devices:   cache.DeviceOptions{Backend: backend, Count: 2, Placement: cache.PlacementPartition, Rates: hotRates},
					Admission: cache.AdmissionOptions{Policy: admission.NewFrequency(), Training: batches(0, training)}, Seed: 1,
				}))
			}
			c := caches[1]
			devices, err := cuda.Open(2)
			if err != nil {
				t.Fatal(err)
			}
			for d, gpu := range devices {
				t.Cleanup(func() { gpu.Close() })
				s, err := gpu.NewStream()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(s.Close)
				stream := s.(*cuda.Stream)
				p := pooling{Pooling: cache.Pooling{Bag: bag, Mode: cache.PoolMode(i)}}
				size, _ := pooledOut(&p, of, columns, n)
				numbers, sums := upload(t, gpu, make([]int64, n)), upload(t, gpu, make([]byte, 2*size))
				var batch *cache.Batch
				both := []cache.Request{p.device(0, numbers, sums.Slice(0, int64(size))), p.device(1, numbers, sums.Slice(int64(size), int64(2*size)))}
				graph, err := stream.Capture(true, func() (err error) {
					batch, err = c.On(d).Enqueue(ctx, stream.Handle(), both...)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(graph.Close)
				for way, gather := range []func(ids []int64, out []byte) error{
					func(ids []int64, out []byte) error {
						return c.On(d).Gather(ctx, p.host(0, ids, out))
					},
					func(ids []int64, out []byte) error {
						defer cache.WritePooled(100 * columns * of.Size())()
						return c.On(d).Gather(ctx, p.host(0, ids, out))
					},
					func(ids []int64, out []byte) error {
						b, err := c.On(d).Enqueue(ctx, stream.Handle(), both...)
						if err == nil {
							err = b.Wait()
						}
						return errors.Join(err, device.Download(gpu, out, sums.Slice(0, int64(size))))
					},
					func(ids []int64, out []byte) error {
						return errors.Join(graph.Launch(stream), stream.Synchronize(), batch.Wait(), device.Download(gpu, out, sums.Slice(int64(size), int64(2*size))))
					},
				} {
					ids, out := zipf(r, rows, n), make([]byte, size)
					if err := device.Upload(gpu, numbers, cache.AsBytes(ids)); err != nil {
						t.Fatal(err)
					}
					before := stats(t, c).Devices[d]
					if err := gather(ids, out); err != nil {
						t.Fatal(err)
					}
					what := fmt.Sprintf("device %d, way %d", d, way)
					checkPooled(t, data, of, columns, ids, &p, out, what)
					after, times := stats(t, c).Devices[d], int64(1)
					if way >= 2 { // of two tables alike
						times = 2
					}
					host := stats(t, caches[0]).Devices[d]
					for table := range times {
						if err := caches[0].On(d).Gather(ctx, p.host(int(table), ids, out)); err != nil {
							t.Fatal(err)
						}
					}
					want := stats(t, caches[0]).Devices[d]
					if a, b := after.PeerHits-before.PeerHits, want.PeerHits-host.PeerHits; a != b || a == 0 {
						t.Errorf("%s: %d hits of peers, on the host %d", what, a, b)
					}
					if a, b := after.LocalHits-before.LocalHits, want.LocalHits-host.LocalHits; a != b || a == 0 {
						t.Errorf("%s: %d hits, on the host %d", what, a, b)
					}
				}
			}
		})
	}
}
