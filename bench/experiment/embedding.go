package experiment

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/bench/workload"
	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/faults"
	"github.com/tensorcache/tensorcache/internal/reduce"
)

// Embedding is the workload of embedding tables: each sample of a batch looks up a bag of rows by a power law.
const Embedding = "embedding"

const defaultBag = 20

// validateEmbedding adds what is wrong with the workload's fields.
func (c *Config) validateEmbedding(policy admission.Spec, f *faults.List) {
	embedding := c.Workload == Embedding
	f.If(c.Workload != "" && !embedding && !c.readsText(), "--workload (%q) must be %s or %s", c.Workload, Embedding, ngramKind)
	f.If(c.Bag < 0 || c.Bag > 1<<20, "--bag (%d) must be 1 to %d", c.Bag, 1<<20)
	f.If(c.Bag != 0 && !embedding, "--bag (%d) means nothing without --workload %s", c.Bag, Embedding)
	f.If(c.Pooled && !embedding, "--pooled means nothing without --workload %s", Embedding)
	if !embedding {
		return
	}
	f.If(c.IDs != "", "--workload %s and --ids (%s) contradict each other", Embedding, c.IDs)
	f.If(c.Graph != "", "--workload %s and --graph (%s) contradict each other", Embedding, c.Graph)
	f.If(policy.Learns == admission.FromGraph, "--policy %s needs a graph, which --workload %s has not", c.Policy, Embedding)
}

// bag is the rows that each sample looks up.
func (c *Config) bag() int { return cmp.Or(c.Bag, defaultBag) }

// samples says whether batches are sampled from a graph.
func (c *Config) samples() bool { return c.IDs == "" && c.Workload == "" }

// prepareEmbedding makes the batches. Those that train come before those that are measured.
func (r *run) prepareEmbedding() error {
	c := &r.cfg
	r.trainLast = orDefault(c.TrainBatches, defaultWarmup)
	r.first, r.last = r.trainLast, r.trainLast+orDefault(c.Batches, defaultBatches)
	w, err := workload.NewDLRM(workload.DLRMOptions{
		Tables: []workload.EmbeddingTable{{Rows: int64(r.table.Rows), Exponent: tablesExponent, Lookups: c.bag()}}, BatchSize: cmp.Or(c.BatchSize, defaultSamples),
		Batches: r.last, Seed: c.Seed,
	})
	r.measured, r.training = w, w
	return err
}

// gatherPooled adds up each bag of a batch, and returns how long that took.
func (r *run) gatherPooled(ctx context.Context, c *cache.Cache, rows []int64, out *[]byte, verify bool) (time.Duration, error) {
	bag, width := r.cfg.bag(), sumsOf(r.table).bytes
	n := len(rows) / bag * width
	if n > cap(*out) {
		*out = make([]byte, n)
	}
	start := time.Now()
	if err := c.Gather(ctx, cache.Request{Rows: rows, Out: (*out)[:n], Pool: &cache.Pooling{Bag: bag}}); err != nil {
		return 0, err
	}
	took := time.Since(start)
	if verify {
		for i := range len(rows) / bag {
			r.verified += int64(bag)
			if !r.sumWithin(rows[i*bag:][:bag], (*out)[i*width:][:width]) {
				r.mismatches += int64(bag)
			}
		}
	}
	return took, nil
}

// sums are what rows of a table are added up to.
type sums struct {
	of      dtype.Type
	columns int // 0: the rows cannot be added up
	bytes   int
	float8  reduce.Float8 // what rows of float8 are
}

func sumsOf(t *dataset.Table) sums {
	s := sums{of: t.DType}
	if s.float8.Complete(t.DType); s.float8.Is() {
		s.of, s.columns = dtype.Float32, s.float8.Columns(t.RowBytes)
	} else if reduce.Float(t.DType) {
		s.columns = t.RowBytes / t.DType.Size()
	}
	s.bytes = s.columns * s.of.Size()
	return s
}

// element returns an element of a row.
func (s *sums) element(row []byte, i int) float64 {
	f := &s.float8
	if !f.Is() {
		return dataset.Value(s.of, row[i*s.of.Size():])
	}
	x := dataset.Value(f.Values, row[i:])
	if f.Block == 0 {
		return x
	}
	return x * dataset.Value(f.Scales, row[s.columns+i/f.Block*f.Scales.Size():])
}

// sumWithin says whether sums are those of rows, as far as they must be: within the errors of so many additions in float32, of the products with scales, and of one
// rounding to the table's type.
func (r *run) sumWithin(rows []int64, got []byte) bool {
	t, s := r.table, sumsOf(r.table)
	rounding := map[dtype.Type]float64{dtype.Float16: 0x1p-11, dtype.BFloat16: 0x1p-8}[t.DType]
	for i := range s.columns {
		sum, size := 0.0, 0.0
		for _, row := range rows {
			x := s.element(t.Row(row), i)
			sum += x
			size += math.Abs(x)
		}
		have, limit := dataset.Value(s.of, got[i*s.of.Size():]), size*float64(len(rows)+2)*0x1p-24+math.Abs(sum)*rounding+0x1p-24
		if have != sum && !(math.Abs(have-sum) <= limit+float64(len(rows))*r.bound(0)) && !(sum != sum && have != have) {
			return false
		}
	}
	return true
}

// poolable returns an error for a table whose rows cannot be added up.
func (c *Config) poolable(t *dataset.Table) error {
	if c.Pooled && sumsOf(t).columns == 0 {
		return fmt.Errorf("--pooled: elements (%s) of table %s must be float32, float16, bfloat16 or float8", t.DType, t.Name)
	}
	return nil
}
