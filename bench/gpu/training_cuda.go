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

// trainingShape is a table and a batch of training-fetch: what a sampler of a large graph asks for, with fan-outs 15, 10 and 5 of 1,024
// nodes.
type trainingShape struct {
	rowBytes int
	elements dtype.Type
	batch    int
}

var trainingShapes = []trainingShape{
	{512, dtype.Float32, 223_000},
	{256, dtype.BFloat16, 235_000},
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

// moreStreams are the numbers of streams that measure the same depth again.
var moreStreams = []int{2, 4}

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

// trainingFetch measures the fetch of a training loop's batches for each codec, beside one kernel that reads the most popular rows,
// uncompressed, from device memory and all others from page-locked memory.
func (r *runner) trainingFetch() {
	const slack = 4 << 30
	if have, need := get(numa.Available()), 2*r.o.LargeTableBytes+slack; have < need {
		r.skip("training-fetch", "host memory (%d bytes available) must be %d for two tables of %d", have, need, r.o.LargeTableBytes)
		return
	}
	host := get(r.d.AllocHost(r.o.LargeTableBytes, "training table"))
	defer r.d.Free(host)
	for _, shape := range trainingShapes {
		if !slices.Contains(r.o.RowBytes, shape.rowBytes) {
			continue
		}
		values := normals
		if shape.elements == dtype.BFloat16 {
			values = halves
		}
		values(host.Size()).fill(host.Bytes())
		r.trainingShape(host, shape)
		r.free()
	}
}

func (r *runner) trainingShape(host device.Buffer, shape trainingShape) {
	rowBytes := shape.rowBytes
	rows := int64(len(whole(host.Bytes(), rowBytes)) / rowBytes)
	n := min(shape.batch, int(rows/8))
	lists := make([][]int64, trainingBatches+trainingSets)
	parallel(len(lists), func(from, to int) {
		for i := from; i < to; i++ {
			lists[i] = uniqueRows(n, rows, uint64(i))
		}
	})
	streams := []device.Stream{r.stream}
	outs := []device.Buffer{r.alloc(int64(n * rowBytes))}
	for range slices.Max(moreStreams) - 1 {
		stream := get(r.d.NewStream())
		defer stream.Close()
		streams, outs = append(streams, stream), append(outs, r.alloc(int64(n*rowBytes)))
	}
	out := outs[0]
	var ids [trainingSets]device.Buffer
	for i := range ids {
		ids[i] = r.put(asBytes(lists[trainingBatches+i]))
	}
	baseline := r.hotRows(host, lists[:trainingBatches], rows, rowBytes, ids[:], out)
	for _, name := range append([]string{registry.None}, append(slices.Clone(r.o.Codecs), registry.Auto)...) {
		s := &served{runner: r, source: whole(host.Bytes(), rowBytes), rowBytes: rowBytes, rows: rows}
		start := time.Now()
		t := get(cache.FromBytes("features", shape.elements, s.source, rowBytes))
		c, err := cache.New(cache.Options{
			Tables: []cache.Table{t}, Devices: cache.DeviceOptions{Backend: "cuda"}, Codec: cache.Codec(name), Seed: seed,
			Budget: r.o.LargeTableBytes / trainingBudget, Host: cache.HostOptions{NoEqualRows: true},
			Admission: cache.AdmissionOptions{Training: func(yield func(int, []int64) bool) {
				for _, rows := range lists[:trainingBatches] {
					if !yield(0, rows) {
						return
					}
				}
			}},
		})
		if errors.Is(err, codec.ErrDType) {
			continue
		}
		must(err)
		opening := time.Since(start)
		s.cache = c
		gatherers := make([]gatherer, len(streams))
		for i, stream := range streams {
			gatherers[i] = gathererOf(c, 0, stream)
		}
		err = try(func() {
			for _, depth := range queueDepths {
				x := s.result("training-fetch", n)
				x.Codec, x.Unit, x.Baseline, x.BaselineValue = name, "ms", "hot rows in device memory, the others by zero-copy, one kernel", baseline*1e3
				before := get(c.Stats())
				x.Value = queued(gatherers[:1], ids[:], outs, depth) * 1e3
				stats := get(c.Stats())
				after, done := stats.Tables[0], stats.Sub(before).Tables[0]
				last := lists[trainingBatches+(trainingRuns-1)%trainingSets]
				check(r.d, "Gather", out, s.source, last, rowBytes)
				for _, n := range moreStreams {
					if n <= depth {
						x.Further = append(x.Further, Further{fmt.Sprintf("%d streams", n), queued(gatherers[:n], ids[:], outs, depth) * 1e3})
						check(r.d, "Gather", outs[(trainingRuns-1)%n], s.source, last, rowBytes)
					}
				}
				x.DType, x.QueueDepth = shape.elements.String(), depth
				how := after.MissStrategy[0]
				x.Detail = fmt.Sprintf("%d batches under way; %s; %.3f hits; misses %s, %.2f of them by the host; opened in %.1f s", depth, after.Codec,
					float64(done.Hits)/float64(done.Lookups), how.Strategy, how.Fraction, opening.Seconds())
				s.add(x)
			}
		})
		must(err)
		must(c.Close())
	}
}

// queued returns the mean seconds of a batch while depth of them are under way, which take turns on streams that each have an output.
// It is measured by the host's clock, as several streams have no event that all of them wait for.
func queued(streams []gatherer, ids, outs []device.Buffer, depth int) float64 {
	run := func(n int) {
		var batches []*cache.Batch
		for i := range n {
			if i >= depth {
				must(batches[i-depth].Wait())
			}
			batches = append(batches, get(streams[i%len(streams)].begin(ids[i%len(ids)], outs[i%len(streams)])))
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
	counts := make([]uint32, rows)
	for _, list := range training {
		for _, row := range list {
			counts[row]++
		}
	}
	order := make([]int64, 0, rows)
	for row := range rows {
		order = append(order, row)
	}
	slices.SortStableFunc(order, func(a, b int64) int { return int(counts[b]) - int(counts[a]) })
	order = order[:rows/trainingBudget]
	places := counts
	for i := range places {
		places[i] = math.MaxUint32
	}
	hot := get(r.d.Alloc(int64(len(order)*rowBytes), "hot rows"))
	defer r.d.Free(hot)
	for i, row := range order {
		places[row] = uint32(i)
	}
	index := r.put(asBytes(order))
	must(r.stream.Launch(&kernels.Gather{Mem: host, Rows: index, Out: hot, RowBytes: rowBytes}))
	must(r.stream.Synchronize())
	mem := r.put(asBytes(places))
	return r.time(func(i int) error {
		return r.stream.Launch(&kernels.Gather{Mem: host, Rows: ids[i%len(ids)], Out: out, RowBytes: rowBytes, Hot: hot, Places: mem})
	})
}
