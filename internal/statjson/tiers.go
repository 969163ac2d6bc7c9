package statjson

import "github.com/tensorcache/tensorcache/cache"

// Tiers say what of a table of pages lies in host memory, and what was read from below it.
type Tiers struct {
	Host     HostTier `json:"host"`
	Cold     ColdTier `json:"cold"`
	Prefetch Prefetch `json:"prefetch"`
	Log      Log      `json:"log"`
}

// HostTier has the rows in host memory and the bytes of their slots, of capacity bytes. HostMemory is all that the tier takes, its index included.
type HostTier struct {
	HostRows     int64 `json:"rows"`
	HostBytes    int64 `json:"bytes"`
	HostCapacity int64 `json:"capacity"`
	HostMemory   int64 `json:"memory"`
	PromotedRows int64 `json:"promoted_rows"`
	DemotedRows  int64 `json:"demoted_rows"`
}

// ColdTier counts what was read from below the host tier, for batches, refresh cycles and prefetches. AbsentRows of the misses were not in the host tier, and
// FailedRows of the rows could not be read. MeanMillis is the mean time of a read. Stores says what came from each store. Restored is set if
// the manifest of the table's directory was missing or damaged, and was restored from the store behind it.
type ColdTier struct {
	AbsentRows int64   `json:"absent_rows"`
	FailedRows int64   `json:"failed_rows"`
	RowsRead   int64   `json:"rows_read"`
	PagesRead  int64   `json:"pages_read"`
	BytesRead  int64   `json:"bytes_read"`
	Reads      int64   `json:"reads"`
	MeanMillis float64 `json:"mean_ms"`
	Stores     []Store `json:"stores,omitempty"`
	Restored   bool    `json:"restored,omitempty"`
}

// Store counts what was read from one store of pages, and pages that it did not deliver or had damaged. Fault says why the latest of these failed, with its number.
type Store struct {
	Name        string  `json:"name"`
	Reads       int64   `json:"reads"`
	PagesRead   int64   `json:"pages_read"`
	BytesRead   int64   `json:"bytes_read"`
	FailedPages int64   `json:"failed_pages"`
	MeanMillis  float64 `json:"mean_ms"`
	Fault       string  `json:"fault,omitempty"`
}

// Prefetch counts prefetched rows: those that were in memory when a batch asked for them, those that left unused, those for which there was no room, and those that
// a batch took while they were being read.
type Prefetch struct {
	PrefetchedRows int64 `json:"rows"`
	UsedRows       int64 `json:"used_rows"`
	UnusedRows     int64 `json:"unused_rows"`
	DroppedRows    int64 `json:"dropped_rows"`
	FlightRows     int64 `json:"taken_rows"`
}

// Log counts updates: rows found in the log and the mean time of a read there, bytes of updated rows, and bytes written for them. HeldRows
// are in the log and not in the pages, in files of HeldBytes. FailedMerges is how often the log could not be merged or compacted, and MergeWaiting is set
// while a merge waits for the store of the pages.
type Log struct {
	LogRows            int64   `json:"rows"`
	UpdateBytes        int64   `json:"bytes"`
	UpdateBytesWritten int64   `json:"bytes_written"`
	MeanMillis         float64 `json:"mean_ms"`
	HeldRows           int64   `json:"held_rows"`
	HeldBytes          int64   `json:"held_bytes"`
	FailedMerges       int64   `json:"failed_merges"`
	MergeWaiting       bool    `json:"merge_waiting"`
}

// TiersOf returns the JSON form of a table's tiers.
func TiersOf(t *cache.TierStats) *Tiers {
	r := &Tiers{Cold: ColdTier{MeanMillis: mean(t.ReadNanos, t.Reads)}, Log: Log{MeanMillis: mean(t.LogNanos, t.LogReads)}}
	for _, part := range []any{&r.Host, &r.Cold, &r.Prefetch, &r.Log} {
		set(part, t)
	}
	for i := range t.Stores {
		s := Store{MeanMillis: mean(t.Stores[i].Nanos, t.Stores[i].Reads)}
		set(&s, &t.Stores[i])
		r.Cold.Stores = append(r.Cold.Stores, s)
	}
	return r
}

// mean returns milliseconds.
func mean(nanos, n int64) float64 {
	if n == 0 {
		return 0
	}
	return float64(nanos) / float64(n) / 1e6
}
