package workload

import (
	"math"
	"math/rand/v2"
)

// ranked is an edge's place in a neighbour list, and its key.
type ranked struct {
	place int
	key   float64
}

// appendWeighted appends neighbours of v sampled by weight that the batch does not hold yet. An edge of weight w has the key
// log(u)/w, u uniform, and those with the greatest keys are taken (Efraimidis and Spirakis). Instead of a u for each edge,
// draws say how much weight to skip up to the next edge that gets in: vertices of high degree need few of them.
func (c *samplingCursor) appendWeighted(v, fanout int, dst []int64) []int64 {
	g := c.w.o.Graph
	from, to := g.Indptr[v], g.Indptr[v+1]
	weights := g.Weights[from:to]
	c.best = c.best[:0]
	least := 0 // of best
	skip := 0.0
	for place, w32 := range weights {
		w := float64(w32)
		if w == 0 {
			continue
		}
		if len(c.best) < fanout {
			c.best = append(c.best, ranked{place, math.Log(uniform(&c.rng)) / w})
			if len(c.best) == fanout {
				least = leastOf(c.best)
				skip = math.Log(uniform(&c.rng)) / c.best[least].key
			}
			continue
		}
		if skip -= w; skip > 0 {
			continue
		}
		// The key is uniform among those that get in.
		in := math.Exp(c.best[least].key * w)
		c.best[least] = ranked{place, math.Log(in+(1-in)*uniform(&c.rng)) / w}
		least = leastOf(c.best)
		skip = math.Log(uniform(&c.rng)) / c.best[least].key
	}
	for _, b := range c.best {
		dst = c.appendNew(int(g.Indices[from+int64(b.place)]), dst)
	}
	return dst
}

// leastOf returns the index of the least key.
func leastOf(best []ranked) int {
	least := 0
	for i := range best {
		if best[i].key < best[least].key {
			least = i
		}
	}
	return least
}

// uniform draws from (0, 1).
func uniform(r *rand.PCG) float64 { return (float64(r.Uint64()>>12) + 0.5) / (1 << 52) }

// SetWeights gives the graph exponentially distributed weights, mean 1, that the seed fixes.
func (g *Graph) SetWeights(seed uint64) {
	g.Weights = make([]float32, len(g.Indices))
	forEachBlock((len(g.Indices)+edgeBlock-1)/edgeBlock, func(b int) {
		r := newStream(seed, purposeWeights, uint64(b))
		block := g.Weights[b*edgeBlock : min((b+1)*edgeBlock, len(g.Weights))]
		for i := range block {
			block[i] = float32(-math.Log(uniform(r)))
		}
	})
}
