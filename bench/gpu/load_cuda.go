//go:build cuda && linux

package gpu

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/tensorcache/tensorcache/internal/dtype"
	"github.com/tensorcache/tensorcache/transfer"
)

// loadRuns is how often a table is loaded, after a smaller one that warms up: most of the time goes into page-locking.
const loadRuns = 3

// loads measures mask search and compression of a table that lies in page-locked memory, by one codec: what choosing among all of them
// costs besides is the host's work.
func (r *runner) loads() error {
	table, err := r.normalRows()
	if err != nil {
		return err
	}
	limits, err := r.limits()
	if err != nil {
		return err
	}
	for _, rowBytes := range []int{512, 4096} {
		if !slices.Contains(r.o.RowBytes, rowBytes) {
			continue
		}
		var t transfer.Timings // of the last load
		load := func(bytes []byte, onHost bool) (seconds float64, codec string, ratio float64, err error) {
			t = transfer.Timings{} // loads add to it
			tier, err := transfer.Load(r.d, transfer.SourceOf(whole(bytes, rowBytes), rowBytes), transfer.Options{
				Codec: codecName, DType: dtype.Float32, Seed: seed, Timings: &t, OnHost: onHost,
			})
			if err != nil {
				return 0, "", 0, err
			}
			defer tier.Close()
			codec = "none"
			if tier.Codec() != nil {
				codec = tier.Codec().Name()
			}
			total := tier.Totals()
			return (t.Train + t.Encode).Seconds(), codec, float64(total.RawBytes) / float64(total.StoredBytes), nil
		}
		bytes := whole(table.host.Bytes(), rowBytes)
		if _, _, _, err := load(bytes[:minTableBytes], false); err != nil {
			return err
		}
		var times []float64
		var codec string
		var ratio float64
		for range loadRuns {
			var took float64
			if took, codec, ratio, err = load(bytes, false); err != nil {
				return err
			}
			times = append(times, took)
		}
		detail := fmt.Sprintf("median of %d; the last: train %.1f ms, encode %.1f ms", loadRuns, t.Train.Seconds()*1e3, t.Encode.Seconds()*1e3)
		onHost, _, _, err := load(bytes, true)
		if err != nil {
			return err
		}
		size := float64(len(bytes)) / 1e9
		r.add(Result{
			Case: "load", RowBytes: rowBytes, Codec: codec, TableBytes: int64(len(bytes)), Batch: 1, Unit: "GB/s",
			Value: size / median(times), Baseline: "link to device", BaselineValue: limits.toDevice,
			Compression: ratio, Detail: detail,
			Further: []Further{{fmt.Sprintf("the host's %d processors", runtime.GOMAXPROCS(0)), size / onHost}},
		})
	}
	return nil
}
