//go:build cuda && linux

package cache_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

func onCUDA(o *cache.Options) { o.Devices = cache.DeviceOptions{Backend: cache.BackendCUDA, Count: 1} }

// TestGPU_ResidentEveryPath reads a resident table into host memory, into device memory and by a captured graph, while rows are updated and move
// to other targets: it reads as a plain array does. Every codec, short and long rows, targets from 16 bytes to the row bytes.
func TestGPU_ResidentEveryPath(t *testing.T) {
	gpu := gputest.Open(t)
	r := rand.New(rand.NewPCG(22, 6))
	lengths := []int{4, 64, 100, 256, 320, 512, 1028, 4096, 8192}
	for i, codec := range append(registry.Concrete(), registry.None) {
		for j, rowBytes := range lengths {
			if !gputest.Drawn(i+j, 10) {
				continue
			}
			most := buddy.MaxTarget(rowBytes)
			target, rows := 16*(1+r.IntN(most/16)), 50+r.IntN(200)
			data := make([]byte, rows*rowBytes)
			for i := range rows {
				residentRow(data[i*rowBytes:][:rowBytes], r)
			}
			if _, err := registry.Train(codec, data, rowBytes, gputest.DType(rowBytes)); err != nil {
				continue // no codec for rows of that length
			}
			t.Run(fmt.Sprintf("%s/%d/target=%d", codec, rowBytes, target), func(t *testing.T) {
				model := bytes.Clone(data)
				c := openResident(t, data, rowBytes, cache.Codec(codec), cache.ResidentOptions{Target: target, MaxTarget: most}, 1, func(o *cache.Options) {
					onCUDA(o)
					o.Host.Overlay = int64(4 * (rowBytes + 200)) // few places, so that updates wait for epochs
				})
				const n = 150
				graph := captureBatch(t, c, gpu, make([]int64, n), rowBytes)
				stream, err := gpu.NewStream()
				if err != nil {
					t.Fatal(err)
				}
				defer stream.Close()
				check := func() {
					t.Helper()
					ids := make([]int64, n)
					for i := range ids {
						ids[i] = int64(r.IntN(rows))
					}
					out := make([]byte, n*rowBytes)
					if err := c.Gather(context.Background(), cache.Request{Rows: ids, Out: out}); err != nil {
						t.Fatal(err)
					}
					checkRows(t, model, rowBytes, ids, out)
					b := putBatch(t, gpu, ids, rowBytes)
					if err := device.Upload(gpu, b.out, bytes.Repeat([]byte{0xee}, n*rowBytes)); err != nil {
						t.Fatal(err)
					}
					batch, err := c.On(0).Enqueue(context.Background(), stream.(*cuda.Stream).Handle(), cache.Request{DeviceRows: b.rows, DeviceOut: b.out})
					if err == nil {
						err = batch.Wait()
					}
					if err != nil {
						t.Fatal(err)
					}
					checkRows(t, model, rowBytes, ids, b.read(t))
					checkRows(t, model, rowBytes, ids, graph.replay(t, ids))
				}
				check()
				for round := range 3 {
					if round > 0 { // some of the rows move, or all of them
						some, cancel := context.WithCancel(context.Background())
						if before := stats(t, c).Tables[0].Resident.TargetBytes; round == 1 {
							go func() {
								for some.Err() == nil {
									if s, err := c.Stats(); err != nil || s.Tables[0].Resident.TargetBytes != before {
										cancel()
									}
								}
							}()
						}
						if err := c.Retarget(some, 0, 16*(1+r.IntN(most/16))); err != nil && round > 1 {
							t.Fatal(err)
						}
						cancel()
						check()
					}
					n := 1 + r.IntN(rows)
					ids, fresh := make([]int64, n), make([]byte, n*rowBytes)
					for i := range ids {
						ids[i] = int64(r.IntN(rows))
						residentRow(fresh[i*rowBytes:][:rowBytes], r)
						copy(model[int(ids[i])*rowBytes:], fresh[i*rowBytes:][:rowBytes])
					}
					if err := c.Update(context.Background(), 0, ids, fresh); err != nil {
						t.Fatal(err)
					}
					check()
				}
				if err := graph.batch.Wait(); err != nil {
					t.Error(err)
				}
				checkResidentStats(t, c, model, rowBytes)
			})
		}
	}
}

// TestGPUs_ResidentOnPeers: with overflow places in GPUs' memory, every GPU reads what a plain array has, while rows are updated and move
// to other targets, and counts what the host counts.
func TestGPUs_ResidentOnPeers(t *testing.T) {
	eachCount(t, func(t *testing.T, n int) {
		const rows, rowBytes, batch = 400, 256, 150
		r := rand.New(rand.NewPCG(22, uint64(n)))
		model := residentRows(rows, rowBytes, r)
		var caches []*cache.Cache
		for _, backend := range []cache.Backend{cache.BackendHost, cache.BackendCUDA} {
			caches = append(caches, openResident(t, model, rowBytes, "ibp4", cache.ResidentOptions{Target: 48, MaxTarget: 160, Buddy: cache.BuddyPeer}, n, func(o *cache.Options) {
				o.Devices.Backend = backend
				o.Host.Overlay = 20 * (rowBytes + 200)
			}))
		}
		check := func() {
			t.Helper()
			ids, out := make([]int64, batch), make([]byte, batch*rowBytes)
			for _, c := range caches {
				for i := range n {
					for j := range ids {
						ids[j] = int64(r.IntN(rows))
					}
					if err := c.On(i).Gather(ctx, cache.Request{Rows: ids, Out: out}); err != nil {
						t.Fatal(err)
					}
					checkRows(t, model, rowBytes, ids, out)
				}
				checkModel(t, c, model, rowBytes)
			}
		}
		check()
		for _, target := range []int{48, 16, 160} {
			ids := r.Perm(rows)[:rows/2]
			numbers, fresh := make([]int64, len(ids)), residentRows(len(ids), rowBytes, r)
			for i, id := range ids {
				numbers[i] = int64(id)
				copy(model[id*rowBytes:], fresh[i*rowBytes:][:rowBytes])
			}
			for _, c := range caches {
				if err := c.Update(ctx, 0, numbers, fresh); err != nil {
					t.Fatal(err)
				}
				if err := c.Retarget(ctx, 0, target); err != nil {
					t.Fatal(err)
				}
			}
			check()
		}
		for _, c := range caches {
			checkResidentStats(t, c, model, rowBytes)
			s := stats(t, c).Tables[0]
			if s.Resident.PeerBytes == 0 || s.Resident.PeerBytes != s.Resident.BuddyBytes || s.HostBytesMoved != 0 || s.Resident.OverflowBytesRead == 0 {
				t.Errorf("%+v, %d B moved over the link", *s.Resident, s.HostBytesMoved)
			}
		}
	})
}

// TestGPU_ResidentCounts: batches and replays count reads of overflow places as the host does.
func TestGPU_ResidentCounts(t *testing.T) {
	gpu := gputest.Open(t)
	const rows, rowBytes, n, replays = 500, 512, 900, 3
	r := rand.New(rand.NewPCG(22, 7))
	data := make([]byte, rows*rowBytes)
	for i := range rows {
		residentRow(data[i*rowBytes:][:rowBytes], r)
	}
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = int64(r.IntN(rows))
	}
	var want cache.ResidentStats
	for i, more := range []func(*cache.Options){nil, onCUDA} {
		c := openResident(t, data, rowBytes, "ibp4", cache.ResidentOptions{Target: 128}, 1, more)
		out := make([]byte, n*rowBytes)
		if err := c.Gather(context.Background(), cache.Request{Rows: ids, Out: out}); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			want = *stats(t, c).Tables[0].Resident
			continue
		}
		if got := *stats(t, c).Tables[0].Resident; !reflect.DeepEqual(got, want) || got.OverflowReads == 0 {
			t.Errorf("counted %+v, want %+v", got, want)
		}
		b := captureBatch(t, c, gpu, ids, rowBytes)
		for range replays {
			checkRows(t, data, rowBytes, ids, b.replay(t, ids))
		}
		if err := b.batch.Wait(); err != nil {
			t.Fatal(err)
		}
		s := stats(t, c).Tables[0]
		if s.Resident.OverflowReads != (1+replays)*want.OverflowReads || s.Resident.OverflowBytesRead != (1+replays)*want.OverflowBytesRead ||
			s.Hits != (1+replays)*n || s.Misses != 0 {
			t.Errorf("%d hits and %d misses after %d replays, counted %+v, want %+v each", s.Hits, s.Misses, replays, *s.Resident, want)
		}
		bad := append([]int64{}, ids...)
		bad[5], bad[7] = rows, -1
		out = b.replay(t, bad)
		if err := b.batch.Wait(); err == nil || !bytes.Equal(out[5*rowBytes:][:rowBytes], make([]byte, rowBytes)) {
			t.Errorf("row numbers out of range: %v", err)
		}
	}
}

// TestGPU_ResidentInRanges is TestResident_ReadsInRanges on a GPU, and on several.
func TestGPU_ResidentInRanges(t *testing.T) {
	gputest.Require(t)
	readsInRanges(t, "ibp4", 256, 1, onCUDA)
}

func TestGPUs_ResidentInRanges(t *testing.T) {
	eachCount(t, func(t *testing.T, n int) {
		readsInRanges(t, "zipnn", 100, n, func(o *cache.Options) { o.Devices.Backend = cache.BackendCUDA })
	})
}
