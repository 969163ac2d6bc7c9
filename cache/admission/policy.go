// Package admission decides, on the host, which rows deserve slab bytes.
//
// A [Policy] is made for one cache, which calls its methods from one goroutine at a time: Start once, Observe for
// each batch of training accesses and, as long as the cache lives, for the accesses that were sampled, Rank for every
// refresh, Close. A policy knows rows by the keys of package hashmap. It is one file of this package, which registers it
// under its name: see [New].
package admission

import (
	"iter"

	"github.com/tensorcache/tensorcache/hashmap"
)

// Policy ranks rows.
type Policy interface {
	// Name is the policy's name as the command line takes it.
	Name() string
	// Start tells the policy what it decides about. It is called once, before the other methods but Name and Close.
	Start(Problem) error
	// Observe tells it of a batch of accesses, of training or sampled; duplicates count. It does not keep rows.
	Observe(table int, rows []int64)
	// Rank yields the keys of the rows that are worth admitting now, each once, the best first. The cache admits a prefix
	// that fits; it counts the others as rejected, and rows that are not yielded as cold. Rank may be called again and
	// again, each time from the current state; a ranking ends with the next call of any method.
	Rank() iter.Seq[uint64]
	// Resize says that the slot bytes have changed to capacity.
	Resize(capacity int64)
	// Close releases what the policy holds. It may be called at any time, more than once; after it, only Name and Close are.
	Close()
}

// Explainer is a Policy that can say what it thinks of a row, for the reasons of misses.
type Explainer interface {
	// Explain may be called as Observe may, and changes nothing.
	Explain(key uint64) Estimate
}

// Estimate is what a policy thinks of a row. Scores compare within one policy only.
type Estimate struct {
	// Frequency is how many of the accesses that the policy remembers were to the row: old ones may count in part.
	Frequency float64
	// Score is what the row would be ranked by now, Victim the least score that the last Rank had room for, 0 while there
	// is room for all.
	Score, Victim float64
	// Rejected says that the policy knows the row and found others worth more.
	Rejected bool
}

// Problem is what a policy decides about.
type Problem struct {
	// Rows is the number of rows of each table.
	Rows []int64
	// Capacity is about how many slot bytes the data store holds, all slabs together.
	Capacity int64
	// SlotBytes is what a row takes in a slab, at least 1, and StoredBytes what a miss of it moves from the host. Policies
	// call them from within Start, Observe, Rank and Resize; answers may change over time.
	SlotBytes, StoredBytes func(key uint64) int
}

// Training is a sequence of batches from which a policy learns before the cache is filled.
type Training = iter.Seq2[int, []int64]

// savedPerByte is the value of a row: the host bytes that its hits save per slab byte.
func (p *Problem) savedPerByte(key uint64, frequency float64) float64 {
	return frequency * float64(p.StoredBytes(key)) / float64(p.SlotBytes(key))
}

// rows is the number of rows of all tables.
func (p *Problem) rows() int64 {
	sum := int64(0)
	for _, n := range p.Rows {
		sum += n
	}
	return sum
}

// rowsIn returns how many rows of mean size fit in capacity slot bytes, at least 1, at most all. The mean is that of rows
// spread evenly over the tables.
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
