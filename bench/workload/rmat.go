package workload

import (
	"cmp"
	"github.com/tensorcache/tensorcache/internal/faults"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync/atomic"
)

// RMATOptions describes an R-MAT graph (Chakrabarti, Zhan and Faloutsos, SDM 2004). The zero value is Graph 500's, small.
type RMATOptions struct {
	// Vertices is the number of vertices, 2 to 2^31-1. Default 500,000.
	Vertices int
	// MeanDegree is the number of edges per vertex, at least 1. Default 16.
	MeanDegree int
	// A, B, C are the probabilities of an adjacency matrix's upper left, upper right and lower left quarter at each level; the
	// lower right one has the rest. Each is at least 0, their sum at most 1. Default, if all are 0: 0.57, 0.19, 0.19.
	A, B, C float64
	// Seed fixes the graph. Any value, 0 included, is a seed of its own.
	Seed uint64
}

// EnsureDefaults replaces zero fields by their defaults.
func (o *RMATOptions) EnsureDefaults() {
	o.Vertices = cmp.Or(o.Vertices, 500_000)
	o.MeanDegree = cmp.Or(o.MeanDegree, 16)
	if o.A == 0 && o.B == 0 && o.C == 0 {
		o.A, o.B, o.C = 0.57, 0.19, 0.19
	}
}

// Validate reports every field out of range.
func (o *RMATOptions) Validate() error {
	f := faults.List{Prefix: "workload: R-MAT: "}
	f.If(o.Vertices < 2 || o.Vertices > math.MaxInt32, "Vertices (%d) must be in [2, %d]", o.Vertices, math.MaxInt32)
	f.If(o.MeanDegree < 1, "MeanDegree (%d) must be at least 1", o.MeanDegree)
	f.If(!(o.A >= 0 && o.B >= 0 && o.C >= 0 && o.A+o.B+o.C <= 1+1e-9), "A, B, C (%g, %g, %g) must be at least 0, their sum at most 1", o.A, o.B, o.C)
	if hi, lo := bits.Mul64(uint64(max(o.Vertices, 0)), uint64(max(o.MeanDegree, 0))); hi != 0 || lo > maxEdges {
		f.Addf("Vertices × MeanDegree (%d × %d) must be at most %d edges", o.Vertices, o.MeanDegree, int64(maxEdges))
	}
	// Edges in the upper left quarter are among the vertices: they bound how often one is drawn again.
	f.If(o.Vertices&(o.Vertices-1) != 0 && o.A < 0.01, "A (%g) must be at least 0.01 where Vertices (%d) is no power of two", o.A, o.Vertices)
	return f.Err()
}

// RMAT generates a graph of Vertices × MeanDegree edges. Each edge descends into quarters of the adjacency matrix, whose
// side is the next power of two; edges outside the vertices are drawn again. Vertices are then renumbered at random, and
// neighbours sorted. Self-loops and repeated edges occur.
//
// Edges are drawn twice, once to count and once to be put in their places: besides the graph there is nothing of the
// edges' number in memory.
func RMAT(o RMATOptions) (*Graph, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	edges := o.Vertices * o.MeanDegree
	blocks := (edges + edgeBlock - 1) / edgeBlock
	draw := newQuarters(&o)
	names := rankPermutation(o.Vertices, o.Seed)
	forEachEdge := func(f func(from, to int32)) {
		forEachBlock(blocks, func(b int) {
			r := newStream(o.Seed, purposeRMAT, uint64(b))
			for range min(edgeBlock, edges-b*edgeBlock) {
				from, to := draw.edge(r)
				f(names[from], names[to])
			}
		})
	}
	next := make([]int64, o.Vertices) // place of a vertex's next edge
	forEachEdge(func(from, _ int32) { atomic.AddInt64(&next[from], 1) })
	g := &Graph{Indptr: make([]int64, o.Vertices+1), Indices: make([]int32, edges)}
	for v, d := range next {
		g.Indptr[v+1] = g.Indptr[v] + d
		next[v] = g.Indptr[v]
	}
	forEachEdge(func(from, to int32) { g.Indices[atomic.AddInt64(&next[from], 1)-1] = to })
	// The goroutines put a vertex's edges in any order.
	const vertexBlock = 1 << 12
	forEachBlock((o.Vertices+vertexBlock-1)/vertexBlock, func(b int) {
		for v := b * vertexBlock; v < min((b+1)*vertexBlock, o.Vertices); v++ {
			slices.Sort(g.Indices[g.Indptr[v]:g.Indptr[v+1]])
		}
	})
	return g, nil
}

// quarters draws edges.
type quarters struct {
	vertices uint32
	levels   int
	a, b, c  uint32 // cumulative, of 2^16: four levels are drawn with one number
}

func newQuarters(o *RMATOptions) *quarters {
	unit := func(p float64) uint32 { return uint32(math.Round(p * (1 << 16))) }
	return &quarters{
		vertices: uint32(o.Vertices), levels: bits.Len32(uint32(o.Vertices - 1)),
		a: unit(o.A), b: unit(o.A + o.B), c: unit(o.A + o.B + o.C),
	}
}

func (q *quarters) edge(r *rand.PCG) (from, to uint32) {
	for {
		from, to = 0, 0
		var random uint64
		for level := range q.levels {
			if level%4 == 0 {
				random = r.Uint64()
			}
			p := uint32(random & 0xffff)
			random >>= 16
			// Quarter a is 0, 0; b 0, 1; c 1, 0; the last 1, 1.
			low, right := below32(p, q.b)^1, below32(p, q.a)^1
			right ^= low & (below32(p, q.c))
			from, to = from<<1|low, to<<1|right
		}
		if from < q.vertices && to < q.vertices {
			return from, to
		}
	}
}

// below32 is 1 if a < b, else 0, without a branch that half the time goes the other way.
func below32(a, b uint32) uint32 { return uint32((uint64(a) - uint64(b)) >> 63) }
