package workload

import (
	"cmp"
	"github.com/tensorcache/tensorcache/internal/faults"
	"math"
	"math/bits"
	"math/rand/v2"
	"sync/atomic"
)

// GraphOptions describes a generated graph. The zero value is the default graph.
type GraphOptions struct {
	// Vertices is the number of vertices, 1 to 2^31-1. Default 500,000.
	Vertices int
	// MeanDegree is the number of edges per vertex, at least 1. Default 15.
	MeanDegree int
	// Seed fixes the graph. Any value, 0 included, is a seed of its own.
	Seed uint64
}

// maxEdges bounds generated graphs to 1 TiB of indices.
const maxEdges = 1 << 38

// prepare sets defaults and reports every field out of range.
func (o *GraphOptions) prepare() error {
	o.Vertices = cmp.Or(o.Vertices, 500_000)
	o.MeanDegree = cmp.Or(o.MeanDegree, 15)
	f := faults.List{Prefix: "workload: power law: "}
	f.If(o.Vertices < 1 || o.Vertices > math.MaxInt32, "Vertices (%d) must be in [1, %d]", o.Vertices, math.MaxInt32)
	f.If(o.MeanDegree < 1, "MeanDegree (%d) must be at least 1", o.MeanDegree)
	f.If(o.Vertices > 0 && o.MeanDegree > maxEdges/o.Vertices, "Vertices × MeanDegree (%d × %d) must be at most %d edges", o.Vertices, o.MeanDegree, int64(maxEdges))
	return f.Err()
}

// targetExponent is the e of the law "probability ∝ rank^-e" by which edge targets are drawn.
const targetExponent = 0.75

// edgeBlock is the number of edges drawn from one stream. It is part of the
// output: changing it changes every generated graph.
const edgeBlock = 1 << 16

// PowerLaw generates a graph of Vertices × MeanDegree edges. The source of each
// edge is drawn uniformly, so out-degrees are Poisson-like; its target is drawn
// with probability ∝ rank^-0.75, rank being the target's place in a random
// permutation of the vertices. Edges are independent: self-loops and repeated
// edges occur.
//
// Because target and source of an edge are independent, the sources need only
// be counted, and the targets can be written in place in CSR order.
func PowerLaw(o GraphOptions) (*Graph, error) {
	if err := o.prepare(); err != nil {
		return nil, err
	}
	edges := o.Vertices * o.MeanDegree
	blocks := (edges + edgeBlock - 1) / edgeBlock

	degrees := make([]uint32, o.Vertices)
	forEachBlock(blocks, func(b int) {
		r := newStream(o.Seed, purposeSources, uint64(b))
		for range min(edgeBlock, edges-b*edgeBlock) {
			atomic.AddUint32(&degrees[below(r, uint64(o.Vertices))], 1)
		}
	})
	g := &Graph{Indptr: make([]int64, o.Vertices+1), Indices: make([]int32, edges)}
	for v, d := range degrees {
		g.Indptr[v+1] = g.Indptr[v] + int64(d)
	}

	targets := newAliasTable(rankWeights(rankPermutation(o.Vertices, o.Seed), targetExponent))
	forEachBlock(blocks, func(b int) {
		r := newStream(o.Seed, purposeTargets, uint64(b))
		block := g.Indices[b*edgeBlock : min((b+1)*edgeBlock, edges)]
		for i := range block {
			block[i] = targets.draw(r)
		}
	})
	return g, nil
}

// rankPermutation returns the vertices in the order of their ranks: element 0
// is the vertex of rank 1.
func rankPermutation(vertices int, seed uint64) []int32 {
	p := make([]int32, vertices)
	for i := range p {
		p[i] = int32(i)
	}
	rand.New(newStream(seed, purposeRanks, 0)).Shuffle(vertices, func(i, j int) { p[i], p[j] = p[j], p[i] })
	return p
}

// rankWeights returns rank^-exponent for every vertex.
func rankWeights(byRank []int32, exponent float64) []float64 {
	w := make([]float64, len(byRank))
	for i, v := range byRank {
		w[v] = math.Pow(float64(i+1), -exponent)
	}
	return w
}

// aliasTable draws from [0, len) with given weights in constant time (Walker's
// method, built as by Vose). A draw picks a cell uniformly and then either the
// cell's own number or its alias.
type aliasTable []aliasCell

type aliasCell struct {
	keep  uint64 // the cell's own number if the draw's fraction (of 2^64) is below
	alias int32  // otherwise this one
}

// newAliasTable builds the table. It uses weights as scratch.
// REQUIRES: weights are finite and not negative, and one is above 0.
func newAliasTable(weights []float64) aliasTable {
	var sum float64
	for _, w := range weights {
		sum += w
	}
	n := len(weights)
	t := make(aliasTable, n)
	// One array holds both work lists: cells below the mean grow from the left,
	// the others from the right.
	work := make([]int32, n)
	small, large := 0, n
	for i := range weights {
		weights[i] *= float64(n) / sum
		t[i] = aliasCell{keep: math.MaxUint64, alias: int32(i)}
		if weights[i] < 1 {
			work[small] = int32(i)
			small++
		} else {
			large--
			work[large] = int32(i)
		}
	}
	for small > 0 && large < n {
		s, l := work[small-1], work[large]
		small--
		t[s] = aliasCell{keep: uint64(weights[s] * (1 << 64)), alias: l}
		weights[l] -= 1 - weights[s]
		if weights[l] < 1 {
			large++
			work[small] = l
			small++
		}
	}
	// What remains in either list is 1 up to rounding: the cell keeps itself.
	return t
}

// draw returns a number with the probability of its weight.
func (t aliasTable) draw(r *rand.PCG) int32 {
	i, fraction := bits.Mul64(r.Uint64(), uint64(len(t)))
	if c := &t[i]; fraction >= c.keep {
		return c.alias
	}
	return int32(i)
}
