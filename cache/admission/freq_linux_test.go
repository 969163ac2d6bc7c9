package admission

import (
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tensorcache/tensorcache/hashmap"
)

// BenchmarkTraining is what opening a cache of 3 of 30 million rows asks of freq: 40 batches of 223,000 rows, and one Rank.
func BenchmarkTraining(b *testing.B) {
	const rows, batches, batch = 30_000_000, 40, 223_000
	draw := zipf(rand.New(rand.NewPCG(1, 2)), rows, 0)
	all := make([]int64, batches*batch)
	for i := range all {
		all[i] = int64(hashmap.Hash(uint64(draw())) % rows)
	}
	lengths := make([]int32, rows)
	for i := range lengths {
		lengths[i] = 400 + int32(i%100)
	}
	for range b.N {
		p := NewFrequency()
		problem := problem([]int64{rows}, nil)
		problem.SlotBytes = func(key uint64) int { return int(lengths[key]+15) &^ 15 }
		problem.StoredBytes = func(key uint64) int { return int(lengths[key]) }
		problem.Capacity = rows / 10 * 512
		begun := cpuSeconds(b)
		start(b, p, problem)
		started := cpuSeconds(b)
		for i := range batches {
			p.Observe(0, all[i*batch:][:batch])
		}
		observed := cpuSeconds(b)
		n := 0
		for range p.Rank() {
			n++
		}
		b.ReportMetric((started-begun)*1e3, "cpu-ms-start")
		b.ReportMetric((observed-started)*1e9/(batches*batch), "cpu-ns/access")
		b.ReportMetric((cpuSeconds(b)-observed)*1e9/float64(n), "cpu-ns/ranked")
		p.Close()
	}
}

// cpuSeconds is the processor time that the process has taken.
func cpuSeconds(b *testing.B) float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Skip(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
