//go:build cuda && linux

package gpu

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/internal/numa"
	"github.com/tensorcache/tensorcache/kernels"
)

// trainingShapes are tables and batches of training-fetch: what a sampler of a large graph asks for, with fan-outs 15, 10 and 5 of 1,024 nodes.
var trainingShapes = []struct {
	rowBytes int
	elements dtype.Type
	values   func(bytes int64) pattern
	batch    int
}{
	{512, dtype.Float32, normals, 223_000},
	{256, dtype.BFloat16, halves, 235_000},
}

const (
	// trainingBudget is the share of the table's bytes that is cached: 1/10.
	trainingBudget = 10
	// trainingSkew is the exponent by which lookups fall on rows: the most popular tenth of the rows gets 0.1^0.14 = 0.72 of them, about 0.5 when each row counts once a batch.
	trainingSkew    = 0.14
	trainingBatches = 40 // that the policy learns from
	trainingSets    = 10 // measured batches take turns
	trainingRuns    = 60
)

// queueDepths are how many batches are under way at once.
var queueDepths = []int{1, 16, 64}

// uniqueRows returns n different rows of [0, rows) in random order.
func uniqueRows(n int, rows int64, seed uint64) []int64 {
	rng := rand.New(rand.NewPCG(seed, 5))
	seen := make(map[int64]struct{}, n)
	list := make([]int64, 0, n)
	for len(list) < n {
		rank := int64(float64(rows) * math.Pow(rng.Float64(), 1/trainingSkew))
		row := scatter(min(rank, rows-1), rows)
		if _, ok := seen[row]; !ok {
			seen[row] = struct{}{}
			list = append(list, row)
		}
	}
	return list
}

// trainingFetch measures the fetch of a training loop's batches for each codec, beside one kernel that reads the most popular rows, uncompressed, from
// device memory and all others from page-locked memory.
func (r *runner) trainingFetch() {
	const slack = 4 << 30
	if have, need := get(numa.Available()), 2*r.o.LargeTableBytes+slack; have < need {
		r.skip("training-fetch", "host memory (%d bytes available) must be %d for two tables of %d", have, need, r.o.LargeTableBytes)
		return
	}
	host := get(r.d.AllocHost(r.o.LargeTableBytes, "training table"))
	defer r.d.Free(host)
	for _, shape := range trainingShapes {
		if slices.Contains(r.o.RowBytes, shape.rowBytes) {
			shape.values(host.Size()).fill(host.Bytes())
			r.trainingShape(host, shape.rowBytes, shape.elements, shape.batch)
			r.free()
		}
	}
}

func (r *runner) trainingShape(host device.Buffer, rowBytes int, elements dtype.Type, batch int) {
	source := whole(host.Bytes(), rowBytes)
	rows := int64(len(source) / rowBytes)
	n := min(batch, int(rows/8))
	lists := make([][]int64, trainingBatches+trainingSets)
	parallel(len(lists), func(from, to int) {
		for i := from; i < to; i++ {
			lists[i] = uniqueRows(n, rows, uint64(i))
		}
	})
	learnt, measured := lists[:trainingBatches], lists[trainingBatches:]
	out := r.alloc(int64(n * rowBytes))
	var ids []device.Buffer
	for _, list := range measured {
		ids = append(ids, r.put(asBytes(list)))
	}
	baseline := r.hotRows(host, learnt, rows, rowBytes, ids, out)
	for _, name := range slices.Concat([]string{registry.None}, r.o.Codecs, []string{registry.Auto}) {
		start := time.Now()
		var c *cache.Cache
		err := try(func() {
			c = newCache(nil, 0, cache.Options{
				Tables: []cache.Table{get(cache.FromBytes("features", elements, source, rowBytes))}, Codec: cache.Codec(name), Budget: r.o.LargeTableBytes / trainingBudget,
				Admission: cache.AdmissionOptions{Training: func(yield func(int, []int64) bool) {
					for _, rows := range learnt {
						if !yield(0, rows) {
							return
						}
					}
				}},
			})
		})
		if errors.Is(err, codec.ErrDType) {
			continue
		}
		must(err)
		opening := time.Since(start)
		err = try(func() {
			for _, depth := range queueDepths {
				before := get(c.Stats())
				seconds := queued(gathererOf(c, 0, r.stream), ids, out, depth)
				stats := get(c.Stats())
				check(r.d, "Gather", out, source, measured[(trainingRuns-1)%trainingSets], rowBytes)
				done, how := stats.Sub(before).Tables[0], stats.Tables[0].MissStrategy[0]
				r.add(Result{
					Case: "training-fetch", RowBytes: rowBytes, Codec: name, TableBytes: int64(len(source)), Batch: n, DType: elements.String(), QueueDepth: depth,
					Value: seconds * 1e3, Unit: "ms", Baseline: "hot rows in device memory, the others by zero-copy, one kernel", BaselineValue: baseline * 1e3,
					Detail: fmt.Sprintf("%d batches under way; %s; %.3f hits; misses %s, %.2f of them by the host; opened in %.1f s", depth, stats.Tables[0].Codec,
						float64(done.Hits)/float64(done.Lookups), how.Strategy, how.Fraction, opening.Seconds()),
				})
			}
		})
		must(errors.Join(err, c.Close()))
	}
}

// queued returns the mean seconds of a batch while depth of them are under way, by the host's clock.
func queued(g gatherer, ids []device.Buffer, out device.Buffer, depth int) float64 {
	run := func(n int) {
		var batches []*cache.Batch
		for i := range n {
			if i >= depth {
				must(batches[i-depth].Wait())
			}
			batches = append(batches, get(g.begin(ids[i%len(ids)], out)))
		}
		for _, b := range batches {
			must(b.Wait())
		}
	}
	run(trainingRuns / 2)
	start := time.Now()
	run(trainingRuns)
	return time.Since(start).Seconds() / trainingRuns
}

// hotRows returns the seconds of the baseline.
func (r *runner) hotRows(host device.Buffer, training [][]int64, rows int64, rowBytes int, ids []device.Buffer, out device.Buffer) float64 {
	counts, order := make([]uint32, rows), make([]int64, rows)
	for _, list := range training {
		for _, row := range list {
			counts[row]++
		}
	}
	for row := range order {
		order[row] = int64(row)
	}
	slices.SortStableFunc(order, func(a, b int64) int { return int(counts[b]) - int(counts[a]) })
	order = order[:rows/trainingBudget]
	places := counts
	for i := range places {
		places[i] = math.MaxUint32
	}
	for i, row := range order {
		places[row] = uint32(i)
	}
	hot := r.alloc(int64(len(order) * rowBytes))
	must(r.stream.Launch(&kernels.Gather{Mem: host, Rows: r.put(asBytes(order)), Out: hot, RowBytes: rowBytes}))
	mem := r.put(asBytes(places))
	return r.time(func(i int) error {
		return r.stream.Launch(&kernels.Gather{Mem: host, Rows: ids[i%len(ids)], Out: out, RowBytes: rowBytes, Hot: hot, Places: mem})
	})
}
