//go:build cuda && linux

package gpu

import (
	"fmt"
	"slices"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/internal/numa"
)

// largeBudget is the share of the large table's bytes that is cached.
const largeBudget = 64

// large measures misses of a table whose pages the device's address translation does not reach, beside plain zero-copy of
// the same rows in order.
func (r *runner) large() error {
	// The rows uncompressed, for the baseline and as the source, and a cache's host tier.
	const slack = 4 << 30
	need := 2*r.o.LargeTableBytes + r.o.LargeTableBytes/largeBudget + slack
	if have, err := numa.Available(); err != nil {
		return err
	} else if have < need {
		r.skip("gather-misses-large", "host memory (%d bytes available) must be %d for two tables of %d", have, need, r.o.LargeTableBytes)
		return nil
	}
	host, err := r.d.AllocHost(r.o.LargeTableBytes, "large benchmark table")
	if err != nil {
		return err
	}
	defer r.d.Free(host)
	normals().fill(host.Bytes())
	for _, rowBytes := range LargeRows {
		if !slices.Contains(r.o.RowBytes, rowBytes) {
			continue
		}
		for _, threads := range r.o.HostThreads {
			o := cache.Options{Budget: r.o.LargeTableBytes / largeBudget}
			o.HostThreads = threads
			if err := r.largeMisses(host, rowBytes, threads, o); err != nil {
				return fmt.Errorf("rows of %d bytes, %d host threads: %w", rowBytes, threads, err)
			}
			r.free()
		}
	}
	return nil
}

func (r *runner) largeMisses(host device.Buffer, rowBytes, threads int, o cache.Options) error {
	s, err := r.serve(host.Bytes(), rowBytes, o)
	if err != nil {
		return err
	}
	defer s.cache.Close()
	numbers := make([][]int64, sets)
	for i := range numbers {
		numbers[i] = powerLawRows(r.o.Batch, s.cached, s.rows, uint64(i))
	}
	t, err := s.upload(numbers)
	if err != nil {
		return err
	}
	out, err := s.alloc(int64(r.o.Batch) * int64(rowBytes))
	if err != nil {
		return err
	}
	unsorted, sorted, err := s.zeroCopy(t, host, out)
	if err != nil {
		return err
	}
	if _, err := s.gatherAfter(learningRuns, func() error { return nil }, t, out); err != nil {
		return err
	}
	own, err := s.gather(t, out)
	if err != nil {
		return err
	}
	stats, err := s.cache.Stats()
	if err != nil {
		return err
	}
	how := stats.Tables[0].MissStrategy[0]
	x := s.result("gather-misses-large", r.o.Batch)
	x.Value, x.Baseline, x.BaselineValue, x.HostThreads = s.speed(t, own), SortedZeroCopy+", uncompressed", sorted, threads
	x.Further = []Further{{UnsortedZeroCopy, unsorted}}
	x.Detail = fmt.Sprintf("%d host threads, %s, %.2f of the rows by the host; power law of exponent 1, the tail, scattered", threads, how.Strategy, how.Fraction)
	s.add(x)
	return nil
}

// learningRuns is how many batches come before the measured ones: a cache may learn how to share a batch with the host.
const learningRuns = 100
