//go:build cuda && linux

package gpu

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tensorcache/tensorcache/transfer"
)

// loadRuns is how often a load is timed: each allocates and fills a table of page-locked memory, which takes a second.
const loadRuns = 3

// loads measures mask search and compression of a table that lies in page-locked memory, beside a copy to the device.
func (r *runner) loads() error {
	link, err := r.link()
	if err != nil {
		return err
	}
	for _, rowBytes := range r.o.RowBytes {
		var loads []transfer.Timings
		var bytes int64
		name := "none"
		for range 1 + loadRuns { // the first compiles kernels
			var t transfer.Timings
			tier, err := transfer.Load(r.d, r.source(rowBytes), transfer.Options{Codec: "auto", Seed: 1, Timings: &t})
			if err != nil {
				return err
			}
			bytes = tier.Rows() * int64(rowBytes)
			if tier.Codec() != nil {
				name = tier.Codec().Name()
			}
			tier.Close()
			loads = append(loads, t)
		}
		loads = loads[1:]
		slices.SortFunc(loads, func(a, b transfer.Timings) int { return int(a.Train + a.Encode - b.Train - b.Encode) })
		t := loads[len(loads)/2]
		r.add(Result{
			Case: "load", RowBytes: rowBytes, Codec: name, TableBytes: bytes, Batch: 1, Unit: "GB/s",
			Value:    float64(bytes) / 1e9 / (t.Train + t.Encode).Seconds(),
			Baseline: fmt.Sprintf("page-locked copy of 1 GiB; train %.1f ms, encode %.1f ms", t.Train.Seconds()*1e3, t.Encode.Seconds()*1e3), BaselineValue: link,
		})
	}
	return nil
}

// link returns the GB/s of copies from page-locked memory to the device's.
func (r *runner) link() (float64, error) {
	const bytes = 1 << 30
	host, err := r.d.AllocHost(bytes, "benchmark")
	if err != nil {
		return 0, err
	}
	defer r.d.Free(host)
	dst, err := r.d.Alloc(bytes, "benchmark")
	if err != nil {
		return 0, err
	}
	defer r.d.Free(dst)
	took, err := r.time(func(int) error { return r.stream.Copy(dst, host) })
	return bytes / took / 1e9, errors.Join(err, r.stream.Synchronize())
}
