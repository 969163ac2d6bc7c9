package cache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/gputest"
)

// deviceBatch is a batch in a device's memory.
type deviceBatch struct {
	d         device.Device
	rows, out device.Buffer
}

func putBatch(t testing.TB, d device.Device, rows []int64, rowBytes int) *deviceBatch {
	t.Helper()
	b := &deviceBatch{d: d}
	var err error
	if b.rows, err = d.Alloc(int64(len(rows))*8, "test"); err != nil {
		t.Fatal(err)
	}
	if b.out, err = d.Alloc(int64(len(rows)*rowBytes), "test"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Free(b.rows); d.Free(b.out) })
	if err := device.Upload(d, b.rows, cache.AsBytes(rows)); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *deviceBatch) read(t *testing.T) []byte {
	t.Helper()
	out := make([]byte, b.out.Size())
	if err := device.Download(b.d, out, b.out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestEnqueue_OnHost runs Enqueue on the host backend, where device memory is host memory, on every route.
func TestEnqueue_OnHost(t *testing.T) {
	t.Run("together", testEnqueueOnHost)
	defer cache.ServeApart()()
	t.Run("apart", testEnqueueOnHost)
	cache.ServeHitsFirst()
	t.Run("hits first", testEnqueueOnHost)
}

func testEnqueueOnHost(t *testing.T) {
	data := normalTable(500, 32, 1)
	c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "x", data, 128)}, Budget: 30_000, Devices: cache.DeviceOptions{Backend: "host"}})
	rows := append(zipf(rand.New(rand.NewPCG(1, 1)), 500, 1000), -1, 500)
	out := make([]byte, len(rows)*128)
	b, err := c.On(0).Enqueue(ctx, 0, cache.Request{DeviceRows: device.HostBuffer(cache.AsBytes(rows)), DeviceOut: device.HostBuffer(out)})
	if err != nil {
		t.Fatal(err)
	}
	err = b.Wait()
	if !errors.Is(err, cache.ErrRows) || !strings.Contains(err.Error(), "2 of 1002 are not 0 to 499 of table x, the first at position 1000") {
		t.Fatalf("Wait: %v", err)
	}
	if again := b.Wait(); again != err {
		t.Errorf("second Wait: %v", again)
	}
	checkRows(t, data, 128, rows[:1000], out)
	if !bytes.Equal(out[1000*128:], make([]byte, 256)) {
		t.Error("rows out of range are not zeroed")
	}
	if _, err := c.On(0).Enqueue(ctx, 0, cache.Request{DeviceRows: device.HostBuffer(cache.AsBytes(rows)), DeviceOut: device.HostBuffer(out[1:])}); !errors.Is(err, cache.ErrOutput) {
		t.Errorf("short output: %v", err)
	}
	var pending []*cache.Batch
	for range 100 { // more than there are lanes, none waited for
		b, err := c.On(0).Enqueue(ctx, 0, cache.Request{DeviceRows: device.HostBuffer(cache.AsBytes(rows[:10])), DeviceOut: device.HostBuffer(out[:1280])})
		if err != nil {
			t.Fatal(err)
		}
		pending = append(pending, b)
	}
	if s := stats(t, c); s.Tables[0].Gathers != 101 || s.Tables[0].Lookups != 2000 {
		t.Errorf("%d gathers, %d lookups", s.Tables[0].Gathers, s.Tables[0].Lookups)
	}
	for _, b := range pending {
		if err := b.Wait(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestGPU_EqualsHost compares caches of both backends: gathered rows and statistics, for all routes, layouts and kinds of memory.
func TestGPU_EqualsHost(t *testing.T) {
	gpu := gputest.Open(t)
	lengths := []int{4, 36, 128, 401, 512, 2408, 9000}
	if testing.Short() {
		lengths = []int{36, 401, 512}
	}
	for i := range gputest.Few(3, 1) * len(lengths) {
		rowBytes := lengths[i%len(lengths)]
		for _, mode := range []cache.HostTier{cache.InPlace, cache.Packed} {
			t.Run(fmt.Sprintf("row=%d/%v/%d", rowBytes, mode, i/len(lengths)), func(t *testing.T) {
				switch i / len(lengths) { // undone after the caches have been closed
				case 1:
					t.Cleanup(cache.ServeApart())
				case 2:
					t.Cleanup(cache.ServeHitsFirst())
				}
				rows := max(300, min(gputest.Few(20_000, 2000), 8<<20/rowBytes))
				data := gputest.Rows("mixed", rows, rowBytes, 1)
				r := rand.New(rand.NewPCG(uint64(rowBytes), 4))
				training := zipf(r, rows, 4*rows)
				var caches []*cache.Cache
				for _, backend := range []cache.Backend{"host", "cuda"} {
					caches = append(caches, newCache(t, cache.Options{
						Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Budget: int64(len(data)/3 + 20_000), Devices: cache.DeviceOptions{Backend: backend},
						Codec: "auto", Link: 55e9, Host: cache.HostOptions{Tier: mode}, Admission: cache.AdmissionOptions{Policy: admission.NewStaticFrequency(), Training: batches(0, training)}, Seed: 1,
					}))
				}
				for _, n := range []int{0, 1, 31, 32, 33, 1000, gputest.Few(50_000, 5000)} {
					n = min(n, 64<<20/rowBytes)
					ids := zipf(r, rows, n)
					for _, c := range caches {
						out := make([]byte, n*rowBytes)
						if err := c.Gather(ctx, cache.Request{Rows: ids, Out: out}); err != nil {
							t.Fatal(err)
						}
						checkRows(t, data, rowBytes, ids, out)
					}
				}
				a, b := stats(t, caches[0]), stats(t, caches[1])
				for _, s := range []*cache.Stats{&a, &b} { // page-locked memory is rounded, Go memory is not staged, time goes by
					s.HostBytes, s.HostTakenBytes, s.StagingBytes, s.AdmittedAge, s.LoadPeakBytes = 0, 0, 0, 0, 0
					s.HostMemory, s.Devices[0].Node = cache.HostMemory{}, cache.UnknownNode // the host's devices are near no node
				}
				if !reflect.DeepEqual(a, b) {
					t.Fatalf("statistics differ:\n%+v\n%+v", a, b)
				}
				ids := append(zipf(r, rows, 5000), -1, int64(rows))
				batch := putBatch(t, gpu, ids, rowBytes)
				p, err := caches[1].On(0).Enqueue(ctx, 0, cache.Request{DeviceRows: batch.rows, DeviceOut: batch.out})
				if err != nil {
					t.Fatal(err)
				}
				if err := p.Wait(); !errors.Is(err, cache.ErrRows) || !strings.Contains(err.Error(), "first at position 5000") {
					t.Fatalf("Wait: %v", err)
				}
				out := batch.read(t)
				checkRows(t, data, rowBytes, ids[:5000], out)
				if !bytes.Equal(out[5000*rowBytes:], make([]byte, 2*rowBytes)) {
					t.Fatal("rows out of range are not zeroed")
				}
			})
		}
	}
}

// TestGPU_ConcurrentStreams runs Enqueue on several streams and goroutines at the same time as Gathers into Go memory, with several
// caches in the process.
func TestGPU_ConcurrentStreams(t *testing.T) {
	gpu := gputest.Open(t)
	t.Run("together", func(t *testing.T) { testConcurrentStreams(t, gpu) })
	defer cache.ServeApart()()
	t.Run("apart", func(t *testing.T) { testConcurrentStreams(t, gpu) })
	cache.ServeHitsFirst()
	t.Run("hits first", func(t *testing.T) { testConcurrentStreams(t, gpu) })
}

func testConcurrentStreams(t *testing.T, gpu device.Device) {
	const rowBytes = 512
	rows := gputest.Few(20_000, 2000)
	data := gputest.Rows("mixed", rows, rowBytes, 1)
	var wg sync.WaitGroup
	for k := range 2 {
		c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Budget: int64(len(data) * 2 / 5), Devices: cache.DeviceOptions{Backend: "cuda"}})
		for g := range 4 {
			ids := zipf(rand.New(rand.NewPCG(uint64(k), uint64(g))), rows, gputest.Few(3000, 1000))
			batch := putBatch(t, gpu, ids, rowBytes)
			s, err := gpu.NewStream()
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				defer s.Close()
				for range gputest.Few(20, 5) {
					if g == 0 {
						out := make([]byte, len(ids)*rowBytes)
						if err := c.Gather(ctx, cache.Request{Rows: ids, Out: out}); err != nil {
							t.Error(err)
						}
						if !equalRows(data, rowBytes, ids, out) {
							t.Error("rows differ")
						}
						continue
					}
					if err := s.Fill(batch.out, 0xee); err != nil {
						t.Error(err)
					}
					// Nobody waits for the batches: the stream's order is enough.
					if _, err := c.On(0).Enqueue(ctx, streamHandle(s), cache.Request{DeviceRows: batch.rows, DeviceOut: batch.out}); err != nil {
						t.Error(err)
					}
					out := make([]byte, batch.out.Size())
					if err := errors.Join(s.Copy(device.HostBuffer(out), batch.out), s.Synchronize()); err != nil {
						t.Error(err)
					}
					if !equalRows(data, rowBytes, ids, out) {
						t.Error("rows differ")
					}
				}
			})
		}
	}
	wg.Wait()
}

func equalRows(data []byte, rowBytes int, rows []int64, out []byte) bool {
	for i, r := range rows {
		if !bytes.Equal(out[i*rowBytes:][:rowBytes], data[int(r)*rowBytes:][:rowBytes]) {
			return false
		}
	}
	return true
}

func streamHandle(s device.Stream) uintptr { return s.(interface{ Handle() uintptr }).Handle() }

// TestGPU_CloseFreesEverything: the device has as much free memory after caches were used and closed as before.
func TestGPU_CloseFreesEverything(t *testing.T) {
	gpu := gputest.Open(t)
	rows := gputest.Few(40_000, 4000)
	data := gputest.Rows("mixed", rows, 512, 1)
	run := func() {
		c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "x", data, 512)}, Budget: 8 << 20, Devices: cache.DeviceOptions{Backend: "cuda"}})
		ids := zipf(rand.New(rand.NewPCG(1, 1)), rows, gputest.Few(100_000, 5000))
		out := make([]byte, len(ids)*512)
		if err := c.Gather(ctx, cache.Request{Rows: ids, Out: out}); err != nil {
			t.Fatal(err)
		}
		batch := putBatch(t, gpu, ids[:1000], 512)
		if _, err := c.On(0).Enqueue(ctx, 0, cache.Request{DeviceRows: batch.rows, DeviceOut: batch.out}); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	run() // the first loads modules
	var free []int64
	for range 3 {
		run()
		free = append(free, freeMemory(t, gpu))
	}
	if slices.Max(free)-slices.Min(free) > 4<<20 {
		t.Fatalf("free memory after each cache: %d", free)
	}
}

// TestGPU_OutOfMemory: the error names the purpose of the memory, and all other memory is freed.
func TestGPU_OutOfMemory(t *testing.T) {
	gpu := gputest.Open(t)
	data := gputest.Rows("mixed", 3000, 512, 1)
	before := freeMemory(t, gpu)
	hog, err := gpu.Alloc(before-(64<<20), "hog")
	if err != nil {
		t.Skip(err)
	}
	left := freeMemory(t, gpu)
	for _, rows := range []int{400_000} {
		ids := make([]int64, rows)
		c, err := cache.New(cache.Options{Tables: []cache.Table{fromBytes(t, "x", data, 512)}, Budget: 1 << 20, Devices: cache.DeviceOptions{Backend: "cuda"}})
		if err != nil {
			t.Logf("New: %v", err)
			continue
		}
		err = c.Gather(ctx, cache.Request{Rows: ids, Out: make([]byte, rows*512)})
		if !errors.Is(err, device.ErrOutOfMemory) || !strings.Contains(err.Error(), "bytes") {
			t.Errorf("Gather beside a full memory: %v", err)
		}
		if err := c.Gather(ctx, cache.Request{Rows: ids[:10], Out: make([]byte, 10*512)}); err != nil {
			t.Errorf("a smaller Gather after it: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if now := freeMemory(t, gpu); left-now > 4<<20 {
		t.Errorf("%d bytes lost", left-now)
	}
	gpu.Free(hog)
}

// TestEnqueue_NobodyWaits: batches for which Wait is not called release their lanes, also to callers that already wait for one.
func TestEnqueue_NobodyWaits(t *testing.T) {
	data := normalTable(100, 8, 1)
	c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "x", data, 32)}, Budget: 4096, Devices: cache.DeviceOptions{Backend: "host"}})
	bounded, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for range 300 {
		var wg sync.WaitGroup
		for range 4 * runtime.GOMAXPROCS(0) {
			wg.Go(func() {
				rows, out := []int64{1, 2, 3}, make([]byte, 96)
				if _, err := c.On(0).Enqueue(bounded, 0, cache.Request{DeviceRows: device.HostBuffer(cache.AsBytes(rows)), DeviceOut: device.HostBuffer(out)}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	s := stats(t, c).Tables[0]
	if want := int64(300 * 4 * runtime.GOMAXPROCS(0) * 3); s.Lookups != want {
		t.Errorf("%d lookups counted, want %d", s.Lookups, want)
	}
}

// TestGPU_AutoMeasures: CodecAuto measures the GPU, or says why it did not, once for tables of one kind; not if Options.Link is set.
func TestGPU_AutoMeasures(t *testing.T) {
	gputest.Require(t)
	t.Setenv("TENSORCACHE_CODEC_COSTS", filepath.Join(t.TempDir(), "costs.json"))
	const rows, rowBytes = 20_000, 128
	data := normalTable(rows, rowBytes/4, 1)
	open := func(link float64) *registry.Choice {
		c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Budget: 1 << 19, Link: link, Devices: cache.DeviceOptions{Backend: "cuda"}})
		return stats(t, c).Tables[0].Choice
	}
	first, second, fixed := open(0), open(0), open(40e9)
	t.Log(first.Basis, second.Basis)
	switch {
	case strings.Contains(first.Basis, "(measuring this device takes longer than 300ms)"): // emulated
	case first.MeasuredSeconds <= 0 || first.MeasuredSeconds > 0.3 || first.Kept || !strings.Contains(first.Basis, "as measured on this"):
		t.Errorf("first: %+v", first)
	case !second.Kept || second.Codec != first.Codec:
		t.Errorf("second: %+v", second)
	}
	if fixed.MeasuredSeconds != 0 || !strings.Contains(fixed.Basis, "misses over a link of 40 GB/s") {
		t.Errorf("with a link: %+v", fixed)
	}
}
