package experiment

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/codec/registry"
)

// Result is what a run found. Its JSON form is what `cachebench run --json` prints.
type Result struct {
	Device struct {
		Kind  string `json:"kind"`
		Name  string `json:"name"`
		Count int    `json:"count"`
	} `json:"device"`
	Table    TableInfo `json:"table"`
	Workload struct {
		Kind string `json:"kind"`
		// Batches and IDs are those measured; TrainingBatches those the policy learned from.
		Batches         int   `json:"batches"`
		IDs             int64 `json:"ids"`
		TrainingBatches int   `json:"training_batches"`
		// TrainingMeasured says that training batches are among the measured ones.
		TrainingMeasured bool `json:"training_measured"`
		// Cold says that the cache was empty at first, and the training batches were run through it.
		Cold bool `json:"cold,omitempty"`
	} `json:"workload"`
	Cache struct {
		Policy string `json:"policy"`
		Codec  string `json:"codec"`
		// CodecChoice is why "auto" picked it, with what was predicted of the others; not there if the codec was named.
		CodecChoice *registry.Choice `json:"codec_choice,omitempty"`
		// CompressionRatio is raw ÷ stored bytes of the whole table.
		CompressionRatio float64 `json:"compression_ratio"`
		// Bytes are summed over devices; codec bytes count once and lie outside the budget.
		BudgetBytes   int64 `json:"budget_bytes"`
		MetadataBytes int64 `json:"metadata_bytes"`
		PayloadBytes  int64 `json:"payload_bytes"`
		CodecBytes    int64 `json:"codec_bytes"`
		IndexBytes    int64 `json:"index_bytes"`
		HostBytes     int64 `json:"host_bytes"`
		RowsCached    int64 `json:"rows_cached"`
	} `json:"cache"`
	// HostMemory is there if memory nodes of the host were chosen, or there was a choice.
	HostMemory *cache.HostMemory `json:"host_memory,omitempty"`
	// Placement is there if the cache spanned several devices.
	Placement *Placed `json:"placement,omitempty"`
	// Results cover the measured batches only.
	Results struct {
		Lookups      int64   `json:"lookups"`
		Hits         int64   `json:"hits"`
		Misses       int64   `json:"misses"`
		HitRatio     float64 `json:"hit_ratio"`
		ByteHitRatio float64 `json:"byte_hit_ratio"`
		// HitsBySlab are the hits read from the slab of the device that served the batch, and from another's.
		HitsBySlab struct {
			Local int64 `json:"local"`
			Peer  int64 `json:"peer"`
		} `json:"hits_by_slab"`
		HostBytesRaw   int64 `json:"host_bytes_raw"`
		HostBytesMoved int64 `json:"host_bytes_moved"`
		Speed
	} `json:"results"`
	Uncompressed   Uncompressed     `json:"uncompressed"`
	MissesByReason map[string]int64 `json:"misses_by_reason"`
	// Online is there if the caches followed the workload.
	Online *OnlineResult `json:"online,omitempty"`
	// VerifiedRows were compared with their source; Mismatches of them differed.
	VerifiedRows int64 `json:"verified_rows"`
	Mismatches   int64 `json:"mismatches"`
}

// TableInfo is the table of a run or a plan, after the cast.
type TableInfo struct {
	Name     string `json:"name"`
	Rows     int64  `json:"rows"`
	RowBytes int    `json:"row_bytes"`
	DType    string `json:"dtype"`
}

// Uncompressed is a cache of the same budget, policy, seed and batches without a codec.
type Uncompressed struct {
	RowsCached     int64   `json:"rows_cached"`
	HitRatio       float64 `json:"hit_ratio"`
	HostBytesMoved int64   `json:"host_bytes_moved"`
	Speed
}

// Speed is how fast the measured batches went, by the clock of the caller.
type Speed struct {
	LookupsPerSecond  float64 `json:"lookups_per_second"`
	OutputGBPerSecond float64 `json:"output_gb_per_second"`
	BatchLatency      Latency `json:"batch_latency_ms"`
}

// Latency is percentiles of the batches' times, in milliseconds.
type Latency struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

// newSpeed sums up the times of the batches, which looked up so many rows in all.
func newSpeed(times []time.Duration, lookups int64, rowBytes int) Speed {
	if len(times) == 0 {
		return Speed{}
	}
	var sum time.Duration
	for _, t := range times {
		sum += t
	}
	slices.SortFunc(times, cmp.Compare)
	percentile := func(p float64) float64 { // nearest rank
		i := int(math.Ceil(p/100*float64(len(times)))) - 1
		return float64(times[max(i, 0)]) / float64(time.Millisecond)
	}
	perSecond := float64(lookups) / max(sum.Seconds(), 1e-9)
	return Speed{
		LookupsPerSecond: perSecond, OutputGBPerSecond: perSecond * float64(rowBytes) / 1e9,
		BatchLatency: Latency{percentile(50), percentile(95), percentile(99)},
	}
}

// ratio is a ÷ b, 0 for nothing of nothing.
func ratio(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}
