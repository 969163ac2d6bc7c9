//go:build cuda && linux

package rates

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/attempt"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab/placement"
)

const (
	// warmups is how often what is timed runs untimed before; sets is how many batches take turns, so that none finds its rows in the device's caches.
	warmups = 3
	sets    = 4
)

// Measure measures Gathers of a cache over the GPUs, whose table is of N(0,1) float32 rows, by the host's clock. All GPUs run at once,
// and the slowest counts. Measured.Devices and Measured.Pairs are plain reads of uncompressed rows: of each GPU's own memory and of
// page-locked memory in order, on all GPUs at once, and of each other's memory, one pair after the other.
func Measure(o Options) (m placement.Measured, err error) {
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
	err = try(func() { m = measure(o, devices) })
	for _, d := range devices {
		err = errors.Join(err, d.Close())
	}
	if err == nil {
		err = m.Validate()
	}
	return m, err
}

// must, get and try end what is being measured at an error: see package attempt.
var (
	must = attempt.Must
	try  = attempt.Try
)

func get[T any](v T, err error) T { return attempt.Get(v, err) }

// reader is a device that reads rows.
type reader struct {
	o             Options
	d             *cuda.Device
	index         int // among the readers
	stream        device.Stream
	timers        [2]device.Timer
	mem, host     device.Buffer
	out           device.Buffer
	rows, inOrder device.Buffer
	memory        []device.Buffer // all that it has
}

func newReader(o Options, d device.Device, index int) *reader {
	return &reader{o: o, d: d.(*cuda.Device), index: index}
}

// open allocates what a reader needs. REQUIRES: close is called, also if this ends what is being measured.
func (r *reader) open() {
	r.stream = get(r.d.NewStream())
	for i := range r.timers {
		r.timers[i] = get(r.d.NewTimer())
	}
	r.mem, r.host, r.out = r.keep(r.d.Alloc(r.o.TableBytes, "rates")), r.keep(r.d.AllocHost(r.o.TableBytes, "rates")), r.keep(r.d.Alloc(int64(r.o.Batch*r.o.RowBytes), "rates"))
	rows := randomRows(r.o.Batch, 0, r.o.TableBytes/int64(r.o.RowBytes), uint64(r.d.Info().Index))
	r.rows = r.put(rows)
	slices.Sort(rows)
	r.inOrder = r.put(rows)
}

func (r *reader) close() {
	for _, b := range r.memory {
		r.d.Free(b)
	}
	for _, t := range r.timers {
		if t != nil {
			t.Close()
		}
	}
	if r.stream != nil {
		r.stream.Close()
	}
}

func (r *reader) keep(b device.Buffer, err error) device.Buffer {
	must(err)
	r.memory = append(r.memory, b)
	return b
}

// put returns device memory with row numbers.
func (r *reader) put(rows []int64) device.Buffer {
	b := r.keep(r.d.Alloc(int64(8*len(rows)), "row numbers"))
	must(device.Upload(r.d, b, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(rows))), 8*len(rows))))
	return b
}

// plain is the GB/s at which a kernel reads rows of memory, by CUDA events.
func (r *reader) plain(mem, rows device.Buffer) float64 {
	k := &kernels.Gather{Mem: mem, Rows: rows, Out: r.out, RowBytes: r.o.RowBytes}
	var times []float64
	for i := range warmups + r.o.Runs {
		must(r.stream.Record(r.timers[0]))
		must(r.stream.Launch(k))
		must(r.stream.Record(r.timers[1]))
		must(r.timers[1].Synchronize())
		if i >= warmups {
			times = append(times, get(r.timers[1].Since(r.timers[0])).Seconds())
		}
	}
	return float64(r.o.Batch*r.o.RowBytes) / 1e9 / max(1e-9, median(times))
}

func median(times []float64) float64 {
	slices.Sort(times)
	return times[len(times)/2]
}

// randomRows returns uniform row numbers of [from, to).
func randomRows(n int, from, to int64, seed uint64) []int64 {
	rng := rand.New(rand.NewPCG(seed, 2))
	rows := make([]int64, n)
	for i := range rows {
		rows[i] = from + rng.Int64N(to-from)
	}
	return rows
}

// normals fills a table with N(0,1) float32 elements. It repeats after 64 MiB.
func normals(table []byte) {
	rng := rand.New(rand.NewPCG(1, 1))
	values := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(table))), min(len(table), 64<<20)/4)
	for i := range values {
		values[i] = float32(rng.NormFloat64())
	}
	for n := 4 * len(values); n < len(table); n *= 2 {
		copy(table[n:], table[:n])
	}
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

func measure(o Options, devices []device.Device) placement.Measured {
	m := placement.Measured{RowBytes: o.RowBytes, Batch: o.Batch, Source: fmt.Sprintf("%d × %s", len(devices), devices[0].Info().Name)}
	var all []*reader
	for i, d := range devices {
		r := newReader(o, d, i)
		defer r.close()
		r.open()
		all = append(all, r)
	}
	locals := together(all, func(r *reader) float64 { return r.plain(r.mem, r.rows) })
	hosts := together(all, func(r *reader) float64 { return r.plain(r.host, r.inOrder) })
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
			m.Pairs = append(m.Pairs, placement.PairRate{From: r.d.Info().Index, To: of.d.Info().Index, Rate: r.plain(of.mem, r.rows)})
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
	o            Options
	cache        *cache.Cache
	all          []*reader
	cached, rows int64
	owner        *placement.Partition // says in which device's slab a cached row is
}

// missesOf is the share of misses in the batches that measure misses: a fifth. Misses take longer than hits then.
const missesOf = 5

// gatherRates times batches of own hits, of peers' hits, and of own hits with misses. A batch takes as long as its hits or as its misses,
// whichever is longer: that is the cost model.
func gatherRates(o Options, all []*reader) placement.Rates {
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
	source := g.all[0].host.Bytes()
	source = source[:len(source)/g.o.RowBytes*g.o.RowBytes]
	normals(source)
	options := cache.Options{
		Tables: []cache.Table{get(cache.FromBytes("normals", dtype.Float32, source, g.o.RowBytes))}, Codec: "ibp4", Seed: 1,
		Host:    cache.HostOptions{NoEqualRows: true}, // rows repeat, and have slots of their own as different ones would
		Devices: cache.DeviceOptions{Backend: cache.BackendCUDA, Count: n, Placement: cache.PlacementPartition}, Budget: int64(len(source) / 8 / n),
		Admission: cache.AdmissionOptions{Policy: admission.NewStaticFrequency()},
	}
	for _, r := range g.all {
		options.Devices.GPUs = append(options.Devices.GPUs, r.d.Info().Index)
	}
	g.cache = get(cache.New(options))
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
		var batches [sets]device.Buffer
		for set := range batches {
			random := rand.New(rand.NewPCG(uint64(r.index), uint64(set)))
			rows := randomRows(g.o.Batch, g.cached*11/10, g.rows, uint64(set))
			for i := misses; i < len(rows); i++ {
				rows[i] = hits[random.IntN(len(hits))]
			}
			random.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
			batches[set] = r.put(rows)
		}
		view, handle := g.cache.On(r.index), r.stream.(*cuda.Stream).Handle()
		var times []float64
		for i := range (warmups + g.o.Runs) * sets {
			start := time.Now()
			b := get(view.Enqueue(context.Background(), handle, cache.Request{DeviceRows: batches[i%sets], DeviceOut: r.out}))
			must(b.Wait())
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
