package workload

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync/atomic"
)

// Probabilities, of 2^16, of an adjacency matrix's upper left (0.57), upper left or right (0.76), and any but lower right
// quarter (0.95) at each level: those of Graph 500.
const (
	quarterA = 37356
	quarterB = 49807
	quarterC = 62259
)

// RMAT generates an R-MAT graph (Chakrabarti, Zhan and Faloutsos, SDM 2004) of Vertices × MeanDegree edges. Each edge descends into quarters of the adjacency matrix, whose
// side is the next power of two; edges outside the vertices are drawn again. Vertices are then renumbered at random, and
// neighbours sorted. Self-loops and repeated edges occur.
//
// Edges are drawn twice, once to count and once to be put in their places: besides the graph there is nothing of the
// edges' number in memory.
func RMAT(o GraphOptions) (*Graph, error) {
	if err := o.prepare("R-MAT", 2, 16); err != nil {
		return nil, err
	}
	edges := o.Vertices * o.MeanDegree
	blocks := (edges + edgeBlock - 1) / edgeBlock
	draw := quarters{uint32(o.Vertices), bits.Len32(uint32(o.Vertices - 1))}
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
}

// edge draws one edge, with one random number for four levels.
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
			low, right := below32(p, quarterB)^1, below32(p, quarterA)^1
			right ^= low & below32(p, quarterC)
			from, to = from<<1|low, to<<1|right
		}
		if from < q.vertices && to < q.vertices {
			return from, to
		}
	}
}

// below32 is 1 if a < b, else 0, without a branch that half the time goes the other way.
func below32(a, b uint32) uint32 { return uint32((uint64(a) - uint64(b)) >> 63) }
