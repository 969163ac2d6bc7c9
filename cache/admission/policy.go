// Package admission ranks rows: a [Policy] decides, on the host, which rows the cache admits to slabs first.
//
// A Policy belongs to one cache, which calls its methods from one goroutine at a time: Start once, Observe for each batch
// of training accesses and for sampled accesses while the cache is open, Rank for every refresh, and Close. Rows are
// named by the keys of package hashmap. Each policy is one file of this package and registers itself by name: see [Lookup].
package admission

import (
	"iter"

	"github.com/tensorcache/tensorcache/hashmap"
)

// Policy ranks rows.
type Policy interface {
	// Name returns the policy's name, as flags take it.
	Name() string
	// Start gives the policy the tables and the capacity. It is called once, before all other methods except Name and Close.
	Start(Problem) error
	// Observe counts a batch of accesses, from training or sampled. Duplicates count. Observe does not keep the slice rows.
	Observe(table int, rows []int64)
	// Rank yields the keys of the rows to admit, each once, the best first. The cache admits as long a prefix as fits. It
	// counts misses of the other rows as rejected, and of rows that are not yielded as cold. Each call ranks anew. The
	// sequence is valid until the next call of any method.
	Rank() iter.Seq[uint64]
	// Resize changes Problem.Capacity, in bytes.
	Resize(capacity int64)
	// Close releases the policy's memory. It may be called at any time and more than once. After it only Name and Close may
	// be called.
	Close()
}

// Weigher is a Policy that accepts accesses which stand for several, so that kinds of accesses can be sampled at different shares: misses,
// which say which rows to admit, more than hits, of which there are many of the same rows.
type Weigher interface {
	// ObserveWeighted is Observe of accesses each of which counts as weight accesses, 1 or more.
	ObserveWeighted(table int, rows []int64, weight float64)
}

// Explainer is a Policy that can report its estimate of one row, for telemetry of misses.
type Explainer interface {
	// Explain returns the estimate. It follows the rules of Observe for callers, and changes nothing.
	Explain(key uint64) Estimate
}

// Estimate is a policy's estimate of a row. Scores of different policies do not compare.
type Estimate struct {
	// Frequency is the number of remembered accesses to the row. Old accesses may count for less than one.
	Frequency float64
	// Score is the row's current score. Victim is the lowest score that fit the capacity at the last Rank, 0 if all rows fit.
	Score, Victim float64
	// Rejected says that the policy knows the row and ranked it below the rows that fit.
	Rejected bool
}

// Problem describes the tables and the space that a policy ranks rows for.
type Problem struct {
	// Rows is the number of rows of each table, 0 of a resident one, whose rows are not ranked.
	Rows []int64
	// Capacity is the approximate number of bytes for slots in all slabs together.
	Capacity int64
	// SlotBytes returns the bytes of a row's slot, at least 1. StoredBytes returns the bytes that a miss of the row reads from
	// the host. Policies call them only within Start, Observe, Rank and Resize, but from several goroutines at once. Results may change over
	// time.
	SlotBytes, StoredBytes func(key uint64) int
	// MapBytes is what a cached row takes beside its slot: its share of the hashmaps of all devices. Rows are ranked by their value per byte of both.
	MapBytes int
	// Costs is the time that lookups of each table's rows take. Tables beyond its end, and zero entries, have GPUCost(512, 0).
	Costs []Cost
	// Memory, if not 0, is about how many bytes of host memory the policy may take. One that would take more to follow all rows that fit follows fewer, and the
	// ranking ends with these. Policies that cannot do so may ignore it.
	Memory int64
}

// Sizer is a policy that says how much host memory it takes, in bytes. Any goroutine may ask at any time.
type Sizer interface {
	Policy
	MemoryBytes() int64
}

// Training is a sequence of batches, each a table index and row numbers, that a policy observes before the cache is filled.
type Training = iter.Seq2[int, []int64]

// rows returns the number of rows of all tables.
func (p *Problem) rows() int64 {
	sum := int64(0)
	for _, n := range p.Rows {
		sum += n
	}
	return sum
}

// rowsIn returns the number of rows of mean slot size that fit in capacity bytes, at least 1, at most all rows. The mean is of
// rows at even distances over the tables.
func (p *Problem) rowsIn(capacity int64) int64 {
	const sampled = 4096
	all := p.rows()
	step := max(1, all/sampled)
	var bytes, n, base int64
	next := int64(0)
	for t, rows := range p.Rows {
		for ; next < base+rows; next += step {
			bytes += int64(p.SlotBytes(hashmap.Key(t, next-base)))
			n++
		}
		base += rows
	}
	if n == 0 || bytes == 0 {
		return 1
	}
	return max(1, min(all, int64(float64(capacity)*float64(n)/float64(bytes))))
}
