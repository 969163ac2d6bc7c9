//go:build unix

package cache_test

import (
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
)

// processorTime returns the processor time that the process has used.
func processorTime(b testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkTelemetry_Paired runs each batch on two caches, with and without telemetry. It reports the median difference of the times, and
// the mean difference of processor time, which other programs disturb less. Batches are those of cachebench's default run: 26,400 rows of
// 512 bytes.
func BenchmarkTelemetry_Paired(b *testing.B) {
	data := normalTable(50_000, 128, 1)
	open := func(o cache.TelemetryOptions) *cache.Cache {
		return newCache(b, cache.Options{
			Tables: []cache.Table{fromBytes(b, "x", data, 512)}, Budget: int64(len(data) / 20), Devices: cache.DeviceOptions{Backend: "host"}, Seed: 1, Telemetry: o,
			Admission: cache.AdmissionOptions{Policy: admission.NewFrequency(), Training: batches(0, zipf(rand.New(rand.NewPCG(1, 1)), 50_000, 200_000))},
		})
	}
	plain := open(noop())
	out := make([]byte, 26_400*512)
	for _, with := range []struct {
		name    string
		options cache.TelemetryOptions
		size    int
		apart   bool // untraced batches have a launch a stage too
	}{
		{"none against itself", noop(), 26_400, false}, {"1 %", sdk(0.01), 26_400, false}, {"all", sdk(1), 26_400, false},
		{"all, 1000 rows", sdk(1), 1000, false}, {"all, 1000 rows, stages apart in both", sdk(1), 1000, true},
	} {
		b.Run(with.name, func(b *testing.B) {
			if with.apart {
				defer cache.ServeApart()()
			}
			observed := open(with.options)
			r := rand.New(rand.NewPCG(2, 2))
			took := func(c *cache.Cache, ids []int64) (wall, cpu time.Duration) {
				begun, busy := time.Now(), processorTime(b)
				if err := c.Gather(ctx, cache.Request{Rows: ids, Out: out[:len(ids)*512]}); err != nil {
					b.Fatal(err)
				}
				return time.Since(begun), processorTime(b) - busy
			}
			var more, base []float64
			var cpuMore, cpuBase time.Duration
			for i := 0; b.Loop(); i++ {
				ids := zipf(r, 50_000, with.size)
				var a, o, cpuA, cpuO time.Duration
				if i%2 == 0 {
					a, cpuA = took(plain, ids)
				}
				o, cpuO = took(observed, ids)
				if i%2 != 0 {
					a, cpuA = took(plain, ids)
				}
				cpuMore, cpuBase = cpuMore+cpuO-cpuA, cpuBase+cpuA
				more, base = append(more, float64(o-a)), append(base, float64(a))
			}
			slices.Sort(more)
			slices.Sort(base)
			m, at := more[len(more)/2], base[len(base)/2]
			b.ReportMetric(m/1e3, "µs-more")
			b.ReportMetric(at/1e3, "µs-untraced")
			b.ReportMetric(100*m/at, "%-more")
			b.ReportMetric(float64(cpuMore)/1e3/float64(len(more)), "cpu-µs-more")
			b.ReportMetric(100*float64(cpuMore)/float64(cpuBase), "cpu-%-more")
		})
	}
}
