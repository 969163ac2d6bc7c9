package workload

import (
	"cmp"
	"github.com/tensorcache/tensorcache/internal/faults"
	"math"
	"math/rand/v2"
	"slices"
)

// SamplingOptions describes a neighbour-sampling workload. All fields but Graph
// have a default.
type SamplingOptions struct {
	// Graph is the graph to sample; it must not change while the workload is used.
	Graph *Graph
	// Fanouts holds, hop by hop, how many out-neighbours of a vertex are sampled
	// at most, each at least 1. Default {15, 10}.
	Fanouts []int
	// BatchSize is the number of seeds of a batch, at least 1. Default 256. Where
	// it exceeds the vertices, a batch spans epochs and duplicates are dropped.
	BatchSize int
	// Batches is the number of batches, at least 1. Default 200.
	Batches int
	// Weighted draws neighbours by the graph's weights, without replacement: each draw takes one of the edges left with
	// probability ∝ weight. Edges of weight 0 are never taken. Default: uniformly.
	Weighted bool
	// Seed fixes the batches. Any value, 0 included, is a seed of its own.
	Seed uint64
}

// EnsureDefaults replaces zero fields by their defaults.
func (o *SamplingOptions) EnsureDefaults() {
	if len(o.Fanouts) == 0 {
		o.Fanouts = []int{15, 10}
	}
	o.BatchSize = cmp.Or(o.BatchSize, 256)
	o.Batches = cmp.Or(o.Batches, 200)
}

// Validate reports every field out of range, and the first fault of the graph.
func (o *SamplingOptions) Validate() error {
	f := faults.List{Prefix: "workload: sampling: "}
	if o.Graph == nil {
		f.Addf("Graph (nil) must be set")
	} else if err := o.Graph.check(); err != nil {
		f.Addf("graph: %w", err)
	} else if o.Weighted && o.Graph.Weights == nil {
		f.Addf("Graph must have weights to be sampled by them")
	}
	for i, n := range o.Fanouts {
		f.If(n < 1, "Fanouts[%d] (%d) must be at least 1", i, n)
	}
	f.If(o.BatchSize < 1 || o.BatchSize > math.MaxInt32, "BatchSize (%d) must be in [1, %d]", o.BatchSize, math.MaxInt32)
	f.If(o.Batches < 1, "Batches (%d) must be at least 1", o.Batches)
	f.If(o.BatchSize > 0 && o.Batches > math.MaxInt/o.BatchSize, "Batches × BatchSize (%d × %d) must be at most %d seeds", o.Batches, o.BatchSize, math.MaxInt)
	return f.Err()
}

// NeighborSampling is the access pattern of GraphSAGE-style training. The seeds
// of batch i are the next BatchSize vertices of a concatenation of epochs. Then,
// for each hop, every vertex of the frontier (the vertices first seen in the hop
// before; at first the seeds) samples min(fanout, out-degree) distinct places of
// its neighbour list, uniformly or by weight. The batch is every vertex seen, once, in the
// order first seen: seeds, then hop after hop.
type NeighborSampling struct {
	o         SamplingOptions
	maxDegree int
}

// NewNeighborSampling checks the options, the graph included, and returns the workload.
func NewNeighborSampling(o SamplingOptions) (*NeighborSampling, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.Fanouts = slices.Clone(o.Fanouts)
	w := &NeighborSampling{o: o}
	for v := range o.Graph.Vertices() {
		w.maxDegree = max(w.maxDegree, int(o.Graph.Indptr[v+1]-o.Graph.Indptr[v]))
	}
	return w, nil
}

// Kind returns "neighbor-sampling".
func (w *NeighborSampling) Kind() string { return "neighbor-sampling" }

// Batches is the number of batches.
func (w *NeighborSampling) Batches() int { return w.o.Batches }

// NewCursor returns a cursor with scratch of 4 bytes a vertex.
func (w *NeighborSampling) NewCursor() Cursor {
	return &samplingCursor{
		w:     w,
		seen:  newStampSet(w.o.Graph.Vertices()),
		taken: newStampSet(w.maxDegree),
	}
}

// samplingCursor is the scratch of one goroutine.
type samplingCursor struct {
	w     *NeighborSampling
	seen  stampSet // vertices of the current batch
	taken stampSet // places in the neighbour list of the current vertex
	rng   rand.PCG // stream of the current batch
	best  []ranked // edges of the current vertex, of weighted sampling
}

// Batch implements Cursor.
func (c *samplingCursor) Batch(i int, dst []int64) []int64 {
	checkBatch(i, c.w.o.Batches)
	c.seen.clear()
	c.rng.Seed(streamSeeds(c.w.o.Seed, purposeNeighbors, uint64(i)))
	frontier := len(dst)
	dst = c.appendSeeds(i, dst)
	for _, fanout := range c.w.o.Fanouts {
		end := len(dst)
		for ; frontier < end; frontier++ {
			dst = c.appendNeighbors(int(dst[frontier]), fanout, dst)
		}
	}
	return dst
}

// appendSeeds appends the distinct seeds of batch i.
func (c *samplingCursor) appendSeeds(i int, dst []int64) []int64 {
	n := c.w.o.Graph.Vertices()
	for p, end := i*c.w.o.BatchSize, (i+1)*c.w.o.BatchSize; p < end; {
		epoch, at := p/n, p%n
		shuffle := newPermutation(n, c.w.o.Seed, uint64(epoch))
		for ; at < n && p < end; at, p = at+1, p+1 {
			dst = c.appendNew(shuffle.at(at), dst)
		}
	}
	return dst
}

// appendNeighbors appends the sampled out-neighbours of v that the batch does
// not hold yet. The places are drawn by Floyd's method: one draw for each.
func (c *samplingCursor) appendNeighbors(v, fanout int, dst []int64) []int64 {
	if c.w.o.Weighted {
		return c.appendWeighted(v, fanout, dst)
	}
	g := c.w.o.Graph
	neighbors := g.Indices[g.Indptr[v]:g.Indptr[v+1]]
	if len(neighbors) <= fanout {
		for _, u := range neighbors {
			dst = c.appendNew(int(u), dst)
		}
		return dst
	}
	c.taken.clear()
	for last := len(neighbors) - fanout; last < len(neighbors); last++ {
		place := int(below(&c.rng, uint64(last)+1))
		if !c.taken.add(place) {
			place = last
			c.taken.add(place)
		}
		dst = c.appendNew(int(neighbors[place]), dst)
	}
	return dst
}

// appendNew appends v unless the batch holds it.
func (c *samplingCursor) appendNew(v int, dst []int64) []int64 {
	if c.seen.add(v) {
		dst = append(dst, int64(v))
	}
	return dst
}

// stampSet is a set of small integers that empties in constant time: x is a
// member if its mark equals the current stamp.
type stampSet struct {
	marks []uint32
	stamp uint32
}

// newStampSet returns an empty set of integers in [0, n).
func newStampSet(n int) stampSet { return stampSet{marks: make([]uint32, n), stamp: 1} }

// clear empties the set.
func (s *stampSet) clear() {
	s.stamp++
	if s.stamp == 0 { // wrapped around: old marks would count as members again
		clear(s.marks)
		s.stamp = 1
	}
}

// add inserts x and reports whether it was missing.
func (s *stampSet) add(x int) bool {
	if s.marks[x] == s.stamp {
		return false
	}
	s.marks[x] = s.stamp
	return true
}
