//go:build cuda && linux

package gpu

import (
	"fmt"
	"slices"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/numa"
)

const (
	// largeBudget is the share of the large table's bytes that is cached: 1/64.
	largeBudget = 64
	// learningRuns is how many batches run before the measured ones: the cache learns how to share a batch with the host.
	learningRuns = 100
)

// large measures misses of a table whose pages the device's address translation does not reach, beside plain zero-copy of the same rows in
// order.
func (r *runner) large() {
	const slack = 4 << 30
	need := 2*r.o.LargeTableBytes + r.o.LargeTableBytes/largeBudget + slack // the rows, for the baseline and as the source, and a host tier
	if have := get(numa.Available()); have < need {
		r.skip("gather-misses-large", "host memory (%d bytes available) must be %d for two tables of %d", have, need, r.o.LargeTableBytes)
		return
	}
	host := get(r.d.AllocHost(r.o.LargeTableBytes, "large benchmark table"))
	defer r.d.Free(host)
	normals(host.Size()).fill(host.Bytes())
	for _, rowBytes := range LargeRows {
		if !slices.Contains(r.o.RowBytes, rowBytes) {
			continue
		}
		for _, threads := range r.o.HostThreads {
			if err := try(func() { r.largeMisses(host, rowBytes, threads) }); err != nil {
				must(fmt.Errorf("rows of %d bytes, %d host threads: %w", rowBytes, threads, err))
			}
			r.free()
		}
	}
}

func (r *runner) largeMisses(host device.Buffer, rowBytes, threads int) {
	o := cache.Options{Budget: r.o.LargeTableBytes / largeBudget}
	o.Host.Threads = threads
	s := r.serve(host.Bytes(), rowBytes, o)
	defer s.cache.Close()
	t := s.batches(func(set uint64) []int64 { return powerLawRows(r.o.Batch, s.cached, s.rows, set) })
	out := s.alloc(int64(r.o.Batch) * int64(rowBytes))
	unsorted, sorted := s.zeroCopy(t, host, out)
	s.timeGathers(learningRuns, nil, t, out)
	own := s.timeGathers(s.o.Runs, nil, t, out)
	how := get(s.cache.Stats()).Tables[0].MissStrategy[0]
	x := s.result("gather-misses-large", r.o.Batch)
	x.Value, x.Baseline, x.BaselineValue, x.HostThreads = s.speed(t, own), SortedZeroCopy+", uncompressed", sorted, threads
	x.Further = []Further{{Name: UnsortedZeroCopy, Value: unsorted}}
	x.Detail = fmt.Sprintf("%d host threads, %s, %.2f of the rows by the host; power law of exponent 1, the tail, scattered", threads, how.Strategy, how.Fraction)
	s.add(x)
}
