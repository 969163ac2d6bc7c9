package admission

import (
	"math"
	"slices"
)

var _ = register(Spec{Name: "static-pagerank", Learns: FromGraph, New: func(in Inputs) (Policy, error) {
	return NewStaticPageRank(in.Graphs...), nil
}})

const (
	pageRankDamping = 0.85 // the usual one
	pageRankRounds  = 100
	pageRankChange  = 1e-7 // change of all ranks, whose sum is 1, below which the iteration stops
)

// NewStaticPageRank returns the policy that ranks the vertices of each table by weighted reverse PageRank, times the
// time that a hit saves, per byte of device memory (Min et al., "Graph Neural Network Training with Data Tiering", KDD '22). The
// random surfer follows the edges of a [Graph], as sampling does; the paper calls this reverse because its edges point the
// other way. The rank is weighted because the surfer starts from the graph's seeds. The policy needs no training. Making it
// takes up to a hundred passes over the edges.
func NewStaticPageRank(graphs ...Graph) Policy {
	ranks := make([][]float32, len(graphs))
	for t := range graphs {
		ranks[t] = pageRank(&graphs[t])
	}
	return &staticScore[float32]{name: "static-pagerank", what: "graphs", scores: ranks}
}

// pageRank returns the share of time that a random surfer spends at each vertex. The surfer starts at a random seed, moves to
// a random neighbour with probability pageRankDamping, and otherwise, or at a vertex without neighbours, starts again.
func pageRank(g *Graph) []float32 {
	n := g.Vertices()
	if n == 0 {
		return nil
	}
	start := make([]float64, n)
	for v := range start {
		start[v] = 1 / float64(n)
	}
	if len(g.Seeds) != 0 {
		clear(start)
		for _, v := range g.Seeds {
			start[v] += 1 / float64(len(g.Seeds))
		}
	}
	now, next := slices.Clone(start), make([]float64, n)
	for range pageRankRounds {
		clear(next)
		gone := 0.0
		for v, p := range now {
			neighbors := g.Indices[g.Indptr[v]:g.Indptr[v+1]]
			if len(neighbors) == 0 {
				continue
			}
			gone += pageRankDamping * p
			each := pageRankDamping * p / float64(len(neighbors))
			for _, u := range neighbors {
				next[u] += each
			}
		}
		change := 0.0
		for v := range next {
			next[v] += (1 - gone) * start[v]
			change += math.Abs(next[v] - now[v])
		}
		if now, next = next, now; change < pageRankChange {
			break
		}
	}
	ranks := make([]float32, n)
	for v, p := range now {
		ranks[v] = float32(p)
	}
	return ranks
}
