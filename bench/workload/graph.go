package workload

import (
	"fmt"
	"math"
)

// Graph is a directed graph in CSR form: the out-neighbours of vertex v are
// Indices[Indptr[v]:Indptr[v+1]]. Vertices without out-neighbours, self-loops
// and repeated edges are allowed.
type Graph struct {
	Indptr  []int64
	Indices []int32
	// Weights are the edges', for weighted sampling: finite, and not negative. nil: the graph has none.
	Weights []float32
	// Listed says that the graph was read from an edge list: vertices behind the last one that has an edge are missing.
	Listed bool
}

// Vertices is the number of vertices.
func (g *Graph) Vertices() int { return max(len(g.Indptr)-1, 0) }

// Edges is the number of edges, repeated ones included.
func (g *Graph) Edges() int { return len(g.Indices) }

// InDegrees counts for every vertex the edges that point to it.
// REQUIRES: a graph for which Validate returns nil.
func (g *Graph) InDegrees() []uint32 {
	d := make([]uint32, g.Vertices())
	for _, v := range g.Indices {
		d[v]++
	}
	return d
}

// Validate checks that there is at least one vertex, that Indptr starts at 0,
// never decreases and ends at len(Indices), that every index is a vertex, and
// that weights are finite and not negative.
// The error names the first offender.
func (g *Graph) Validate() error {
	if err := g.check(); err != nil {
		return fmt.Errorf("workload: graph: %w", err)
	}
	return nil
}

// check is Validate without the prefix, so that LoadGraph can put the file there.
func (g *Graph) check() error {
	if err := checkIndptr(g.Indptr, len(g.Indices)); err != nil {
		return err
	}
	if err := checkIndices(g.Indices, g.Vertices()); err != nil {
		return err
	}
	return checkWeights(g.Weights, len(g.Indices))
}

// checkWeights returns the first fault of the weights of that many edges, which may be missing.
func checkWeights(weights []float32, edges int) error {
	if weights != nil && len(weights) != edges {
		return fmt.Errorf("weights (%d) must be as many as indices (%d)", len(weights), edges)
	}
	for i, w := range weights {
		if !(w >= 0 && w <= math.MaxFloat32) {
			return fmt.Errorf("weights[%d] (%g) must be finite and not negative", i, w)
		}
	}
	return nil
}

// checkIndptr returns the first fault of indptr for a graph of that many edges.
func checkIndptr(indptr []int64, edges int) error {
	if err := checkVertices(len(indptr)); err != nil {
		return err
	}
	var c indptrCheck
	if err := c.add(indptr); err != nil {
		return err
	}
	return c.end(edges)
}

// checkVertices returns an error for an indptr of a length that no graph has.
func checkVertices(indptr int) error {
	if indptr < 2 {
		return fmt.Errorf("indptr length (%d) must be at least 2, for one vertex", indptr)
	}
	if n := indptr - 1; n > math.MaxInt32 {
		return fmt.Errorf("vertices (%d) must be at most %d", n, math.MaxInt32)
	}
	return nil
}

// indptrCheck checks an indptr that comes in parts.
type indptrCheck struct {
	n    int   // elements so far
	last int64 // of them
}

func (c *indptrCheck) add(part []int64) error {
	for _, v := range part {
		if c.n == 0 && v != 0 {
			return fmt.Errorf("indptr[0] (%d) must be 0", v)
		}
		if v < c.last {
			return fmt.Errorf("indptr[%d] (%d) must be at least indptr[%d] (%d)", c.n, v, c.n-1, c.last)
		}
		c.n, c.last = c.n+1, v
	}
	return nil
}

func (c *indptrCheck) end(edges int) error {
	if c.last != int64(edges) {
		return fmt.Errorf("indptr[%d] (%d) must be the number of indices (%d)", c.n-1, c.last, edges)
	}
	return nil
}

// checkIndices returns the first index that is not a vertex.
func checkIndices[T int32 | int64](indices []T, vertices int) error {
	return checkIndicesFrom(0, indices, vertices)
}

// checkIndicesFrom is checkIndices for a part that begins with index from.
func checkIndicesFrom[T int32 | int64](from int, indices []T, vertices int) error {
	for i, v := range indices {
		if uint64(v) >= uint64(vertices) { // negative values wrap around to large ones
			return fmt.Errorf("indices[%d] (%d) must be in [0, %d)", from+i, v, vertices)
		}
	}
	return nil
}
