//go:build cuda && linux

package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/tensorcache/tensorcache/bench/dataset"
	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/kernels"
)

// What the cases of a table that is larger than the budget are measured with: bfloat16 N(0,1) elements, and rows made of others'.
var (
	budgetRows  = []int{256, 512, 1024, 1536}
	budgetSkews = []float64{0, 0.6, 0.9, 1.2} // exponents of the rows' frequencies; 0 is uniform
)

const (
	overBudget = 1.3 // bytes of the table ÷ budget
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
// batches read most. It is nil if the table does not fit as a resident one by that codec.
func (r *runner) budgeted(source []byte, rowBytes int, codec cache.Codec, resident bool) *cache.Cache {
	x := get(cache.FromBytes("halves", dtype.BFloat16, source, rowBytes))
	if resident {
		x = x.Resident()
	}
	c, err := cache.New(cache.Options{
		Tables: []cache.Table{x}, Budget: int64(float64(len(source)) / overBudget), Codec: codec, Seed: seed,
		Devices: cache.DeviceOptions{Backend: "cuda"}, Host: cache.HostOptions{NoEqualRows: true},
		Admission: cache.AdmissionOptions{Policy: admission.NewStaticFrequency()},
	})
	if resident && errors.Is(err, cache.ErrBudget) {
		return nil
	}
	return get(c, err)
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

// userRows returns bytes of table size: rows of rowBytes that consist of rows of an embedding as bfloat16, drawn at random, so that few rows are equal.
func (r *runner) userRows(path string, rowBytes int, size int64) []byte {
	users := get(get(dataset.Load(path)).Cast("bf16"))
	if rowBytes%users.RowBytes != 0 {
		must(fmt.Errorf("rows of %d bytes must be made of whole ones of %d (%s)", rowBytes, users.RowBytes, path))
	}
	all := make([]byte, size/int64(rowBytes)*int64(rowBytes))
	parallel(len(all)/rowBytes, func(from, to int) {
		rng := rand.New(rand.NewPCG(uint64(from), 9))
		for at := from * rowBytes; at < to*rowBytes; at += users.RowBytes {
			copy(all[at:], users.Data[rng.IntN(users.Rows)*users.RowBytes:][:users.RowBytes])
		}
	})
	return all
}

// buddyBudget reads tables 1.3 times as large as the budget: of N(0,1) elements and, where Options.Embedding has some, of rows of an embedding.
func (r *runner) buddyBudget() {
	half := r.halfRows()
	for _, rowBytes := range budgetRows {
		r.budgetOf(whole(half.host.Bytes(), rowBytes), half.mem, half.host, rowBytes, "")
		r.free()
		if r.o.Embedding == "" {
			continue
		}
		host := r.allocHost(r.o.TableBytes / int64(rowBytes) * int64(rowBytes))
		copy(host.Bytes(), r.userRows(r.o.Embedding, rowBytes, r.o.TableBytes))
		r.budgetOf(host.Bytes(), r.put(host.Bytes()), host, rowBytes, Embedding)
		r.free()
	}
}

// A budgetRun is what a table was read with.
type budgetRun struct {
	codec   string
	seconds []float64 // by skew
	stats   *cache.ResidentStats
}

// fits returns the rows' reads by every lossless codec by which the table fits, the fastest one first. The others are read at the first skew only.
func (r *runner) fits(source []byte, rowBytes int, batches []turns) (all []budgetRun) {
	read := func(codec string, batches []turns) (run budgetRun) {
		c := r.budgeted(source, rowBytes, cache.Codec(codec), true)
		if c == nil {
			return run
		}
		run.codec = codec
		kept := len(r.buffers)
		err := try(func() {
			for _, t := range batches {
				run.seconds = append(run.seconds, r.timeOf(c, source, rowBytes, learningRuns/4, t))
				r.freeFrom(kept)
			}
			run.stats = get(c.Stats()).Tables[0].Resident
		})
		must(errors.Join(err, c.Close()))
		return run
	}
	for _, codec := range registry.Concrete() {
		if _, err := registry.Train(codec, make([]byte, 16*rowBytes), rowBytes, dtype.BFloat16); err != nil {
			continue // not of such rows
		}
		if run := read(codec, batches[:1]); run.codec != "" {
			all = append(all, run)
		}
	}
	if len(all) == 0 {
		must(fmt.Errorf("no codec makes rows of %d bytes fit", rowBytes))
	}
	slices.SortFunc(all, func(a, b budgetRun) int { return cmp.Compare(a.seconds[0], b.seconds[0]) })
	all[0] = read(all[0].codec, batches)
	return all
}

// chosen returns the codec that CodecAuto picks for the resident table.
func (r *runner) chosen(source []byte, rowBytes int) string {
	c := r.budgeted(source, rowBytes, cache.CodecAuto, true)
	if c == nil {
		return "none that fits"
	}
	s, err := c.Stats()
	must(errors.Join(err, c.Close()))
	return s.Tables[0].Codec
}

// budgetOf reads a table that is in device memory and in page-locked memory, too, all of it resident by the codec that is the fastest of those by which it
// fits, at several skews: beside a plain gather from a table that fits, a cache with the same budget, and uncompressed rows, the hot ones in the device's
// memory and the others read over the link: from page-locked memory, and as managed memory. A device of the budget's size is emulated by where rows are
// told to lie, so that no more managed memory is allocated than the GPU has free.
func (r *runner) budgetOf(source []byte, mem, host device.Buffer, rowBytes int, variant string) {
	rows := int64(len(source) / rowBytes)
	batches := make([]turns, len(budgetSkews))
	for i, exponent := range budgetSkews {
		batches[i] = r.batches(func(set uint64) []int64 { return skewedRows(r.o.Batch, rows, exponent, set) })
	}
	kept := len(r.buffers)
	all, auto := r.fits(source, rowBytes, batches), r.chosen(source, rowBytes)
	own := all[0]
	cached := make([]float64, len(batches))
	c := r.budgeted(source, rowBytes, cache.Codec(own.codec), false)
	err := try(func() {
		for i, t := range batches {
			cached[i] = r.timeOf(c, source, rowBytes, learningRuns/4, t)
			r.freeFrom(kept)
		}
	})
	must(errors.Join(err, c.Close()))
	hot := min(rows, int64(float64(len(source))/overBudget)/int64(rowBytes+4))
	places := make([]uint32, rows)
	for i := range places {
		if places[i] = uint32(i); int64(i) >= hot {
			places[i] = math.MaxUint32
		}
	}
	placesMem, hotMem := r.put(asBytes(places)), mem.Slice(0, hot*int64(rowBytes))
	managed := r.managed(source, int64(float64(len(source))/overBudget))
	kept = len(r.buffers)
	speed := func(seconds float64) float64 { return float64(r.o.Batch*rowBytes) / 1e9 / seconds }
	for i, exponent := range budgetSkews {
		out := r.alloc(int64(r.o.Batch * rowBytes))
		plain := batches[i].plain(mem, out, rowBytes)
		mixed := batches[i].plain(host, out, rowBytes)
		for _, k := range mixed {
			k.(*kernels.Gather).Hot, k.(*kernels.Gather).Places = hotMem, placesMem
		}
		link := speed(r.launches(mixed))
		res := Result{
			Case: "buddy-budget", RowBytes: rowBytes, Codec: own.codec, Variant: variant, TableBytes: int64(len(source)), Batch: r.o.Batch, Unit: "GB/s", DType: "bfloat16", Skew: &exponent,
			Value: speed(own.seconds[i]), Baseline: "plain gather, uncompressed, of a table that fits", BaselineValue: speed(r.launches(plain)),
			Further: []Further{{Cached, speed(cached[i])}, {HotZeroCopy, link}},
			Detail: fmt.Sprintf("skew %g, table 1.3 × budget, target %d, %.1f %% of the rows overflow; cached %.1f GB/s, zero-copy with hot rows %.1f GB/s", exponent,
				own.stats.TargetBytes, 100*float64(own.stats.OverflowRows)/float64(rows), speed(cached[i]), link),
		}
		if i == 0 {
			for _, other := range all[1:] {
				res.Further = append(res.Further, Further{other.codec, speed(other.seconds[0])})
				res.Detail += fmt.Sprintf(", %s %.1f GB/s", other.codec, speed(other.seconds[0]))
			}
			res.Detail += ", auto picks " + auto
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
}
