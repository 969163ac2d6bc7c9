package experiment

import (
	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/bench/predict"
	"github.com/tensorcache/tensorcache/codec/registry"
)

// PredictedGPU is the time that a GPU is predicted to take for the mean batch of a run, in milliseconds: predict.Model.
type PredictedGPU struct {
	// Device is the GPU whose measured figures the predictions are made from.
	Device string `json:"device"`
	// BatchMS is of the run's cache, UncompressedMS of the uncompressed one, and UncachedMS of reading all rows from the host.
	BatchMS        float64 `json:"batch_ms"`
	UncompressedMS float64 `json:"uncompressed_batch_ms"`
	UncachedMS     float64 `json:"uncached_batch_ms"`
}

// add adds the mean of so many Gathers of a table that is compressed so many times, by the cache and by the uncompressed one.
func (p *PredictedGPU) add(model *predict.Model, t *dataset.Table, codec string, compression, batches float64, cached, plain Served) {
	lookups := float64(cached.Lookups) / batches
	ms := func(codec string, compression float64, s Served) float64 {
		return 1e3 * model.Seconds(predict.Batch{
			RowBytes: t.RowBytes, Codec: codec, DType: t.DType, Lookups: lookups, Hits: float64(s.Hits) / batches, Stored: 1 / compression, MissBytes: float64(s.HostBytesMoved) / batches,
			UncachedBytes: float64(t.Rows-int(s.RowsCached)) * float64(t.RowBytes), // rows have their places, whatever they are stored as
			TierBytes:     float64(t.Bytes()), HostThreads: predict.HostThreads,
		})
	}
	p.BatchMS += ms(codec, compression, cached)
	p.UncompressedMS += ms(registry.None, 1, plain)
	p.UncachedMS += 1e3 * model.Uncached(predict.Uncached{Rows: lookups, RowBytes: t.RowBytes, TableBytes: float64(t.Bytes()), Sorted: true})
}

// predict fills in Result.PredictedGPU, unless the cache spans several devices or has a codec that no figures are of. REQUIRES: all else
// is filled in.
func (r *run) predict(res *Result) error {
	model, err := predict.Reference()
	if err != nil || res.Device.Count != 1 || !model.Knows(res.Cache.Codec) {
		return err
	}
	q, u := &res.Results, &res.Uncompressed
	res.PredictedGPU = &PredictedGPU{Device: model.Device}
	res.PredictedGPU.add(model, r.table, res.Cache.Codec, res.Cache.CompressionRatio, float64(res.Workload.Batches),
		Served{RowsCached: res.Cache.RowsCached, Lookups: q.Lookups, Hits: q.Hits, HostBytesMoved: q.HostBytesMoved},
		Served{RowsCached: u.RowsCached, Lookups: q.Lookups, Hits: int64(u.HitRatio*float64(q.Lookups) + 0.5), HostBytesMoved: u.HostBytesMoved})
	return nil
}
