package demand

import (
	"cmp"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/tensorcache/tensorcache/bench/trace"
)

// The trace that simulations are compared on: Zipf(1.0), its IDs random 64-bit numbers.
const (
	zipfRequests = 20_000_000
	zipfIDs      = 1_000_000
	zipfCache    = 100_000
)

var zipfTrace = sync.OnceValue(func() []uint64 {
	r := rand.New(rand.NewPCG(1, 2))
	sums := make([]float64, zipfIDs)
	ids := make([]uint64, zipfIDs)
	sum := 0.0
	for i := range sums {
		sum += 1 / float64(i+1)
		sums[i], ids[i] = sum, r.Uint64()
	}
	trace := make([]uint64, zipfRequests)
	for i := range trace {
		at, _ := slices.BinarySearchFunc(sums, r.Float64()*sum, cmp.Compare)
		trace[i] = ids[min(at, zipfIDs-1)]
	}
	return trace
})

// memory reads a trace that is in memory.
type memory struct{ ids []uint64 }

func (m *memory) Read(dst []trace.Request) (int, error) {
	n := min(len(dst), len(m.ids))
	for i, id := range m.ids[:n] {
		dst[i] = trace.Request{ID: id, Next: trace.Unknown}
	}
	m.ids = m.ids[n:]
	if len(m.ids) == 0 {
		return n, io.EOF
	}
	return n, nil
}
func (m *memory) Close() error { return nil }

var zipfDense = sync.OnceValues(func() (*Trace, error) {
	t, err := Load("test", &memory{zipfTrace()})
	if err == nil {
		t.PrepareFuture()
	}
	return t, err
})

// BenchmarkRun is what each policy takes on one core, IDs being dense.
func BenchmarkRun(b *testing.B) {
	t, err := zipfDense()
	if err != nil {
		b.Fatal(err)
	}
	for _, p := range []string{"lru", "fifo", "sieve", "s3fifo", "arc", "2q", "lfu", "gdsf", "belady", "beladybypass", "static-optimal", "glru-lru", "glru-2q", "glru-arc", "tinylfu"} {
		b.Run("policy="+p, func(b *testing.B) {
			for b.Loop() {
				simulate(b, t, p, zipfCache)
			}
			b.ReportMetric(float64(b.N)*zipfRequests/b.Elapsed().Seconds()/1e6, "Mreq/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkLoad is the pass that makes IDs dense, and with LRU after it.
func BenchmarkLoad(b *testing.B) {
	ids := zipfTrace()
	for _, simulated := range []bool{false, true} {
		b.Run(map[bool]string{false: "policy=none", true: "policy=lru"}[simulated], func(b *testing.B) {
			for b.Loop() {
				t, err := Load("test", &memory{ids})
				if err != nil {
					b.Fatal(err)
				}
				if simulated {
					simulate(b, t, "lru", zipfCache)
				}
			}
			b.ReportMetric(float64(b.N)*zipfRequests/b.Elapsed().Seconds()/1e6, "Mreq/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}
