// Command sage embeds the cache in a small GraphSAGE-style sampler: a generated graph, vertex features behind the
// cache, and the mean of each seed's sampled neighbourhood, computed on the host. While the features of one batch are
// aggregated, those of the next are gathered.
//
//	go run ./examples/sage
package main

import (
	"context"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
)

const (
	vertices  = 50_000
	degree    = 12 // out-neighbours of each vertex
	columns   = 64 // features of each vertex
	fanout    = 8  // neighbours sampled of each vertex, in each of two hops
	seeds     = 128
	batches   = 40
	budget    = vertices * columns * 4 / 10 // bytes for each device: a tenth of the features
	graphSeed = 1
)

// graph holds the out-neighbours of vertex v at neighbours[v × degree:], popular targets more often than others.
type graph struct{ neighbours []int32 }

func newGraph(r *rand.Rand) *graph {
	targets := rand.NewZipf(r, 1.1, 20, vertices-1)
	names := r.Perm(vertices) // so that popular vertices do not lie side by side
	g := &graph{neighbours: make([]int32, vertices*degree)}
	for i := range g.neighbours {
		g.neighbours[i] = int32(names[targets.Uint64()])
	}
	return g
}

// inDegrees counts the edges that arrive at each vertex.
func (g *graph) inDegrees() []uint32 {
	n := make([]uint32, vertices)
	for _, v := range g.neighbours {
		n[v]++
	}
	return n
}

// batch is a sampled neighbourhood, and its features once they are gathered.
type batch struct {
	rows     []int64       // every vertex of the batch once; the seeds come first
	edges    [2][][2]int32 // of each hop: places in rows of an edge's source and target
	features []float32
	layer    []float32 // what features become in one hop
	place    map[int64]int32
	pending  *cache.Pending
}

// sample draws random seeds, neighbours of theirs, and neighbours of all of them.
func (b *batch) sample(g *graph, r *rand.Rand) {
	b.rows = b.rows[:0]
	clear(b.place)
	for len(b.rows) < seeds {
		b.add(r.Int64N(vertices))
	}
	for hop := range b.edges {
		b.edges[hop] = b.edges[hop][:0]
		for from, v := range b.rows { // those of the hops before
			for _, i := range r.Perm(degree)[:fanout] {
				to := b.add(int64(g.neighbours[int(v)*degree+i]))
				b.edges[hop] = append(b.edges[hop], [2]int32{int32(from), to})
			}
		}
	}
}

// add returns the vertex's place in the batch, appending it if it is new.
func (b *batch) add(v int64) int32 {
	if i, ok := b.place[v]; ok {
		return i
	}
	b.place[v] = int32(len(b.rows))
	b.rows = append(b.rows, v)
	return b.place[v]
}

// gather starts reading the features of the batch.
func (b *batch) gather(c *cache.Cache) {
	b.features = slices.Grow(b.features[:0], len(b.rows)*columns)[:len(b.rows)*columns]
	b.pending = c.GatherAsync(context.Background(), cache.Request{Rows: b.rows, Out: cache.AsBytes(b.features)})
}

// aggregate replaces the features of each vertex by the mean of its own and its sampled neighbours', once a hop, the
// outer one first. It returns the sum over the seeds.
func (b *batch) aggregate() (sum float64) {
	for _, edges := range slices.Backward(b.edges[:]) {
		b.layer = append(b.layer[:0], b.features...)
		for ; len(edges) > 0; edges = edges[fanout:] { // the edges of one vertex
			mean := b.layer[int(edges[0][0])*columns:][:columns]
			for _, e := range edges[:fanout] {
				for i, x := range b.features[int(e[1])*columns:][:columns] {
					mean[i] += x
				}
			}
			for i := range mean {
				mean[i] /= fanout + 1
			}
		}
		b.features, b.layer = b.layer, b.features
	}
	for _, x := range b.features[:seeds*columns] {
		sum += float64(x)
	}
	return sum
}

func main() {
	log.SetFlags(0)
	r := rand.New(rand.NewPCG(graphSeed, 1))
	g := newGraph(r)
	values := make([]float32, vertices*columns)
	for i := range values { // each column has its own scale; all are measured in steps of 1/256
		scale := math.Exp2(float64(i % columns % 5))
		values[i] = float32(math.Round(256*scale*r.NormFloat64())) / 256
	}
	table, err := cache.FromSlice("features", values, columns)
	if err != nil {
		log.Fatal(err)
	}
	c, err := cache.New(cache.Options{
		Tables: []cache.Table{table}, GPUMemory: budget, Admission: cache.AdmissionOptions{Policy: admission.NewStaticDegree(g.inDegrees())},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	begin, sum := time.Now(), 0.0
	now, next := &batch{place: map[int64]int32{}}, &batch{place: map[int64]int32{}}
	next.sample(g, r)
	next.gather(c)
	for i := range batches {
		now, next = next, now
		if i+1 < batches {
			next.sample(g, r)
			next.gather(c)
		}
		if err := now.pending.Wait(); err != nil {
			log.Fatal(err)
		}
		sum += now.aggregate()
	}
	took := time.Since(begin)

	s, err := c.Stats()
	if err != nil {
		log.Fatal(err)
	}
	t := s.Tables[0]
	fmt.Printf("graph     %d vertices, %d edges, %d features each\n", vertices, len(g.neighbours), columns)
	fmt.Printf("cache     %d of %d rows in %d of %d bytes, codec %s\n", t.CachedRows, t.Rows, s.PayloadBytes+s.MetadataBytes, s.BudgetBytes, t.Codec)
	fmt.Printf("lookups   %d in %d batches, %.1f %% hits, %d misses moved %d bytes\n", t.Lookups, batches, 100*float64(t.Hits)/float64(t.Lookups), t.Misses, t.HostBytesMoved)
	fmt.Printf("time      %.1f ms a batch\n", took.Seconds()*1e3/batches)
	fmt.Printf("checksum  %.3f\n", sum)
}
