package workload

import "fmt"

// Workload is a sequence of batches. Batch i depends on the options and i only.
// A Workload is read-only: separate Cursors may run at the same time.
type Workload interface {
	// Kind names the access pattern: "neighbor-sampling", "ids", "dlrm", "mix", "popularity" or "ngram".
	Kind() string
	// Batches is the number of batches.
	Batches() int
	// NewCursor returns the state that one goroutine needs to compute batches.
	NewCursor() Cursor
}

// Cursor computes batches in any order. It must not be used by two goroutines
// at the same time.
type Cursor interface {
	// Batch appends the row numbers of batch i to dst and returns the extended
	// slice; what dst held before stays. It allocates only to grow dst. It panics
	// unless i is in [0, Batches()).
	Batch(i int, dst []int64) []int64
}

// Tabled is a Workload that says how many rows there are, and how long each is.
type Tabled interface {
	Workload
	// Rows is the number of rows; batches hold row numbers below.
	Rows() int64
	// RowBytes is a row's length, 0 if the workload does not say.
	RowBytes(row int64) int64
}

// tabled is what the generated Tabled workloads have in common.
type tabled struct {
	kind    string
	batches int
	rows    int64
}

// Kind names the access pattern.
func (t *tabled) Kind() string { return t.kind }

// Batches is the number of batches.
func (t *tabled) Batches() int { return t.batches }

// Rows is the number of rows.
func (t *tabled) Rows() int64 { return t.rows }

// RowBytes returns 0: rows have no length of their own.
func (t *tabled) RowBytes(int64) int64 { return 0 }

var (
	_ Workload = (*NeighborSampling)(nil)
	_ Workload = (*Replay[int64])(nil)
	_ Tabled   = (*DLRM)(nil)
	_ Tabled   = (*Mix)(nil)
	_ Tabled   = (*Popularity)(nil)
	_ Tabled   = (*Ngram)(nil)
)

// checkBatch panics unless i is a batch number of a workload of n batches.
func checkBatch(i, n int) {
	if i < 0 || i >= n {
		panic(fmt.Sprintf("workload: batch (%d) must be in [0, %d)", i, n))
	}
}
