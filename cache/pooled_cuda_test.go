//go:build cuda && linux

package cache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/device/cuda/emulator"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/reduce"
)

// upload returns device memory with the values, freed with the test.
func upload[T any](t *testing.T, d device.Device, values []T) device.Buffer {
	t.Helper()
	if len(values) == 0 {
		return device.Buffer{}
	}
	mem := unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), len(values)*int(unsafe.Sizeof(values[0])))
	b, err := d.Alloc(int64(len(mem)), "test")
	if err == nil {
		t.Cleanup(func() { d.Free(b) })
		err = device.Upload(d, b, mem)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// narrowed returns a request of a device whose row numbers are int32.
func narrowed(r cache.Request) cache.Request {
	r.DeviceRows32 = true
	return r
}

// onDevice returns a Pooling with offsets and weights in device memory.
func onDevice(t *testing.T, d device.Device, p pooling, narrow bool) pooling {
	t.Helper()
	if narrow {
		offsets := make([]int32, len(p.Offsets))
		for i, x := range p.Offsets {
			offsets[i] = int32(x)
		}
		p.DeviceOffsets, p.Offsets32 = upload(t, d, offsets), true
	} else {
		p.DeviceOffsets = upload(t, d, p.Offsets)
	}
	p.DeviceWeights = upload(t, d, p.Weights)
	p.Offsets, p.Weights = nil, nil
	return p
}

// TestGPU_PooledEqualsDefinition compares pooled batches of every kind and coder with a plain execution of the documented order, to the bit.
func TestGPU_PooledEqualsDefinition(t *testing.T) {
	gpu := gputest.Open(t)
	codecs := []cache.Codec{"none", "ibp4", "ibp8", "ibp", "rank", "zipnn", "sleek", "ndzip", "sparse"}
	for i, codec := range codecs {
		for j, of := range floats {
			for k, columns := range []int{12, 64, 100, 128, 300} {
				if !gputest.Drawn(5*(len(floats)*i+j)+k, 12) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%d", codec, of, columns), func(t *testing.T) {
					const rows = 600
					r := rand.New(rand.NewPCG(uint64(columns), uint64(i*8+j)))
					data := floatTable(rows, columns, of, true, uint64(k))
					table, err := cache.FromBytes("x", of, data, columns*of.Size())
					if err != nil {
						t.Fatal(err)
					}
					c := newCache(t, cache.Options{
						Tables: []cache.Table{table}, Budget: int64(len(data)/2 + 10_000), Codec: codec, Devices: cache.DeviceOptions{Backend: "cuda"},
						Host:      cache.HostOptions{Tier: []cache.HostTier{cache.InPlace, cache.Packed}[(i+k)%2]},
						Admission: cache.AdmissionOptions{Policy: admission.NewStaticFrequency(), Training: batches(0, zipf(r, rows, 2000))},
					})
					for round := range 4 {
						p, ids := drawPooling(r, rows, []int{1, 40, 700, 3000}[r.IntN(4)])
						if round == 3 { // rows of the overlay
							changed := []int64{0, 1, 7}
							fresh := floatTable(len(changed), columns, of, true, 99)
							if err := c.Update(ctx, 0, changed, fresh); err != nil {
								t.Fatal(err)
							}
							for at, row := range changed {
								copy(data[int(row)*columns*of.Size():][:columns*of.Size()], fresh[at*columns*of.Size():])
							}
						}
						size, width := pooledOut(&p, of, columns, len(ids))
						if r.IntN(3) == 0 {
							p.Stride = int64(width) + 8
							size, _ = pooledOut(&p, of, columns, len(ids))
						}
						out := bytes.Repeat([]byte{0xee}, size)
						what := fmt.Sprintf("round %d", round)
						if round%2 == 0 {
							if err := c.Gather(ctx, p.host(0, ids, out)); err != nil {
								t.Fatal(err)
							}
						} else {
							buffer := upload(t, gpu, out)
							var b *cache.Batch
							if r.IntN(2) == 0 {
								b, err = c.On(0).Enqueue(ctx, 0, onDevice(t, gpu, p, false).device(0, upload(t, gpu, ids), buffer))
							} else {
								narrow := make([]int32, len(ids))
								for i, id := range ids {
									narrow[i] = int32(id)
								}
								b, err = c.On(0).Enqueue(ctx, 0, narrowed(onDevice(t, gpu, p, true).device(0, upload(t, gpu, narrow), buffer)))
							}
							if err != nil {
								t.Fatal(err)
							}
							if err := b.Wait(); err != nil {
								t.Fatal(err)
							}
							if size > 0 {
								if err := device.Download(gpu, out, buffer); err != nil {
									t.Fatal(err)
								}
							}
						}
						checkPooled(t, data, of, columns, ids, &p, out, what)
						for bag := 1; p.Stride != 0 && bag < len(bagsOf(&p, len(ids))); bag++ {
							for _, x := range out[(bag-1)*int(p.Stride)+width : bag*int(p.Stride)] {
								if x != 0xee {
									t.Fatalf("%s: bytes between bags %d and %d were written", what, bag-1, bag)
								}
							}
						}
					}
					s := stats(t, c).Tables[0]
					if s.Hits == 0 && s.Misses == 0 || s.Hits+s.Misses != s.Lookups {
						t.Errorf("%+v", s)
					}
				})
			}
		}
	}
}

// TestGPU_PooledCountsLikeTheHost compares what pooled batches count, and what they report of row numbers out of range and of bad offsets.
func TestGPU_PooledCountsLikeTheHost(t *testing.T) {
	gpu := gputest.Open(t)
	const rows, columns = 500, 64
	data := floatTable(rows, columns, dtype.Float32, false, 4)
	ids := zipf(rand.New(rand.NewPCG(3, 3)), rows, 1000)
	p := pooling{Pooling: cache.Pooling{Offsets: []int64{0, 100, 100, 900}, Padding: true, PaddingRow: ids[3]}}
	var lines []string
	for _, backend := range []cache.Backend{"host", "cuda"} {
		table, err := cache.FromBytes("x", dtype.Float32, data, columns*4)
		if err != nil {
			t.Fatal(err)
		}
		c := newCache(t, cache.Options{Tables: []cache.Table{table}, Budget: int64(len(data) / 3), Codec: "ibp4", Devices: cache.DeviceOptions{Backend: backend}})
		out := make([]byte, 4*columns*4)
		if err := c.Gather(ctx, p.host(0, ids, out)); err != nil {
			t.Fatal(err)
		}
		checkPooled(t, data, dtype.Float32, columns, ids, &p, out, string(backend))
		s := stats(t, c).Tables[0]
		lines = append(lines, fmt.Sprint(s.Gathers, s.Lookups, s.Hits, s.Misses, s.HostBytesMoved, s.MissesByReason))
		if backend == "host" {
			continue
		}
		wrong := append([]int64(nil), ids...)
		wrong[5], wrong[950] = rows, -1
		buffer := upload(t, gpu, out)
		b, err := c.On(0).Enqueue(ctx, 0, onDevice(t, gpu, p, false).device(0, upload(t, gpu, wrong), buffer))
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Wait(); !errors.Is(err, cache.ErrRows) || !strings.Contains(err.Error(), "2 row numbers are not 0 to 499 of table x") || !strings.Contains(err.Error(), "first at position 5") {
			t.Errorf("Wait: %v", err)
		}
		if err := device.Download(gpu, out, buffer); err != nil {
			t.Fatal(err)
		}
		// Those rows are left out: as if they were padding.
		wrong[5], wrong[950] = ids[3], ids[3]
		checkPooled(t, data, dtype.Float32, columns, wrong, &p, out, "rows out of range")
		// Without a padding row, -1 is no padding.
		q := p
		q.Padding, q.PaddingRow = false, 0
		wrong[5] = -1
		b, err = c.On(0).Enqueue(ctx, 0, onDevice(t, gpu, q, false).device(0, upload(t, gpu, wrong), buffer))
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Wait(); !errors.Is(err, cache.ErrRows) || !strings.Contains(err.Error(), "1 row numbers are not 0 to 499 of table x") {
			t.Errorf("row -1 without padding: Wait: %v", err)
		}
		for _, offsets := range [][]int64{{0, 100, 50, 900}, {0, 100, 200, 1001}, {1, 100, 200, 300}, {0, -1, 1 << 62, 5}, {900, 800, 700, 600}} {
			q := p
			q.Offsets = offsets
			b, err := c.On(0).Enqueue(ctx, 0, onDevice(t, gpu, q, false).device(0, upload(t, gpu, ids), buffer))
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Wait(); !errors.Is(err, cache.ErrRows) || !strings.Contains(err.Error(), "or offsets are bad") {
				t.Errorf("offsets %v: Wait: %v", offsets, err)
			}
		}
	}
	if lines[0] != lines[1] {
		t.Errorf("counted on the host %s, on the GPU %s", lines[0], lines[1])
	}
}

// TestGPU_PooledReplays captures pooled batches of every mode and replays them for other row numbers and weights, with refreshes and updates in between.
func TestGPU_PooledReplays(t *testing.T) {
	gpu := gputest.Open(t)
	for i, codec := range []cache.Codec{"none", "ibp4", "rank"} {
		t.Run(string(codec), func(t *testing.T) {
			const rows, columns, n = 800, 48, 900
			data := floatTable(rows, columns, dtype.Float32, false, 5)
			table, err := cache.FromBytes("x", dtype.Float32, data, columns*4)
			if err != nil {
				t.Fatal(err)
			}
			c := newCache(t, cache.Options{
				Tables: []cache.Table{table}, Budget: int64(len(data) / 3), Codec: codec, Devices: cache.DeviceOptions{Backend: "cuda"},
				Host: cache.HostOptions{Tier: []cache.HostTier{cache.InPlace, cache.Packed}[i%2]},
			})
			r := rand.New(rand.NewPCG(8, 8))
			s, err := gpu.NewStream()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Close)
			stream := s.(*cuda.Stream)
			for _, p := range []pooling{
				{Pooling: cache.Pooling{Bag: 10, Mode: cache.PoolMean, Padding: true, PaddingRow: 1}}, {Pooling: cache.Pooling{Offsets: []int64{0, 5, 5, 300}, Weights: make([]float32, n)}, Output: dtype.BFloat16},
				{Pooling: cache.Pooling{Offsets: []int64{0, 1, 40, 41, 900}, LastOffset: true, Mode: cache.PoolMax, Padding: true}},
			} {
				size, _ := pooledOut(&p, dtype.Float32, columns, n)
				q, buffer, numbers := onDevice(t, gpu, p, true), upload(t, gpu, make([]byte, size)), upload(t, gpu, make([]int64, n))
				var batch *cache.Batch
				graph, err := stream.Capture(true, func() (err error) {
					batch, err = c.On(0).Enqueue(ctx, stream.Handle(), q.device(0, numbers, buffer))
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(graph.Close)
				for replay := range 3 {
					ids, out := zipf(r, rows, n), make([]byte, size)
					before := stats(t, c).Tables[0].Lookups
					for i := range p.Weights {
						p.Weights[i] = float32(r.NormFloat64())
					}
					if err := errors.Join(
						device.Upload(gpu, numbers, cache.AsBytes(ids)), device.Upload(gpu, q.DeviceWeights, cache.AsBytes(p.Weights)),
						graph.Launch(stream), stream.Synchronize(), device.Download(gpu, out, buffer), batch.Wait(),
					); err != nil {
						t.Fatal(err)
					}
					checkPooled(t, data, dtype.Float32, columns, ids, &p, out, fmt.Sprint("replay ", replay))
					if got := stats(t, c).Tables[0].Lookups - before; got != n {
						t.Errorf("replay %d: %d lookups, want %d", replay, got, n)
					}
					fresh := floatTable(2, columns, dtype.Float32, false, r.Uint64())
					if err := errors.Join(c.Update(ctx, 0, []int64{ids[0], 7}, fresh), c.Refresh(ctx)); err != nil {
						t.Fatal(err)
					}
					copy(data[ids[0]*columns*4:], fresh[:columns*4])
					copy(data[7*columns*4:], fresh[columns*4:])
				}
			}
		})
	}
}

// TestGPU_As compares rows of other types with what each element rounds to, enqueued and in a captured graph.
func TestGPU_As(t *testing.T) {
	gpu := gputest.Open(t)
	const rows, columns, n = 200, 37, 300
	r := rand.New(rand.NewPCG(6, 6))
	for i, of := range floats {
		data := floatTable(rows, columns, of, true, 9)
		c := newCache(t, cache.Options{
			Tables: []cache.Table{floatsOf(t, "x", of, data, columns)}, Budget: int64(len(data) / 2), Codec: []cache.Codec{"ibp4", "zipnn", "none"}[i], Devices: cache.DeviceOptions{Backend: "cuda"},
		})
		s, err := gpu.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		stream := s.(*cuda.Stream)
		for _, as := range floats {
			ids, out := zipf(r, rows, n), make([]byte, n*columns*as.Size())
			numbers, buffer := upload(t, gpu, ids), upload(t, gpu, out)
			b, err := c.On(0).Enqueue(ctx, stream.Handle(), cache.Request{DeviceRows: numbers, DeviceOut: buffer, As: as})
			if err == nil {
				err = errors.Join(b.Wait(), device.Download(gpu, out, buffer))
			}
			if err != nil {
				t.Fatal(err)
			}
			checkRounded(t, data, of, columns, ids, as, out)
			graph, err := stream.Capture(true, func() (err error) {
				b, err = c.On(0).Enqueue(ctx, stream.Handle(), cache.Request{DeviceRows: numbers, DeviceOut: buffer, As: as})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(graph.Close)
			ids = zipf(r, rows, n)
			if err := errors.Join(
				device.Upload(gpu, numbers, cache.AsBytes(ids)), graph.Launch(stream), stream.Synchronize(), b.Wait(), device.Download(gpu, out, buffer),
			); err != nil {
				t.Fatal(err)
			}
			checkRounded(t, data, of, columns, ids, as, out)
		}
	}
}

// TestGPU_PooledReplaysForgetBadOffsets: bad offsets of a replay whose rows all miss are reported once, and not with later replays.
func TestGPU_PooledReplaysForgetBadOffsets(t *testing.T) {
	gpu := gputest.Open(t)
	const rows, columns, n = 300, 16, 100
	data := floatTable(rows, columns, dtype.Float32, false, 5)
	table, err := cache.FromBytes("x", dtype.Float32, data, columns*4)
	if err != nil {
		t.Fatal(err)
	}
	c := newCache(t, cache.Options{Tables: []cache.Table{table}, Budget: 4096, Codec: "none", Devices: cache.DeviceOptions{Backend: "cuda"}})
	s, err := gpu.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	stream := s.(*cuda.Stream)
	ids := make([]int64, 0, n)
	for row := int64(0); len(ids) < n; row++ {
		if e, err := c.Explain(0, []int64{row}); err != nil || row >= rows {
			t.Fatal(row, err)
		} else if !e[0].Cached {
			ids = append(ids, row)
		}
	}
	offsets := upload(t, gpu, make([]int64, 4))
	buffer, numbers := upload(t, gpu, make([]byte, 4*columns*4)), upload(t, gpu, ids)
	var batch *cache.Batch
	graph, err := stream.Capture(true, func() (err error) {
		batch, err = c.On(0).Enqueue(ctx, stream.Handle(), cache.Request{DeviceRows: numbers, DeviceOut: buffer, Pool: &cache.Pooling{DeviceOffsets: offsets}})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(graph.Close)
	for i, x := range [][]int64{{0, 50, 20, 60}, {0, 20, 50, 60}, {0, 20, 50, 101}, {0, 1, 1, 100}} {
		if err := errors.Join(device.Upload(gpu, offsets, cache.AsBytes(x)), graph.Launch(stream), stream.Synchronize()); err != nil {
			t.Fatal(err)
		}
		if err, want := batch.Wait(), i%2 == 0; errors.Is(err, cache.ErrRows) != want || !want && err != nil {
			t.Errorf("offsets %v: %v", x, err)
		}
	}
}

// TestGPU_PooledFloat8 compares pooled batches of float8 rows, also in a captured graph, with the same elements as float32, to the bit.
func TestGPU_PooledFloat8(t *testing.T) {
	gpu := gputest.Open(t)
	for i, codec := range []cache.Codec{"none", "ibp4", "ibp8", "ibp", "sparse", "zipnn"} {
		for j, f := range float8Formats {
			if !gputest.Drawn(i+j, 3) {
				continue
			}
			t.Run(fmt.Sprint(codec, " ", name8(f.Float8, f.columns)), func(t *testing.T) {
				const rows, n = 600, 700
				r := rand.New(rand.NewPCG(uint64(i), uint64(j)))
				data, wide, rowBytes := float8Rows(r, f.Float8, rows, f.columns)
				c := newCache(t, cache.Options{
					Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Budget: int64(len(data)/2 + 10_000), Codec: codec, Devices: cache.DeviceOptions{Backend: "cuda"},
					Host:      cache.HostOptions{Tier: []cache.HostTier{cache.InPlace, cache.Packed}[(i+j)%2]},
					Admission: cache.AdmissionOptions{Policy: admission.NewStaticFrequency(), Training: batches(0, zipf(r, rows, 2000))},
				})
				all := make([]int64, rows)
				for k := range all {
					all[k] = int64(k)
				}
				for round := range 4 {
					p, ids := drawPooling(r, rows, []int{1, 40, 700, 3000}[r.IntN(4)])
					if round == 0 {
						p, ids = pooling{Pooling: cache.Pooling{Bag: 1}, Output: floats[i%3]}, all
					}
					p.Float8 = f.Float8
					size, _ := pooledOut(&p, dtype.Float32, f.columns, len(ids))
					out := make([]byte, size)
					if err := c.Gather(ctx, p.host(0, ids, out)); err != nil {
						t.Fatal(err)
					}
					checkPooled(t, wide, dtype.Float32, f.columns, ids, &p, out, fmt.Sprint("round ", round))
				}
				s, err := gpu.NewStream()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(s.Close)
				stream, p := s.(*cuda.Stream), pooling{Pooling: cache.Pooling{Bag: 1}, Output: dtype.BFloat16, Float8: f.Float8}
				size, _ := pooledOut(&p, dtype.Float32, f.columns, n)
				buffer, numbers := upload(t, gpu, make([]byte, size)), upload(t, gpu, make([]int64, n))
				var batch *cache.Batch
				graph, err := stream.Capture(true, func() (err error) {
					batch, err = c.On(0).Enqueue(ctx, stream.Handle(), p.device(0, numbers, buffer))
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(graph.Close)
				for replay := range 2 {
					ids, out := zipf(r, rows, n), make([]byte, size)
					if err := errors.Join(
						device.Upload(gpu, numbers, cache.AsBytes(ids)), graph.Launch(stream), stream.Synchronize(), device.Download(gpu, out, buffer), batch.Wait(),
					); err != nil {
						t.Fatal(err)
					}
					checkPooled(t, wide, dtype.Float32, f.columns, ids, &p, out, fmt.Sprint("replay ", replay))
				}
			})
		}
	}
}

// TestGPU_FromPages_PooledDevice: enqueued sums of rows of which some are absent are those of the definition, to the bit, in one part and in several.
func TestGPU_FromPages_PooledDevice(t *testing.T) {
	gpu := gputest.Open(t)
	onGPU(t)
	const rows = 20_000
	for _, one := range []struct {
		of      dtype.Type
		columns int
		codec   string
		part    int // bytes of rows
	}{
		{dtype.Float32, 30, "none", 1 << 20}, {dtype.Float32, 64, "ibp4", 64 << 10}, {dtype.BFloat16, 98, "rank", 1 << 20}, {dtype.Float16, 100, "zipnn", 256 << 10},
		{dtype.BFloat16, 99, "none", 32 << 10}, {dtype.Float32, 2100, "none", 1 << 20}, // rows that are no whole words, and long rows
	} {
		t.Run(fmt.Sprintf("%s/%s/%d", one.codec, one.of, one.columns), func(t *testing.T) {
			rowBytes := one.columns * one.of.Size()
			rows := min(rows, 5<<20/rowBytes)
			data := floatTable(rows, one.columns, one.of, false, 9)
			var fault faults
			c := overPages(t, packedAs(t, data, rowBytes, one.of, one.codec, fault.page), cache.Options{
				Budget: 100<<10 + int64(4*rowBytes), Host: cache.HostOptions{Memory: 400<<10 + int64(30*rowBytes)},
			})
			r := rand.New(rand.NewPCG(7, 7))
			gather := func(p pooling, ids []int64) ([]byte, error) {
				t.Helper()
				size, _ := pooledOut(&p, one.of, one.columns, len(ids))
				out := bytes.Repeat([]byte{0xee}, size)
				buffer := upload(t, gpu, out)
				var b *cache.Batch
				var err error
				if r.IntN(2) == 0 {
					b, err = c.On(0).Enqueue(ctx, 0, onDevice(t, gpu, p, false).device(0, upload(t, gpu, ids), buffer))
				} else {
					narrow := make([]int32, len(ids))
					for i, id := range ids {
						narrow[i] = int32(id)
					}
					b, err = c.On(0).Enqueue(ctx, 0, narrowed(onDevice(t, gpu, p, true).device(0, upload(t, gpu, narrow), buffer)))
				}
				if err != nil {
					t.Fatal(err)
				}
				failed := b.Wait()
				if size > 0 {
					if err := device.Download(gpu, out, buffer); err != nil {
						t.Fatal(err)
					}
				}
				return out, failed
			}
			lookups, batches, parts := int64(0), gputest.Few(40, 8), 0
			for i := range batches {
				p, ids := drawPooling(r, rows, 1+r.IntN(min(3000, 20<<20/rowBytes)))
				if i%3 == 0 { // more absent ones
					ids = randomRows(r, len(ids), rows)
				}
				undo := cache.WritePooled(one.part)
				out, err := gather(p, ids)
				undo()
				if len(ids) > max(2*reduce.Run, one.part/rowBytes) {
					parts++
				}
				lookups += int64(len(ids)) // rows of padding are looked up, too
				if err != nil {
					t.Fatal(err)
				}
				checkPooled(t, data, one.of, one.columns, ids, &p, out, fmt.Sprintf("batch %d", i))
			}
			if parts == 0 && one.part < 1<<20 { // a batch has at most 3,000 rows
				t.Error("no batch was added up in parts")
			}
			s := stats(t, c).Tables[0]
			if s.Tiers.AbsentRows == 0 || s.Tiers.HostRows == 0 || s.Hits == 0 || s.Hits+s.Misses != lookups {
				t.Errorf("%d lookups: %+v", lookups, s)
			}
			out, err := gather(pooling{Pooling: cache.Pooling{Bag: 2}}, []int64{1, int64(rows), 3, 4, -1, -9})
			if !errors.Is(err, cache.ErrRows) || !strings.Contains(err.Error(), fmt.Sprintf("3 row numbers are not 0 to %d", rows-1)) || !strings.Contains(err.Error(), "position 1") {
				t.Errorf("error %v", err)
			}
			if !bytes.Equal(out[:rowBytes], data[rowBytes:][:rowBytes]) || !bytes.Equal(out[2*rowBytes:], make([]byte, rowBytes)) {
				t.Error("other sums of row numbers out of range")
			}
			fault.set(func(context.Context, uint32) error { return errors.New("gone") })
			if _, err := gather(pooling{Pooling: cache.Pooling{Bag: 10}}, randomRows(r, 1000, rows)); !errors.Is(err, cache.ErrCold) || !strings.Contains(err.Error(), "gone") {
				t.Errorf("rows that cannot be read: %v", err)
			}
			fault.set(nil)
			if _, err := gather(pooling{Pooling: cache.Pooling{Bag: 10}}, randomRows(r, 1000, rows)); err != nil {
				t.Error(err)
			}
			defer cache.WritePooled(rowBytes * 100)()
			ids := randomRows(r, 101, rows)
			for _, p := range []pooling{{Pooling: cache.Pooling{Bag: 101}}, {Pooling: cache.Pooling{Offsets: []int64{0}}}} {
				if out, err := gather(p, ids); err != nil {
					t.Errorf("101 rows where 100 fit: %v", err)
				} else {
					checkPooled(t, data, one.of, one.columns, ids, &p, out, "101 rows where 100 fit")
				}
			}
			ids[100] = int64(rows)
			if _, err := gather(pooling{Pooling: cache.Pooling{Bag: 101}}, ids); !errors.Is(err, cache.ErrRows) || !strings.Contains(err.Error(), "1 row numbers are not 0 to") || !strings.Contains(err.Error(), "position 100") {
				t.Errorf("a row number out of range in a later part: %v", err)
			}
		})
	}
}

// TestGPU_FromPages_PooledStreams: several goroutines enqueue pooled batches on streams of their own beside plain ones.
func TestGPU_FromPages_PooledStreams(t *testing.T) {
	gpu := gputest.Open(t)
	onGPU(t)
	const rows, columns, n = 20_000, 32, 640
	data := floatTable(rows, columns, dtype.Float32, false, 3)
	c := overPages(t, packedAs(t, data, columns*4, dtype.Float32, "none", nil), cache.Options{Budget: 100 << 10, Host: cache.HostOptions{Memory: 400 << 10}})
	var wg sync.WaitGroup
	for g := range 8 {
		s, err := gpu.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		r := rand.New(rand.NewPCG(uint64(g), 4))
		p := pooling{Pooling: cache.Pooling{Bag: 10}}
		numbers, buffer := upload(t, gpu, make([]int64, n)), upload(t, gpu, make([]byte, n/10*columns*4))
		wg.Go(func() {
			for range gputest.Few(20, 5) {
				ids := randomRows(r, n, rows)
				if err := device.Upload(gpu, numbers, cache.AsBytes(ids)); err != nil {
					t.Error(err)
					return
				}
				b, err := c.On(0).Enqueue(ctx, streamHandle(s), p.device(0, numbers, buffer))
				if err == nil {
					err = errors.Join(compare(c, data, ids[:50]), b.Wait())
				}
				out := make([]byte, buffer.Size())
				if err = errors.Join(err, device.Download(gpu, out, buffer)); err != nil {
					t.Error(err)
					return
				}
				checkPooled(t, data, dtype.Float32, columns, ids, &p, out, "a goroutine")
			}
		})
	}
	wg.Wait()
}

// TestGPU_PooledOneBag sums bags of a million rows; an emulated GPU takes fewer.
func TestGPU_PooledOneBag(t *testing.T) {
	gpu := gputest.Open(t)
	const rows, columns = 1000, 8
	n := 1_000_000
	if emulator.Present() {
		n = 40_000
	}
	data := floatTable(rows, columns, dtype.Float32, false, 1)
	ids := zipf(rand.New(rand.NewPCG(1, 1)), rows, n)
	for _, codec := range []cache.Codec{"none", "ibp4"} {
		table, err := cache.FromBytes("features", dtype.Float32, data, columns*4)
		if err != nil {
			t.Fatal(err)
		}
		c := newCache(t, cache.Options{Tables: []cache.Table{table}, Budget: 40_000, Codec: codec, Devices: cache.DeviceOptions{Backend: "cuda"}})
		for _, p := range []pooling{{Pooling: cache.Pooling{Offsets: []int64{0}}}, {Pooling: cache.Pooling{Bag: n, Mode: cache.PoolMean}}, {Pooling: cache.Pooling{Offsets: []int64{0, 0, 3, int64(n) - 1}, Mode: cache.PoolMax}}} {
			size, _ := pooledOut(&p, dtype.Float32, columns, n)
			out := upload(t, gpu, make([]byte, size))
			b, err := c.On(0).Enqueue(ctx, 0, onDevice(t, gpu, p, false).device(0, upload(t, gpu, ids), out))
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Wait(); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, size)
			if err := device.Download(gpu, got, out); err != nil {
				t.Fatal(err)
			}
			checkPooled(t, data, dtype.Float32, columns, ids, &p, got, string(codec))
		}
	}
}

// TestGPU_PooledBadOffsets: few rows with offsets out of order have no memory for sums of runs, and nothing is written but the output. The batch reports them.
func TestGPU_PooledBadOffsets(t *testing.T) {
	gpu := gputest.Open(t)
	const rows, columns = 300, 64
	data := floatTable(rows, columns, dtype.Float32, false, 1)
	for _, codec := range []cache.Codec{"none", "ibp4", "ibp8", "rank", "zipnn"} {
		c := newCache(t, cache.Options{
			Tables: []cache.Table{floatsOf(t, "x", dtype.Float32, data, columns)}, Budget: 200_000, Codec: codec, Devices: cache.DeviceOptions{Backend: "cuda"},
		})
		for _, offsets := range [][]int64{{3, 2, 20, 32}, {0, 20, 2, 32}, {31, 0, 1, 32}, {0, 40, 9, 3}, {-5, 32, 0, 32}} {
			ids := randomRows(rand.New(rand.NewPCG(3, 3)), 32, rows)
			g := newGuarded(t, gpu, []int{len(offsets) * columns * 4})
			p := onDevice(t, gpu, pooling{Pooling: cache.Pooling{Offsets: offsets}}, offsets[0] == 0)
			for _, tables := range []bool{false, true} {
				batches := []cache.Request{p.device(0, upload(t, gpu, ids), g.out(0))}
				if tables {
					whole := onDevice(t, gpu, pooling{Pooling: cache.Pooling{Offsets: []int64{0, 16, 32}}}, false)
					batches = append(batches, whole.device(0, batches[0].DeviceRows, upload(t, gpu, make([]byte, 3*columns*4))))
				}
				b, err := c.On(0).Enqueue(ctx, 0, batches...)
				if err != nil {
					t.Fatal(err)
				}
				if err := b.Wait(); !errors.Is(err, cache.ErrRows) {
					t.Errorf("%s, offsets %v: %v", codec, offsets, err)
				}
				g.read(t)
			}
		}
	}
}
