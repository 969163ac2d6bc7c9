//go:build cuda && linux

package gpu

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab/placement"
)

// MeasureRates measures Gathers of a cache over the GPUs, whose table is of N(0,1) float32 rows, by the host's clock. All GPUs run at once,
// and the slowest counts. Measured.Devices and Measured.Pairs are plain reads of uncompressed rows: of each GPU's own memory and of
// page-locked memory in order, on all GPUs at once, and of each other's memory, one pair after the other.
func MeasureRates(o RateOptions) (m placement.Measured, err error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return m, err
	}
	if len(o.GPUs) == 0 {
		for i := range min(cuda.Count(), 8) {
			o.GPUs = append(o.GPUs, i)
		}
	}
	devices, err := cuda.OpenGPUs(o.GPUs)
	if err != nil {
		return m, err
	}
	err = try(func() { m = measureRates(o, devices) })
	for _, d := range devices {
		err = errors.Join(err, d.Close())
	}
	return m, errors.Join(err, m.Validate())
}

// reader is a device that reads rows.
type reader struct {
	*runner
	index         int // among the readers
	mem, host     device.Buffer
	out           device.Buffer
	rows, inOrder device.Buffer
}

// together runs a measurement on all devices at once and returns what each returned.
func together[D, T any](all []D, measure func(D) T) []T {
	var wg sync.WaitGroup
	results, errs := make([]T, len(all)), make([]error, len(all))
	for i, d := range all {
		wg.Go(func() { errs[i] = try(func() { results[i] = measure(d) }) })
	}
	wg.Wait()
	must(errors.Join(errs...))
	return results
}

func measureRates(o RateOptions, devices []device.Device) placement.Measured {
	m := placement.Measured{RowBytes: o.RowBytes, Batch: o.Batch, Source: fmt.Sprintf("%d × %s", len(devices), devices[0].Info().Name)}
	var all []*reader
	for i, d := range devices {
		r := &reader{runner: &runner{o: Options{Runs: o.Runs}, d: d.(*cuda.Device)}, index: i}
		defer r.release()
		r.open()
		r.mem, r.host = r.alloc(o.TableBytes), get(r.d.AllocHost(o.TableBytes, "rates"))
		r.kept = append(r.kept, r.host)
		r.out = r.alloc(int64(o.Batch * o.RowBytes))
		rows := randomRows(o.Batch, 0, o.TableBytes/int64(o.RowBytes), uint64(d.Info().Index))
		r.rows = r.put(asBytes(rows))
		slices.Sort(rows)
		r.inOrder = r.put(asBytes(rows))
		all = append(all, r)
	}
	plain := func(r *reader, mem, rows device.Buffer) float64 { // GB/s
		k := &kernels.Gather{Mem: mem, Rows: rows, Out: r.out, RowBytes: o.RowBytes}
		return float64(o.Batch*o.RowBytes) / 1e9 / max(1e-9, r.time(func(int) error { return r.stream.Launch(k) }))
	}
	locals := together(all, func(r *reader) float64 { return plain(r, r.mem, r.rows) })
	hosts := together(all, func(r *reader) float64 { return plain(r, r.host, r.inOrder) })
	peers := len(all) > 1
	for i, r := range all {
		m.Devices = append(m.Devices, placement.DeviceRates{Index: r.d.Info().Index, Local: locals[i], Host: hosts[i]})
		for _, of := range all {
			if r == of {
				continue
			}
			if !r.d.CanRead(of.d) {
				peers = false
				continue
			}
			m.Pairs = append(m.Pairs, placement.PairRate{From: r.d.Info().Index, To: of.d.Info().Index, Rate: plain(r, of.mem, r.rows)})
		}
	}
	if !peers {
		all = all[:1]
	}
	m.Rates = gatherRates(o, all)
	return m
}

// gathering is a cache over the devices, whose Gathers are timed. It holds the table's first rows, each in one slab.
type gathering struct {
	o            RateOptions
	cache        *cache.Cache
	all          []*reader
	cached, rows int64
	owner        *placement.Partition // says in which device's slab a cached row is
}

// missesOf is the share of misses in the batches that measure misses: a fifth. Misses take longer than hits then.
const missesOf = 5

// gatherRates times batches of own hits, of peers' hits, and of own hits with misses. A batch takes as long as its hits or as its misses,
// whichever is longer: that is the cost model.
func gatherRates(o RateOptions, all []*reader) placement.Rates {
	g := &gathering{o: o, all: all}
	defer func() {
		if g.cache != nil {
			must(g.cache.Close())
		}
	}()
	g.open()
	many := max(1, o.Batch/missesOf)
	few := max(1, many/2)
	hit := g.nanos(true, 0) / float64(o.Batch)
	mixed := g.nanos(true, many)
	miss := mixed / float64(many)
	if many > few { // what more misses cost, unless hits were what took long
		miss = max(miss, (mixed-g.nanos(true, few))/float64(many-few))
	}
	t := get(g.cache.Stats()).Tables[0]
	stored := float64(t.StoredBytes) / float64(t.Rows)
	r := placement.Rates{Local: float64(o.RowBytes) / hit, Host: stored / miss}
	r.Peer = r.Host // without peers, nothing is read from them
	if len(all) > 1 {
		r.Peer = stored / (g.nanos(false, 0) / float64(o.Batch))
	}
	return r
}

// open makes the cache.
func (g *gathering) open() {
	n := len(g.all)
	source := whole(g.all[0].host.Bytes(), g.o.RowBytes)
	normals(int64(len(source))).fill(source)
	options := cache.Options{
		Devices: cache.DeviceOptions{Count: n, Placement: cache.PlacementPartition}, Budget: int64(len(source) / 8 / n), Admission: cache.AdmissionOptions{Policy: admission.NewStaticFrequency()},
	}
	for _, r := range g.all {
		options.Devices.GPUs = append(options.Devices.GPUs, r.d.Info().Index)
	}
	g.cache = newCache(source, g.o.RowBytes, options)
	t := get(g.cache.Stats()).Tables[0]
	g.rows, g.cached = t.Rows, t.CachedRows
	g.owner = placement.NewPartition(slices.Repeat([]int64{1}, n))
}

// hits returns cached rows in a device's own slab, or in the others.
func (g *gathering) hits(device int, own bool) (rows []int64) {
	for row := range g.cached * 9 / 10 { // the last rows may have found no room in some slab
		if (g.owner.Owner(hashmap.Key(0, row)) == device) == own {
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 || g.cached >= g.rows/2 {
		must(fmt.Errorf("rates: table (%d rows, of which %d are cached) is too small", g.rows, g.cached))
	}
	return rows
}

// nanos returns the median nanoseconds of a batch on the slowest device. The batch has so many misses. Its hits are in the device's own
// slab, or in others.
func (g *gathering) nanos(own bool, misses int) float64 {
	before := get(g.cache.Stats())
	seconds := together(g.all, func(r *reader) float64 {
		hits := g.hits(r.index, own)
		defer r.freeFrom(len(r.buffers))
		t := r.batches(func(set uint64) []int64 {
			random := rand.New(rand.NewPCG(uint64(r.index), set))
			rows := randomRows(g.o.Batch, g.cached*11/10, g.rows, set)
			for i := misses; i < len(rows); i++ {
				rows[i] = hits[random.IntN(len(hits))]
			}
			random.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
			return rows
		})
		gatherer := gathererOf(g.cache, r.index, r.stream)
		var times []float64
		for i := range (warmups + g.o.Runs) * sets {
			start := time.Now()
			must(gatherer.gather(t.rows[i%sets], r.out))
			if i >= warmups*sets {
				times = append(times, time.Since(start).Seconds())
			}
		}
		return median(times)
	})
	t := get(g.cache.Stats()).Sub(before).Tables[0]
	if own && t.PeerHits > t.Lookups/100 || !own && t.LocalHits > t.Lookups/100 {
		must(fmt.Errorf("rates: rows lie elsewhere than they should: %d hits are in the own slab, %d in peers'", t.LocalHits, t.PeerHits))
	}
	return slices.Max(seconds) * 1e9
}
