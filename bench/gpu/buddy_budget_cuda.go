//go:build cuda && linux

package gpu

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/kernels"
)

// What the cases of a table that is larger than the budget are measured with: bfloat16 N(0,1) elements.
var (
	budgetRows  = []int{256, 512, 1024, 1536}
	budgetSkews = []float64{0, 0.6, 0.9, 1.2} // exponents of the rows' frequencies; 0 is uniform
)

const (
	budgetCodec = "rank"
	overBudget  = 1.3 // bytes of the table ÷ budget
	// updateBatch is the rows of an Update, and updateRuns how many are timed.
	updateBatch, updateRuns = 200_000, 6
)

// skewedRows returns row numbers of [0, rows): row r has a frequency of (r + 1)^-exponent.
func skewedRows(n int, rows int64, exponent float64, seed uint64) []int64 {
	if exponent == 0 {
		return randomRows(n, 0, rows, seed)
	}
	rng, all, power := rand.New(rand.NewPCG(seed, 6)), make([]int64, n), 1-exponent
	most := math.Pow(float64(rows+1), power)
	for i := range all {
		all[i] = min(rows-1, int64(math.Pow(1+rng.Float64()*(most-1), 1/power))-1)
	}
	return all
}

// budgeted returns a cache of a table that is overBudget times the budget, resident or cached. Cached are the first rows, which the skewed
// batches read most.
func (r *runner) budgeted(source []byte, rowBytes int, resident bool) *cache.Cache {
	x := get(cache.FromBytes("halves", dtype.BFloat16, source, rowBytes))
	if resident {
		x = x.ResidentWith(cache.ResidentOptions{MaxOverflow: 1})
	}
	return get(cache.New(cache.Options{
		Tables: []cache.Table{x}, Budget: int64(float64(len(source)) / overBudget), Codec: budgetCodec, Seed: seed,
		Devices: cache.DeviceOptions{Backend: "cuda"}, Host: cache.HostOptions{NoEqualRows: true},
		Admission: cache.AdmissionOptions{Policy: admission.NewStaticFrequency()},
	}))
}

// timeOf returns the median seconds of a cache's Gathers, after so many untimed ones, and compares what the last one wrote.
func (r *runner) timeOf(c *cache.Cache, source []byte, rowBytes, before int, t turns) float64 {
	out := r.alloc(int64(t.size() * rowBytes))
	g := gathererOf(c, 0, r.stream)
	for i := range before {
		must(g.gather(t.rows[i%sets], out))
	}
	var pending []*cache.Batch
	var seconds float64
	err := try(func() {
		seconds = r.time(func(i int) error {
			b, err := g.begin(t.rows[i%sets], out)
			if err == nil {
				pending = append(pending, b)
			}
			return err
		})
	})
	for _, b := range pending {
		err = errors.Join(err, b.Wait())
	}
	must(err)
	check(r.d, "Gather", out, source, t.last(r.o.Runs), rowBytes)
	return seconds
}

// managed returns managed memory with the data, of which so many of the first bytes are advised and prefetched to the device, and the others to the
// host, where the device reads them over the link. It is nil if the GPU and the host cannot use managed memory at the same time.
func (r *runner) managed(source []byte, hot int64) *device.Buffer {
	b, err := r.d.AllocManaged(int64(len(source)), "benchmark")
	if errors.Is(err, cuda.ErrUnsupported) {
		return nil
	}
	must(err)
	r.buffers = append(r.buffers, b)
	copy(b.Bytes(), source)
	must(r.d.SettleManaged(b, hot))
	return &b
}

// buddyBudget reads a table 1.3 times as large as the budget, all of it resident, at several skews: beside a plain gather from a table that
// fits, a cache with the same budget, and uncompressed rows, the hot ones in the device's memory and the others read over the link: from
// page-locked memory, and as managed memory. A device of the budget's size is emulated by where rows are told to lie, so that no more managed
// memory is allocated than the GPU has free.
func (r *runner) buddyBudget() {
	half := r.halfRows()
	for _, rowBytes := range budgetRows {
		source := whole(half.host.Bytes(), rowBytes)
		rows := int64(len(source) / rowBytes)
		batches := make([]turns, len(budgetSkews))
		for i, exponent := range budgetSkews {
			batches[i] = r.batches(func(set uint64) []int64 { return skewedRows(r.o.Batch, rows, exponent, set) })
		}
		kept := len(r.buffers)
		// seconds are those of the cache, by skew.
		seconds := func(resident bool) (all []float64, s *cache.ResidentStats) {
			c := r.budgeted(source, rowBytes, resident)
			err := try(func() {
				for _, t := range batches {
					all = append(all, r.timeOf(c, source, rowBytes, learningRuns/4, t))
					r.freeFrom(kept)
				}
				s = get(c.Stats()).Tables[0].Resident
			})
			must(errors.Join(err, c.Close()))
			return all, s
		}
		own, stats := seconds(true)
		cached, _ := seconds(false)
		hot := min(rows, int64(float64(len(source))/overBudget)/int64(rowBytes+4))
		places := make([]uint32, rows)
		for i := range places {
			if places[i] = uint32(i); int64(i) >= hot {
				places[i] = math.MaxUint32
			}
		}
		placesMem, hotMem := r.put(asBytes(places)), half.mem.Slice(0, hot*int64(rowBytes))
		managed := r.managed(source, int64(float64(len(source))/overBudget))
		kept = len(r.buffers)
		for i, exponent := range budgetSkews {
			out := r.alloc(int64(r.o.Batch * rowBytes))
			plain := batches[i].plain(half.mem, out, rowBytes)
			mixed := batches[i].plain(half.host, out, rowBytes)
			for _, k := range mixed {
				k.(*kernels.Gather).Hot, k.(*kernels.Gather).Places = hotMem, placesMem
			}
			speed := func(seconds float64) float64 { return float64(r.o.Batch*rowBytes) / 1e9 / seconds }
			link := speed(r.launches(mixed))
			res := Result{
				Case: "buddy-budget", RowBytes: rowBytes, Codec: budgetCodec, TableBytes: int64(len(source)), Batch: r.o.Batch, Unit: "GB/s", DType: "bfloat16", Skew: &exponent,
				Value: speed(own[i]), Baseline: "plain gather, uncompressed, of a table that fits", BaselineValue: speed(r.launches(plain)),
				Further: []Further{{Cached, speed(cached[i])}, {HotZeroCopy, link}},
				Detail: fmt.Sprintf("skew %g, table 1.3 × budget, target %d, %.1f %% of the rows overflow; cached %.1f GB/s, zero-copy with hot rows %.1f GB/s", exponent,
					stats.TargetBytes, 100*float64(stats.OverflowRows)/float64(rows), speed(cached[i]), link),
			}
			if managed != nil {
				moved := speed(r.launches(batches[i].plain(*managed, out, rowBytes)))
				check(r.d, Managed, out, source, batches[i].last(r.o.Runs), rowBytes)
				res.Further = append(res.Further, Further{Managed, moved})
				res.Detail += fmt.Sprintf(", managed %.1f GB/s", moved)
			}
			r.add(res)
			r.freeFrom(kept)
		}
		r.free()
	}
}

// updatesOf returns Updates of n rows that follow each other of a resident table, which is opened with a codec: each writes other rows, with what they have.
func (r *runner) updatesOf(source []byte, rowBytes, n int, codec cache.Codec) (c *cache.Cache, update func(i int) error) {
	x := get(cache.FromBytes("normals", dtype.Float32, source, rowBytes)).ResidentWith(cache.ResidentOptions{MaxOverflow: 1})
	c = get(cache.New(cache.Options{
		Tables: []cache.Table{x}, Budget: 2 * r.o.TableBytes, Codec: codec, Seed: seed, Devices: cache.DeviceOptions{Backend: "cuda"},
		Host: cache.HostOptions{Overlay: int64(4 * n * (rowBytes + 32))},
	}))
	return c, func(i int) error {
		first := i * n % max(1, len(source)/rowBytes-n)
		ids := make([]int64, n)
		for k := range ids {
			ids[k] = int64(first + k)
		}
		return c.Update(context.Background(), 0, ids, source[first*rowBytes:][:n*rowBytes])
	}
}

// buddyUpdates measures Updates of a resident table from host memory, and Gathers beside them. GPUs encode rows of codecName; beside these are Updates of rows
// that need not be encoded, and of a codec that processors encode.
func (r *runner) buddyUpdates() {
	const rowBytes = 256
	source := whole(r.normalRows().host.Bytes(), rowBytes)
	n := min(updateBatch, len(source)/rowBytes)
	var further []Further
	for _, codec := range []cache.Codec{"none", "zipnn"} {
		c, update := r.updatesOf(source, rowBytes, n, codec)
		var took float64
		err := try(func() { took = clock(updateRuns, update) })
		must(errors.Join(err, c.Close()))
		further = append(further, Further{string(codec), float64(n) / took / 1e6})
	}
	c, update := r.updatesOf(source, rowBytes, n, codecName)
	err := try(func() {
		batches := r.batches(func(set uint64) []int64 { return randomRows(r.o.Batch, 0, int64(len(source)/rowBytes), set) })
		out := r.alloc(int64(batches.size() * rowBytes))
		g := gathererOf(c, 0, r.stream)
		reads := func() float64 {
			return r.time(func(i int) error { return g.gather(batches.rows[i%sets], out) })
		}
		alone := reads()
		took := clock(updateRuns, update)
		var stop atomic.Bool
		var updates atomic.Int64
		var failed error
		var others sync.WaitGroup
		start := time.Now()
		others.Go(func() {
			for i := 0; !stop.Load() && failed == nil; i++ {
				failed = update(i)
				updates.Add(1)
			}
			stop.Store(true)
		})
		var all []float64
		for updates.Load() < updateRuns && !stop.Load() {
			all = append(all, reads())
		}
		beside := median(all)
		rate := float64(updates.Load()) * float64(n) / time.Since(start).Seconds()
		stop.Store(true)
		others.Wait()
		must(failed)
		must(c.Check(true))
		r.add(Result{
			Case: "buddy-updates", RowBytes: rowBytes, Codec: codecName, TableBytes: int64(len(source)), Batch: n, Unit: "M rows/s", Value: float64(n) / took / 1e6,
			Further: further, Detail: fmt.Sprintf("Updates alone; with none %.2f, with zipnn, which processors encode, %.2f M rows/s", further[0].Value, further[1].Value),
		})
		speed := func(seconds float64) float64 { return float64(batches.size()*rowBytes) / 1e9 / seconds }
		r.add(Result{
			Case: "buddy-updates", RowBytes: rowBytes, Codec: codecName, TableBytes: int64(len(source)), Batch: batches.size(), Unit: readUnit, Value: speed(beside),
			Baseline: "Gathers alone", BaselineValue: speed(alone), Detail: fmt.Sprintf("Gathers beside updates of %.2f M rows/s", rate/1e6),
		})
		r.free()
	})
	must(errors.Join(err, c.Close()))
}
