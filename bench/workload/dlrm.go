package workload

import (
	"cmp"
	"github.com/tensorcache/tensorcache/internal/faults"
	"math"
	"math/rand/v2"
	"slices"
)

// EmbeddingTable is one of a recommender's.
type EmbeddingTable struct {
	// Rows of the table, at least 1.
	Rows int64
	// Exponent is the e of the law "probability ∝ rank^-e" by which rows are looked up, 0 to 10; 0 is uniform.
	Exponent float64
	// Lookups are how many rows of the table a sample sums, at least 1. Default 1.
	Lookups int
}

// DLRMOptions describes the lookups of a deep-learning recommender. The zero value is the default one.
type DLRMOptions struct {
	// Tables are looked up one after the other. Default: 8 of 100 to 1,000,000 rows, exponent 1.
	Tables []EmbeddingTable
	// BatchSize is the samples of a batch, at least 1. Default 2048.
	BatchSize int
	// Batches is at least 1. Default 200.
	Batches int
	// Turnover is how many batches a rank keeps its row: then it has another one, each rank at a moment of its own, so that
	// what is hot drifts. Default 0: for ever.
	Turnover int
	// Seed fixes the lookups. Any value, 0 included, is a seed of its own.
	Seed uint64
}

// EnsureDefaults replaces zero fields by their defaults.
func (o *DLRMOptions) EnsureDefaults() {
	if len(o.Tables) == 0 {
		for _, rows := range []int64{1_000_000, 500_000, 200_000, 100_000, 50_000, 10_000, 1_000, 100} {
			o.Tables = append(o.Tables, EmbeddingTable{Rows: rows, Exponent: 1})
		}
	}
	o.Tables = slices.Clone(o.Tables)
	for i := range o.Tables {
		if o.Tables[i].Lookups == 0 {
			o.Tables[i].Lookups = 1
		}
	}
	o.BatchSize = cmp.Or(o.BatchSize, 2048)
	o.Batches = cmp.Or(o.Batches, 200)
}

// maxExponent bounds the exponents of Zipf's law: beyond, the first rank has all.
const maxExponent = 10

// maxRows bounds the rows of a workload.
const maxRows = 1 << 50

// Validate reports every field out of range.
func (o *DLRMOptions) Validate() error {
	f := faults.List{Prefix: "workload: DLRM: "}
	rows, lookups := int64(0), 0
	for i, t := range o.Tables {
		if t.Rows < 1 || t.Rows > maxRows-rows {
			f.Addf("Tables[%d].Rows (%d) must be at least 1, of all tables at most %d", i, t.Rows, int64(maxRows))
			continue
		}
		rows += t.Rows
		f.If(!(t.Exponent >= 0 && t.Exponent <= maxExponent), "Tables[%d].Exponent (%g) must be in [0, %d]", i, t.Exponent, maxExponent)
		f.If(t.Lookups < 1 || t.Lookups > 1<<20, "Tables[%d].Lookups (%d) must be in [1, %d]", i, t.Lookups, 1<<20)
		lookups += t.Lookups
	}
	f.If(o.BatchSize < 1 || lookups > 0 && o.BatchSize > math.MaxInt32/lookups, "BatchSize (%d) must be at least 1, a batch at most %d lookups", o.BatchSize, math.MaxInt32)
	f.If(o.Batches < 1, "Batches (%d) must be at least 1", o.Batches)
	f.If(o.Turnover < 0, "Turnover (%d) must not be negative", o.Turnover)
	return f.Err()
}

// DLRM is the access pattern of embedding tables: in each batch, for each table, BatchSize × Lookups rows, drawn by Zipf's
// law, duplicates included. A table's row r has the number r + the rows of the tables before.
type DLRM struct {
	tabled
	o    DLRMOptions
	law  []zipf
	base []int64 // of each table: the rows of those before
}

// NewDLRM checks the options and returns the workload.
func NewDLRM(o DLRMOptions) (*DLRM, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	w := &DLRM{tabled: tabled{kind: "dlrm", batches: o.Batches}, o: o}
	for _, t := range o.Tables {
		w.law = append(w.law, newZipf(t.Rows, t.Exponent))
		w.base = append(w.base, w.rows)
		w.rows += t.Rows
	}
	return w, nil
}

// NewCursor returns a cursor without scratch.
func (w *DLRM) NewCursor() Cursor { return &dlrmCursor{w: w} }

type dlrmCursor struct {
	w   *DLRM
	rng rand.PCG
}

// Batch implements Cursor.
func (c *dlrmCursor) Batch(i int, dst []int64) []int64 {
	o := &c.w.o
	checkBatch(i, o.Batches)
	c.rng.Seed(streamSeeds(o.Seed, purposeEmbedding, uint64(i)))
	for t := range o.Tables {
		seed := mix64(o.Seed + uint64(t)*gamma)
		generation, moment := uint64(0), uint64(0)
		if o.Turnover > 0 {
			generation, moment = uint64(i/o.Turnover), uint64(i%o.Turnover)
		}
		// Ranks are of this generation, or of the next one already.
		rows := [2]permutation{newPermutation(int(o.Tables[t].Rows), seed, generation), newPermutation(int(o.Tables[t].Rows), seed, generation+1)}
		law := c.w.law[t]
		for range o.BatchSize * o.Tables[t].Lookups {
			rank := law.draw(&c.rng)
			next := 0
			if o.Turnover > 0 && mix64(seed^mix64(uint64(rank)^uint64(purposeTurnover)))%uint64(o.Turnover) < moment {
				next = 1
			}
			dst = append(dst, c.w.base[t]+int64(rows[next].at(int(rank))))
		}
	}
	return dst
}
