//go:build cuda && linux

package cache_test

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/device/cuda/emulator"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/gputest"
	"github.com/tensorcache/tensorcache/internal/numa"
)

func freeMemory(t *testing.T, d device.Device) int64 {
	t.Helper()
	free, err := d.(*cuda.Device).FreeMemory()
	if err != nil {
		t.Fatal(err)
	}
	return free
}

func TestNew_CudaWithoutDriver(t *testing.T) {
	if cuda.Usable() == nil {
		t.Skip("there is a driver")
	}
	_, err := cache.New(cache.Options{Tables: []cache.Table{fromBytes(t, "x", make([]byte, 64), 16)}, Budget: 1 << 20, Devices: cache.DeviceOptions{Backend: "cuda"}})
	if err == nil || !strings.Contains(err.Error(), "Devices.Backend (cuda) is not usable: "+cuda.Usable().Error()) {
		t.Errorf("New: %v", err)
	}
}

// inChild says whether this is the child process of the test, in which its kernels may fault: CUDA fails for the rest of the process. The parent starts the child and
// fails as it does.
func inChild(t *testing.T) bool {
	t.Helper()
	const child = "TENSORCACHE_LOSE_DEVICE"
	if os.Getenv(child) == "1" {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), child+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

// fault gathers three rows of a length from a wild pointer on a device.
func fault(t *testing.T, c *cache.Cache, on, rowBytes int) {
	t.Helper()
	b, err := c.On(on).Enqueue(ctx, 0, cache.Request{DeviceRows: device.DeviceBuffer(1<<46, 24), DeviceOut: device.DeviceBuffer(1<<45, int64(3*rowBytes))})
	if err == nil {
		err = b.Wait()
	}
	if !errors.Is(err, cache.ErrDevice) {
		t.Fatalf("a Gather from a wild pointer: %v", err)
	}
	t.Log(err)
}

// TestGPU_LostDevice: after a kernel's fault, calls return the error, and Close works.
func TestGPU_LostDevice(t *testing.T) {
	gputest.Require(t)
	if !inChild(t) {
		return
	}
	data := gputest.Rows("mixed", 3000, 512, 1)
	c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "x", data, 512)}, Budget: 1 << 20, Devices: cache.DeviceOptions{Backend: "cuda"}})
	ids := []int64{1, 2, 3}
	fault(t, c, 0, 512)
	for range 2 {
		if err := c.Gather(ctx, cache.Request{Rows: ids, Out: make([]byte, 3*512)}); !errors.Is(err, cache.ErrDevice) {
			t.Errorf("Gather after it: %v", err)
		}
	}
	if _, err := c.Stats(); !errors.Is(err, cache.ErrDevice) {
		t.Errorf("Stats after it: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := c.Gather(ctx, cache.Request{Rows: ids, Out: nil}); !errors.Is(err, cache.ErrClosed) {
		t.Errorf("Gather after Close: %v", err)
	}
}

// TestGPUs_PagesLostDevice: after a kernel's fault on one of two GPUs, batches return right rows, or the error. The emulated GPU fails alone, so the cache goes on without it
// (TestFromPages_DeviceLost); of real ones the fault fails both.
func TestGPUs_PagesLostDevice(t *testing.T) {
	gputest.RequireGPUs(t, 2)
	if !inChild(t) {
		return
	}
	onGPU(t)
	lose := func(c *cache.Cache) { fault(t, c, 1, 120) }
	if emulator.Present() {
		deviceLost(t, lose)
		return
	}
	const rows = 20_000
	c, data := onTwoDevices(t, rows)
	check(t, c, data, allOf(rows))
	lose(c)
	for range 2 {
		err := compare(c, data, allOf(rows))
		t.Logf("the other GPU: %v", err)
		if err != nil && !errors.Is(err, cache.ErrDevice) {
			t.Errorf("Gather after it: %v", err)
		}
		if err := c.Refresh(ctx); err != nil && !errors.Is(err, cache.ErrDevice) {
			t.Errorf("Refresh after it: %v", err)
		}
	}
	if err := c.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// TestGPU_MemoryBeyondBudget runs more batches, on many streams, than there is scratch for. The device memory besides the budget and the
// codec metadata stays within the documented bound, and so do the figures of Stats.
func TestGPU_MemoryBeyondBudget(t *testing.T) {
	gpu := gputest.Open(t)
	const rowBytes = 64
	rows, n, streams := gputest.Few(200_000, 20_000), int64(gputest.Few(1<<20, 1<<15)), gputest.Few(12, 4)
	data := gputest.Rows("mixed", rows, rowBytes, 1)
	defer cache.ServeApart()()
	var s []device.Stream
	var batches []*deviceBatch
	ids := zipf(rand.New(rand.NewPCG(1, 1)), rows, int(n))
	for range streams {
		one, err := gpu.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		defer one.Close()
		s, batches = append(s, one), append(batches, putBatch(t, gpu, ids, rowBytes))
	}
	before := freeMemory(t, gpu)
	c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "x", data, rowBytes)}, Budget: 8 << 20, Devices: cache.DeviceOptions{Backend: "cuda"}, Codec: "ibp4"})
	for _, part := range []int64{1000, n / 3, n} { // growing, so that smaller lists are left over
		for i, b := range batches {
			if _, err := c.On(0).Enqueue(ctx, streamHandle(s[i]), cache.Request{DeviceRows: b.rows.Slice(0, 8*part), DeviceOut: b.out.Slice(0, rowBytes*part)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, b := range batches {
		if err := s[i].Synchronize(); err != nil {
			t.Fatal(err)
		}
		if !equalRows(data, rowBytes, ids, b.read(t)) {
			t.Error("rows differ")
		}
	}
	st := stats(t, c)
	beyond := before - freeMemory(t, gpu) - st.BudgetBytes - st.CodecBytes
	if limit := int64(64<<20 + 32*n); beyond > limit {
		t.Errorf("%d bytes beyond the budget, at most %d allowed", beyond, limit)
	}
	if limit := int64(34<<20 + 32*n); st.ScratchBytes > limit || st.ScratchBytes < 32*n {
		t.Errorf("%d bytes of scratch, at most %d allowed", st.ScratchBytes, limit)
	}
	t.Logf("%d bytes beyond the budget, %d of scratch", beyond, st.ScratchBytes)
}

// TestGPU_GatherAllocatesNothing: a Gather allocates no Go memory, on any route, by codecs whose kernels for hits are chosen in different ways.
func TestGPU_GatherAllocatesNothing(t *testing.T) {
	for _, codec := range []cache.Codec{cache.CodecAuto, "ibp4", "ibpc", "zipnn"}[gputest.Few(0, 2):] {
		t.Run(string(codec), func(t *testing.T) { gatherAllocatesNothing(t, codec) })
	}
}

func gatherAllocatesNothing(t *testing.T, codec cache.Codec) {
	gpu := gputest.Open(t)
	rows := gputest.Few(20_000, 2000)
	data := gputest.Rows("mixed", rows, 512, 1)
	c := newCache(t, cache.Options{Tables: []cache.Table{fromBytes(t, "x", data, 512)}, Budget: int64(len(data) * 2 / 5), Codec: codec, Devices: cache.DeviceOptions{Backend: "cuda"}})
	ids := zipf(rand.New(rand.NewPCG(1, 1)), rows, 500)
	batch, out := putBatch(t, gpu, ids, 512), make([]byte, 500*512)
	s, err := gpu.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	measure := func(how string) {
		for what, gather := range map[string]func() error{
			"Gather": func() error { return c.Gather(ctx, cache.Request{Rows: ids, Out: out}) },
			"Enqueue": func() error {
				b, err := c.On(0).Enqueue(ctx, streamHandle(s), cache.Request{DeviceRows: batch.rows, DeviceOut: batch.out})
				if err != nil {
					return err
				}
				return b.Wait()
			},
		} {
			// Batches are made 32 at a time: less than one a call.
			if n := fewestAllocs(func() {
				if err := gather(); err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("%s %s: %v allocations", what, how, n)
			}
		}
	}
	measure("together")
	defer cache.ServeApart()()
	measure("apart")
}

// fewestAllocs is testing.AllocsPerRun of 64 runs, the least of up to ten times. The count is the whole process's: a goroutine of the cache
// that allocates meanwhile can add one a run where the processors are busy. Such goroutines pause, and in a pause only what f
// allocates is counted.
func fewestAllocs(f func()) float64 {
	n := testing.AllocsPerRun(64, f)
	for try := 1; try < 10 && n > 0; try++ {
		n = min(n, testing.AllocsPerRun(64, f))
	}
	return n
}

// BenchmarkGather_DefaultBatch gathers batches with the size, row length and hit rate of cachebench's default workload: on the host
// backend, on the GPU into Go memory, and on the GPU into device memory.
func BenchmarkGather_DefaultBatch(b *testing.B) {
	const rows, rowBytes, batchRows = 500_000, 512, 26_407
	data := gputest.Rows("normal", rows, rowBytes, 1)
	r := rand.New(rand.NewPCG(1, 2))
	ids := make([]int64, batchRows)
	for i := range ids { // a third from the cached rows
		if ids[i] = r.Int64N(rows); i%3 == 0 {
			ids[i] = r.Int64N(20_000)
		}
	}
	training := make([]int64, 30_000)
	for i := range training {
		training[i] = int64(i)
	}
	for _, backend := range []string{"host", "cuda", "cuda-device-memory"} {
		b.Run(backend, func(b *testing.B) {
			kind, _, inDevice := strings.Cut(backend, "-")
			if kind == "cuda" {
				gputest.Require(b)
			}
			c := newCache(b, cache.Options{
				Tables: []cache.Table{fromBytes(b, "x", data, rowBytes)}, Budget: 12_800_000, Devices: cache.DeviceOptions{Backend: cache.Backend(kind)}, Codec: "ibp4",
				Admission: cache.AdmissionOptions{Policy: admission.NewStaticFrequency(), Training: batches(0, training, training[:20_000])},
			})
			b.SetBytes(batchRows * rowBytes)
			if !inDevice {
				out := make([]byte, batchRows*rowBytes)
				for b.Loop() {
					if err := c.Gather(ctx, cache.Request{Rows: ids, Out: out}); err != nil {
						b.Fatal(err)
					}
				}
				return
			}
			batch := putBatch(b, gputest.Open(b), ids, rowBytes)
			for b.Loop() {
				p, err := c.On(0).Enqueue(ctx, 0, cache.Request{DeviceRows: batch.rows, DeviceOut: batch.out})
				if err != nil {
					b.Fatal(err)
				}
				if err := p.Wait(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// swinging is a policy whose rankings alternate between two halves of the rows.
type swinging struct {
	rows  int64
	cycle int64
}

func (p *swinging) Name() string { return "swinging" }
func (p *swinging) Start(problem admission.Problem) error {
	p.rows = problem.Rows[0] / 4
	return nil
}
func (p *swinging) Observe(int, []int64) {}
func (p *swinging) Rank() iter.Seq[uint64] {
	from := p.cycle % 2 * p.rows
	p.cycle++
	return func(yield func(uint64) bool) {
		for r := from; r < from+p.rows && yield(hashmap.Key(0, r)); r++ {
		}
	}
}
func (p *swinging) Resize(int64) {}
func (p *swinging) Close()       {}

// BenchmarkGather_BesideRefresh measures the time of the default batch into device memory for three caches: one that does not change, one
// that samples accesses, and one of which at least 1 % of the rows is replaced every second (metric churn-%/s).
func BenchmarkGather_BesideRefresh(b *testing.B) {
	const rows, rowBytes, batchRows = 500_000, 512, 26_407
	gpu := gputest.Open(b)
	data := gputest.Rows("normal", rows, rowBytes, 1)
	r := rand.New(rand.NewPCG(1, 2))
	ids := make([]int64, batchRows)
	for i := range ids { // a third from the cached rows
		if ids[i] = r.Int64N(rows); i%3 == 0 {
			ids[i] = r.Int64N(20_000)
		}
	}
	batch := putBatch(b, gpu, ids, rowBytes)
	for _, c := range []struct {
		name    string
		refresh cache.RefreshOptions
	}{
		{"static", cache.RefreshOptions{}},
		{"sampling", cache.RefreshOptions{Accesses: 1. / 16}},
		{"refreshing", cache.RefreshOptions{Accesses: 1. / 16, Interval: 50 * time.Millisecond, MaxChurn: 0.01 / 8}},
	} {
		b.Run(c.name, func(b *testing.B) {
			c := newCache(b, cache.Options{
				Tables: []cache.Table{fromBytes(b, "x", data, rowBytes)}, Budget: 12_800_000, Devices: cache.DeviceOptions{Backend: "cuda"}, Codec: "ibp4",
				Admission: cache.AdmissionOptions{Policy: &swinging{}}, Refresh: c.refresh,
			})
			var times []time.Duration
			begin, before := time.Now(), stats(b, c)
			for b.Loop() {
				start := time.Now()
				p, err := c.On(0).Enqueue(ctx, 0, cache.Request{DeviceRows: batch.rows, DeviceOut: batch.out})
				if err == nil {
					err = p.Wait()
				}
				if err != nil {
					b.Fatal(err)
				}
				times = append(times, time.Since(start))
			}
			slices.Sort(times)
			s := stats(b, c)
			percentile := func(p float64) float64 { return float64(times[int(p*float64(len(times)-1))].Nanoseconds()) / 1e3 }
			b.ReportMetric(percentile(0.5), "p50-us")
			b.ReportMetric(percentile(0.99), "p99-us")
			b.ReportMetric(100*float64(s.Sub(before).Changes.EvictedRows)/float64(s.Tables[0].CachedRows)/time.Since(begin).Seconds(), "churn-%/s")
		})
	}
}

// TestGPU_NewLoadsAllKernels: neither batches on any route nor changes load a kernel that New has not loaded.
func TestGPU_NewLoadsAllKernels(t *testing.T) {
	gputest.Require(t)
	const rows = 12_000
	for _, codec := range []cache.Codec{"none", "rank", "zipnn", "sleek", "ibp4"}[gputest.Few(0, 3):] {
		for _, rowBytes := range []int{64, 264} {
			if testing.Short() && (rowBytes == 64) != (codec == "rank") {
				continue
			}
			data := gputest.FloatRows(dtype.Float32, rows, rowBytes, 1)
			table, err := cache.FromBytes("x", dtype.Float32, data, rowBytes)
			if err != nil {
				t.Fatal(err)
			}
			c := newCache(t, cache.Options{Tables: []cache.Table{table}, Budget: int64(len(data) / 3), Codec: codec, Devices: cache.DeviceOptions{Backend: "cuda"}})
			loaded := cache.Functions(c)
			if loaded < 8 {
				t.Fatalf("%s: New has loaded %d kernels", codec, loaded)
			}
			gather := func(n int) {
				t.Helper()
				ids := make([]int64, n)
				for i := range ids {
					ids[i] = int64(i) * 7 % rows
				}
				out := make([]byte, n*rowBytes)
				if err := c.Gather(ctx, cache.Request{Rows: ids, Out: out}); err != nil {
					t.Fatal(err)
				}
				checkRows(t, data, rowBytes, ids, out)
				if now := cache.Functions(c); now != loaded {
					t.Errorf("%s, rows of %d bytes: a batch of %d rows has loaded %d kernels", codec, rowBytes, n, now-loaded)
					loaded = now
				}
			}
			gather(1)
			gather(9000)
			for _, serve := range []func() func(){cache.ServeApart, cache.ServeHitsFirst} {
				undo := serve()
				gather(700)
				undo()
			}
			if err := c.Update(ctx, 0, []int64{1, 2}, data[rowBytes:3*rowBytes]); err != nil {
				t.Fatal(err)
			}
			if err := c.Refresh(ctx); err != nil {
				t.Fatal(err)
			}
			settle(t, c)
			gather(100)
			c.Close()
		}
	}
}

// BenchmarkGPU_Adopt opens a cache over 16 GiB of adopted memory (with -short 64 MiB), page-locked before or by the cache. The time of restoring the
// rows between the turns does not count.
func BenchmarkGPU_Adopt(b *testing.B) {
	d := gputest.Open(b)
	const rowBytes = 512
	size := int64(gputest.Few(16<<30, 64<<20))
	memory, err := numa.Alloc(size, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer memory.Free()
	memory.Populate()
	mem := memory.Bytes()[:size]
	one := gputest.FloatRows(dtype.Float32, 1<<14, rowBytes, 1)
	for at := 0; at < len(mem); at += len(one) {
		copy(mem[at:], one)
	}
	for _, locked := range []bool{true, false} {
		for _, codec := range []cache.Codec{"none", "ibp4", "rank"} {
			b.Run(fmt.Sprintf("locked=%v/codec=%s", locked, codec), func(b *testing.B) {
				if locked {
					buffer, err := d.(device.HostAdopter).AdoptHost(mem, "benchmark")
					if err != nil {
						b.Fatal(err)
					}
					defer d.Free(buffer)
				}
				b.SetBytes(size)
				for range b.N {
					c := newCache(b, cache.Options{
						Tables: []cache.Table{adopt(b, "x", mem, rowBytes).RestoreOnClose()}, Budget: size / 10, Codec: codec,
						Devices: cache.DeviceOptions{Backend: "cuda"},
					})
					b.StopTimer()
					if err := c.Close(); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
			})
		}
	}
}

// BenchmarkGPU_NewEqualRows is BenchmarkNew_EqualRows with 10 M rows on a GPU.
func BenchmarkGPU_NewEqualRows(b *testing.B) {
	gputest.Require(b)
	benchmarkEqualRows(b, cache.BackendCUDA, 10_000_000)
}
