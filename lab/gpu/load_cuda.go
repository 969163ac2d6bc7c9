//go:build cuda && linux

package gpu

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/transfer"
)

// loadRuns is how often a table is loaded, after a smaller one that warms up: most of the time goes into page-locking.
const loadRuns = 3

// loads measures mask search and compression of a table in page-locked memory by one codec.
func (r *runner) loads() {
	source := r.normalRows().host.Bytes()
	limits := r.limits()
	for _, rowBytes := range []int{512, 4096} {
		if !slices.Contains(r.o.RowBytes, rowBytes) {
			continue
		}
		var t transfer.Timings // of the last load
		codec, ratio := "none", 0.0
		load := func(bytes []byte, onHost bool) (seconds float64) {
			t = transfer.Timings{} // loads add to it
			tier := get(transfer.Load(r.d, transfer.SourceOf(whole(bytes, rowBytes), rowBytes), transfer.Options{
				Codec: codecName, DType: dtype.Float32, Seed: seed, Timings: &t, OnHost: onHost,
			}))
			defer tier.Close()
			if tier.Codec() != nil {
				codec = tier.Codec().Name()
			}
			total := tier.Totals()
			ratio = float64(total.RawBytes) / float64(total.StoredBytes)
			return (t.Train + t.Encode).Seconds()
		}
		bytes := whole(source, rowBytes)
		load(bytes[:minTableBytes], false)
		var times []float64
		for range loadRuns {
			times = append(times, load(bytes, false))
		}
		size := float64(len(bytes)) / 1e9
		x := Result{
			Case: "load", RowBytes: rowBytes, Codec: codec, TableBytes: int64(len(bytes)), Batch: 1, Unit: "GB/s",
			Value: size / median(times), Baseline: "link to device", BaselineValue: limits.toDevice, Compression: ratio,
			Detail: fmt.Sprintf("median of %d; the last: train %.1f ms, encode %.1f ms", loadRuns, t.Train.Seconds()*1e3, t.Encode.Seconds()*1e3),
		}
		x.Further = []Further{{Name: fmt.Sprintf("the host's %d processors", runtime.GOMAXPROCS(0)), Value: size / load(bytes, true)}}
		r.add(x)
	}
}
