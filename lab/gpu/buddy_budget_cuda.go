//go:build cuda && linux

package gpu

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/kernels"
)

// What a table that is larger than the budget is measured with: bfloat16 N(0,1) elements.
var (
	budgetRows  = []int{256, 512, 1024, 1536}
	budgetSkews = []float64{0, 0.6, 0.9, 1.2} // exponents of the rows' frequencies; 0 is uniform
)

const (
	overBudget = 1.3 // bytes of the table ÷ budget
	// budgetCodec is the fastest one by which the table fits.
	budgetCodec = "rank"
)

// skewedRows returns row numbers of [0, rows): row r has a frequency of (r + 1)^-exponent. REQUIRES: the exponent is not 1.
func skewedRows(n int, rows int64, exponent float64, seed uint64) []int64 {
	rng, all, power := rand.New(rand.NewPCG(seed, 6)), make([]int64, n), 1-exponent
	most := math.Pow(float64(rows+1), power)
	for i := range all {
		all[i] = min(rows-1, int64(math.Pow(1+rng.Float64()*(most-1), 1/power))-1)
	}
	return all
}

func (r *runner) buddyBudget() {
	for _, rowBytes := range budgetRows {
		r.budgetOf(r.halfRows(), rowBytes)
		r.free()
	}
}

// budgetOf reads a table, all of it resident, at several skews: beside a plain gather from a table that fits, a cache with the same budget, and uncompressed rows,
// the hot ones in the device's memory and the others read over the link: from page-locked memory, and as managed memory. A device of the budget's size is
// emulated by where rows are told to lie.
func (r *runner) budgetOf(of *table, rowBytes int) {
	source := whole(of.host.Bytes(), rowBytes)
	rows, budget := int64(len(source)/rowBytes), int64(float64(len(source))/overBudget)
	out := r.alloc(int64(r.o.Batch * rowBytes))
	speed := func(seconds float64) float64 { return float64(r.o.Batch*rowBytes) / 1e9 / seconds }

	open := func(as func(cache.Table) cache.Table) *cache.Cache {
		x := as(get(cache.FromBytes("halves", dtype.BFloat16, source, rowBytes)))
		return newCache(nil, 0, cache.Options{Tables: []cache.Table{x}, Budget: budget, Codec: budgetCodec, Admission: cache.AdmissionOptions{Policy: admission.NewStaticFrequency()}})
	}
	resident := open(cache.Table.Resident)
	defer resident.Close()
	cached := open(func(x cache.Table) cache.Table { return x }) // the first rows, which are read most
	defer cached.Close()
	read := func(c *cache.Cache, t turns) float64 {
		g := gathererOf(c, 0, r.stream)
		for i := range learningRuns / 4 {
			must(g.gather(t.rows[i%sets], out))
		}
		seconds := r.timeBatches(r.o.Runs, nil, func(i int) (*cache.Batch, error) { return g.begin(t.rows[i%sets], out) })
		check(r.d, "Gather", out, source, t.last(r.o.Runs), rowBytes)
		return speed(seconds)
	}

	hot := budget / int64(rowBytes+4)
	places := make([]uint32, rows)
	for i := range places {
		if places[i] = uint32(i); int64(i) >= hot {
			places[i] = math.MaxUint32
		}
	}
	placesMem, hotMem := r.put(asBytes(places)), of.mem.Slice(0, hot*int64(rowBytes))
	managed := device.Buffer{} // none if the GPU and the host cannot use managed memory at the same time
	if b, err := r.d.AllocManaged(int64(len(source)), "benchmark"); !errors.Is(err, cuda.ErrUnsupported) {
		must(err)
		managed, r.buffers = b, append(r.buffers, b)
		copy(b.Bytes(), source)
		must(r.d.SettleManaged(b, budget))
	}
	for _, exponent := range budgetSkews {
		t := r.batches(func(set uint64) []int64 { return skewedRows(r.o.Batch, rows, exponent, set) })
		mixed := t.plain(of.host, out, rowBytes)
		for _, k := range mixed {
			k.(*kernels.Gather).Hot, k.(*kernels.Gather).Places = hotMem, placesMem
		}
		res := Result{
			Case: "buddy-budget", RowBytes: rowBytes, Codec: budgetCodec, Variant: skewOf(exponent), TableBytes: int64(len(source)), Batch: r.o.Batch, Unit: "GB/s", DType: "bfloat16",
			Value: read(resident, t), Baseline: "plain gather, uncompressed, of a table that fits", BaselineValue: speed(r.launches(t.plain(of.mem, out, rowBytes))),
			Further: []Further{{Name: "cached, the same budget", Value: read(cached, t)}, {Name: "zero-copy, hot rows in device memory", Value: speed(r.launches(mixed))}},
		}
		if managed.Size() > 0 {
			res.Further = append(res.Further, Further{Name: "managed memory, advised and prefetched", Value: speed(r.launches(t.plain(managed, out, rowBytes)))})
			check(r.d, "managed memory", out, source, t.last(r.o.Runs), rowBytes)
		}
		s := get(resident.Stats()).Tables[0].Resident
		res.Detail = fmt.Sprintf("target %d, %.1f %% of the rows overflow", s.TargetBytes, 100*float64(s.OverflowRows)/float64(rows))
		for _, f := range res.Further {
			res.Detail += fmt.Sprintf("; %s %.1f GB/s", f.Name, f.Value)
		}
		r.add(res)
	}
}
