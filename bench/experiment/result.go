package experiment

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/internal/statjson"
)

// Result is what a run found. Its JSON form is what `cachebench run --json` prints.
type Result struct {
	// Partial says that the run was interrupted: it covers the batches that were measured, and compares with no other cache.
	Partial bool `json:"partial,omitempty"`
	Attachment
	Device   DeviceInfo   `json:"device"`
	Table    TableInfo    `json:"table"`
	Workload WorkloadInfo `json:"workload"`
	Cache    struct {
		Policy string `json:"policy"`
		Codec  string `json:"codec"`
		// CodecChoice is why "auto" picked it, with what was predicted of the others; not there if the codec was named.
		CodecChoice *registry.Choice `json:"codec_choice,omitempty"`
		// CompressionRatio is raw ÷ stored bytes of the whole table.
		CompressionRatio float64 `json:"compression_ratio"`
		MemoryInfo
		RowsCached int64 `json:"rows_cached"`
		// RowsEqual are rows of the table that were found to be equal to others, SlotsSaved the cached rows that share the slot of an equal one.
		RowsEqual  int64 `json:"rows_equal,omitempty"`
		SlotsSaved int64 `json:"slots_saved,omitempty"`
	} `json:"cache"`
	// Resident is there if the table was resident: --resident. HostBytesMoved of Results is then what was read from overflow places.
	Resident *ResidentInfo `json:"resident,omitempty"`
	// Tiers is there if the table lies in pages. Its counters cover the measured batches only.
	Tiers *statjson.Tiers `json:"tiers,omitempty"`
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
	// PredictedGPU is there for caches of one device.
	PredictedGPU *PredictedGPU `json:"predicted_gpu,omitempty"`
	// OtherBudgets is of caches of one device that stay as they are filled; empty for others, and where the whole table is cached.
	OtherBudgets []BudgetHits `json:"other_budgets"`
	// Online is there if the caches followed the workload.
	Online *OnlineResult `json:"online,omitempty"`
	Verification
}

// MemoryInfo is the memory that a cache takes, in bytes summed over devices. Codec bytes count once and lie outside the budget.
type MemoryInfo struct {
	BudgetBytes   int64 `json:"budget_bytes"`
	MetadataBytes int64 `json:"metadata_bytes"`
	PayloadBytes  int64 `json:"payload_bytes"`
	CodecBytes    int64 `json:"codec_bytes"`
	IndexBytes    int64 `json:"index_bytes"`
	HostBytes     int64 `json:"host_bytes"`
}

func memoryInfo(s *cache.Stats) MemoryInfo {
	return MemoryInfo{s.BudgetBytes, s.MetadataBytes, s.PayloadBytes, s.CodecBytes, s.IndexBytes, s.HostBytes}
}

// Verification is what comparing gathered rows with their source found.
type Verification struct {
	// VerifiedRows were compared; Mismatches of them differed, by more than VerifiedBound if that is not 0.
	VerifiedRows int64 `json:"verified_rows"`
	Mismatches   int64 `json:"mismatches"`
	// VerifiedBound is the most by which an element may differ: of a lossy codec.
	VerifiedBound float64 `json:"verified_bound,omitempty"`
}

// DeviceInfo is what ran.
type DeviceInfo struct {
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	Count int    `json:"count"`
}

// WorkloadInfo is the workload of a run.
type WorkloadInfo struct {
	Kind string `json:"kind"`
	// Generated says how the lookups were generated, nil if a file has them.
	Generated *GeneratedLookups `json:"generated,omitempty"`
	// Batches and IDs are those measured; TrainingBatches those the policy learned from.
	Batches         int   `json:"batches"`
	IDs             int64 `json:"ids"`
	TrainingBatches int   `json:"training_batches"`
	// PlannedBatches is there in a partial result: how many were to be measured.
	PlannedBatches int `json:"planned_batches,omitempty"`
	// TrainingMeasured says that training batches are among the measured ones.
	TrainingMeasured bool `json:"training_measured"`
	// Prefetch is how many batches ahead rows were prefetched, 0 if they were not.
	Prefetch int `json:"prefetch,omitempty"`
	// Cold says that the cache was empty at first, and the training batches were run through it.
	Cold bool `json:"cold,omitempty"`
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

// newSpeed sums up the times of the batches, which looked up so many rows of so many bytes in all.
func newSpeed(times []time.Duration, lookups, bytes int64) Speed {
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
	seconds := max(sum.Seconds(), 1e-9)
	return Speed{
		LookupsPerSecond: float64(lookups) / seconds, OutputGBPerSecond: float64(bytes) / seconds / 1e9,
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
