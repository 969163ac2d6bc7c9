package experiment

import (
	"github.com/tensorcache/tensorcache/bench/gpu"
	"github.com/tensorcache/tensorcache/codec/registry"
)

// PredictedGPU is the time that a GPU is predicted to take for the mean batch of a run, in milliseconds: gpu.Model.
type PredictedGPU struct {
	// Device is the GPU whose measured figures the predictions are made from.
	Device string `json:"device"`
	// BatchMS is of the run's cache, UncompressedMS of the uncompressed one, and UncachedMS of reading all rows from the host.
	BatchMS        float64 `json:"batch_ms"`
	UncompressedMS float64 `json:"uncompressed_batch_ms"`
	UncachedMS     float64 `json:"uncached_batch_ms"`
}

// predict fills in Result.PredictedGPU, unless the cache spans several devices or has a codec that no figures are of. REQUIRES: all else
// is filled in.
func (r *run) predict(res *Result) error {
	model, err := gpu.Reference()
	if err != nil {
		return err
	}
	if res.Device.Count != 1 || !model.Knows(res.Cache.Codec) || res.Workload.Batches == 0 {
		return nil
	}
	batches := float64(res.Workload.Batches)
	b := gpu.Batch{RowBytes: r.table.RowBytes, DType: r.table.DType, Lookups: float64(res.Results.Lookups) / batches}
	seconds := func(codec string, hitRatio float64, moved, cached, host int64) float64 {
		b.Codec, b.Hits, b.MissBytes = codec, b.Lookups*hitRatio, float64(moved)/batches
		b.UncachedBytes = float64(host) * (1 - ratio(cached, res.Table.Rows))
		return model.Seconds(b)
	}
	raw := res.Table.Rows * int64(res.Table.RowBytes)
	c, u := &res.Cache, &res.Uncompressed
	res.PredictedGPU = &PredictedGPU{
		Device:         model.Device,
		BatchMS:        1e3 * seconds(c.Codec, res.Results.HitRatio, res.Results.HostBytesMoved, c.RowsCached, c.HostBytes),
		UncompressedMS: 1e3 * seconds(registry.None, u.HitRatio, u.HostBytesMoved, u.RowsCached, raw),
		UncachedMS:     1e3 * model.Uncached(b.Lookups, r.table.RowBytes),
	}
	return nil
}
