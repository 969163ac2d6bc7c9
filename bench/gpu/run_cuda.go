//go:build cuda && linux

package gpu

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/device/cuda/driver"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// commit is what the binary was built from; the linker sets it.
var commit = "unknown"

// Run measures the first GPU.
func Run(o Options) (_ *Report, err error) {
	o.EnsureDefaults()
	devices, err := cuda.Open(1)
	if err != nil {
		return nil, err
	}
	d := devices[0].(*cuda.Device)
	defer func() { err = errors.Join(err, d.Close()) }()
	v := driver.Version()
	r := &runner{o: o, d: d, report: Report{
		Device: d.Info().Name, Driver: fmt.Sprintf("CUDA %d.%d", v/1000, v%1000/10), Commit: commit,
	}}
	defer r.release()
	if r.stream, err = d.NewStream(); err != nil {
		return nil, err
	}
	for range o.Runs + 1 {
		t, err := d.NewTimer()
		if err != nil {
			return nil, err
		}
		r.timers = append(r.timers, t)
	}
	if err := r.run(); err != nil {
		return nil, err
	}
	return &r.report, nil
}

const warmups = 3

type runner struct {
	o       Options
	d       *cuda.Device
	stream  device.Stream
	timers  []*cuda.Event
	buffers []device.Buffer
	report  Report
}

func (r *runner) has(name string) bool { return slices.Contains(r.o.Cases, name) }

func (r *runner) run() error {
	for _, rowBytes := range r.o.RowBytes {
		var tier *transfer.Tier
		if r.has("hit-decode") || r.has("miss-fetch") {
			var err error
			if tier, err = r.load(rowBytes, "ibp4"); err != nil {
				return err
			}
		}
		if r.has("hit-decode") {
			if err := r.hitDecode(tier); err != nil {
				return fmt.Errorf("hit-decode: %w", err)
			}
		}
		if r.has("miss-fetch") {
			if err := r.missFetch(tier); err != nil {
				return fmt.Errorf("miss-fetch: %w", err)
			}
		}
		if tier != nil {
			tier.Close()
		}
		r.free()
		if err := r.gathers(rowBytes); err != nil {
			return fmt.Errorf("gather: %w", err)
		}
		r.free()
	}
	if r.has("lookup") {
		if err := r.lookup(); err != nil {
			return fmt.Errorf("lookup: %w", err)
		}
		r.free()
	}
	if r.has("load") {
		if err := r.loads(); err != nil {
			return fmt.Errorf("load: %w", err)
		}
	}
	return nil
}

func (r *runner) free() {
	for _, b := range r.buffers {
		r.d.Free(b)
	}
	r.buffers = nil
}

func (r *runner) release() {
	r.free()
	for _, t := range r.timers {
		t.Close()
	}
	if r.stream != nil {
		r.stream.Close()
	}
}

func (r *runner) alloc(n int64) (device.Buffer, error) {
	b, err := r.d.Alloc(n, "benchmark")
	r.buffers = append(r.buffers, b)
	return b, err
}

func (r *runner) put(data []byte) (device.Buffer, error) {
	b, err := r.alloc(int64(len(data)))
	if err != nil {
		return b, err
	}
	return b, device.Upload(r.d, b, data)
}

// time returns the median seconds of what enqueue enqueues; i counts the runs.
func (r *runner) time(enqueue func(i int) error) (float64, error) {
	for i := range warmups {
		if err := enqueue(i); err != nil {
			return 0, err
		}
	}
	if err := r.stream.Synchronize(); err != nil {
		return 0, err
	}
	// Between runs so that each is measured alone: an event before and after.
	var times []float64
	for i := range r.o.Runs {
		if err := errors.Join(r.stream.Record(r.timers[0]), enqueue(warmups+i), r.stream.Record(r.timers[1]), r.timers[1].Synchronize()); err != nil {
			return 0, err
		}
		d, err := r.timers[1].Since(r.timers[0])
		if err != nil {
			return 0, err
		}
		times = append(times, d.Seconds())
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}

func (r *runner) add(x Result) {
	if x.BaselineValue > 0 {
		x.Ratio = x.Value / x.BaselineValue
		if x.Unit == "us" {
			x.Ratio = x.BaselineValue / x.Value
		}
	}
	x.write(r.o.Log)
	r.report.Results = append(r.report.Results, x)
}

// write writes a line to the log.
func (x Result) write(w io.Writer) {
	fmt.Fprintf(w, "%-14s %9d %-6s %10d %9d %10.2f %-8s %10.2f %7.2f  %s\n",
		x.Case, x.RowBytes, x.Codec, x.TableBytes>>20, x.Batch, x.Value, x.Unit, x.BaselineValue, x.Ratio, x.Baseline)
}

// source is N(0,1) float32 rows: some megabytes of distinct ones, over and over.
func (r *runner) source(rowBytes int) transfer.Source {
	return &normals{distinct: distinctRows(rowBytes), rowBytes: rowBytes, rows: int(r.o.TableBytes / int64(rowBytes))}
}

var distinct struct {
	sync.Mutex
	data []byte
}

// distinctRows returns 64 MB of normals, a whole number of rows.
func distinctRows(rowBytes int) []byte {
	distinct.Lock()
	defer distinct.Unlock()
	if distinct.data == nil {
		distinct.data = make([]byte, 64<<20)
		var wg sync.WaitGroup
		const part = 1 << 20
		for from := 0; from < len(distinct.data); from += part {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(from), 1))
				for i := from; i < from+part; i += 4 {
					binary.LittleEndian.PutUint32(distinct.data[i:], math.Float32bits(float32(rng.NormFloat64())))
				}
			})
		}
		wg.Wait()
	}
	return distinct.data[:len(distinct.data)/rowBytes*rowBytes]
}

type normals struct {
	distinct       []byte
	rowBytes, rows int
	at, done       int
}

func (s *normals) Rows() int     { return s.rows }
func (s *normals) RowBytes() int { return s.rowBytes }
func (s *normals) Read(dst []byte) (int, error) {
	n := min(len(dst)/s.rowBytes, s.rows-s.done)
	for filled := 0; filled < n*s.rowBytes; {
		m := copy(dst[filled:n*s.rowBytes], s.distinct[s.at:])
		filled += m
		s.at = (s.at + m) % len(s.distinct)
	}
	s.done += n
	return n, nil
}

func (r *runner) load(rowBytes int, codec string) (*transfer.Tier, error) {
	return transfer.Load(r.d, r.source(rowBytes), transfer.Options{Codec: codec, Seed: 1})
}

// sets is how many batches take turns, so that no run finds its rows in a cache.
const sets = 4

func randomRows(n int, from, to int64, seed uint64) []int64 {
	rng := rand.New(rand.NewPCG(seed, 2))
	rows := make([]int64, n)
	for i := range rows {
		rows[i] = from + rng.Int64N(to-from)
	}
	return rows
}

// parallel runs body for consecutive parts of [0, n).
func parallel(n int, body func(from, to int)) {
	var wg sync.WaitGroup
	part := (n + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0)
	for from := 0; from < n; from += part {
		wg.Go(func() { body(from, min(from+part, n)) })
	}
	wg.Wait()
}

func asBytes[T any](v []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(*new(T))))
}

// hitDecode decodes rows of a slab, beside a plain gather of the same rows uncompressed.
func (r *runner) hitDecode(tier *transfer.Tier) error {
	rows, rowBytes := int(tier.Rows()), tier.RowBytes()
	batch := min(rows, max(1, (512<<20)/rowBytes))
	locations := make([]slab.Location, rows)
	size := int64(0)
	lengths := make([]int32, rows)
	parallel(rows, func(from, to int) {
		for i := from; i < to; i++ {
			s, compressed, err := tier.Stored(int64(i))
			if err != nil {
				panic(err)
			}
			lengths[i] = int32(len(s))
			if !compressed {
				lengths[i] = 0
			}
		}
	})
	for i, n := range lengths {
		locations[i] = slab.Raw(0, size)
		if n != 0 {
			locations[i] = slab.Compressed(0, size, int(n))
		}
		size += int64(slab.SlotBytes(locations[i].Stored(rowBytes)))
	}
	image, err := r.d.AllocHost(size+slab.TailSlack, "benchmark")
	if err != nil {
		return err
	}
	parallel(rows, func(from, to int) {
		for i := from; i < to; i++ {
			s, _, _ := tier.Stored(int64(i))
			copy(image.Bytes()[locations[i].Offset():], s)
		}
	})
	mem, err := r.put(image.Bytes())
	r.d.Free(image)
	if err != nil {
		return err
	}
	codec, err := kernels.AttachCodec(r.d, tier.Codec())
	if err != nil {
		return err
	}
	r.buffers = append(r.buffers, codec.Meta)
	out, err := r.alloc(int64(batch * rowBytes))
	if err != nil {
		return err
	}
	counters, err := r.put(asBytes([]kernels.Counters{{Hits: uint32(batch)}}))
	if err != nil {
		return err
	}
	raw, err := r.alloc(int64(rows * rowBytes))
	if err != nil {
		return err
	}
	decodes, gathers := make([]kernels.Decode, sets), make([]kernels.Gather, sets)
	for s := range sets {
		ids := randomRows(batch, 0, int64(rows), uint64(s))
		hits := make([]kernels.Found, batch)
		for i, id := range ids {
			hits[i] = kernels.Found{Word: uint64(locations[id]), Position: uint32(i)}
		}
		found, err := r.put(asBytes(hits))
		if err != nil {
			return err
		}
		idBuffer, err := r.put(asBytes(ids))
		if err != nil {
			return err
		}
		decodes[s] = kernels.Decode{Found: found, Counters: counters, Slabs: []device.Buffer{mem}, Codec: codec, Out: out, RowBytes: rowBytes}
		gathers[s] = kernels.Gather{Mem: raw, Rows: idBuffer, Out: out, RowBytes: rowBytes}
	}
	plain, err := r.time(func(i int) error { return r.stream.Launch(&gathers[i%sets]) })
	if err != nil {
		return err
	}
	decode, err := r.time(func(i int) error { return r.stream.Launch(&decodes[i%sets]) })
	if err != nil {
		return err
	}
	var check [1]kernels.Counters
	if err := device.Download(r.d, asBytes(check[:]), counters); err != nil {
		return err
	}
	if check[0].Corrupt != 0 {
		return fmt.Errorf("%d rows corrupt", check[0].Corrupt)
	}
	bytes := float64(batch*rowBytes) / 1e9
	r.add(Result{
		Case: "hit-decode", RowBytes: rowBytes, Codec: tier.Codec().Name(), TableBytes: int64(rows * rowBytes), Batch: batch,
		Value: bytes / decode, Unit: "GB/s", Baseline: "plain gather, uncompressed", BaselineValue: bytes / plain,
	})
	return nil
}

// missFetch fetches rows from the host tier, ordered and not, beside a plain kernel reading uncompressed rows.
func (r *runner) missFetch(tier *transfer.Tier) error {
	rows, rowBytes := int(tier.Rows()), tier.RowBytes()
	batch := min(rows, r.o.Batch)
	tierRows, codec, err := tier.Attach(r.d)
	if err != nil {
		return err
	}
	defer transfer.Detach(r.d, tierRows, codec)
	raw, err := r.d.AllocHost(int64(rows*rowBytes), "benchmark")
	if err != nil {
		return err
	}
	defer r.d.Free(raw)
	src := r.source(rowBytes)
	if _, err := src.Read(raw.Bytes()); err != nil {
		return err
	}
	out, err := r.alloc(int64(batch * rowBytes))
	if err != nil {
		return err
	}
	counters, err := r.put(asBytes([]kernels.Counters{{Misses: uint32(batch)}}))
	if err != nil {
		return err
	}
	buckets, err := r.alloc(kernels.OrderBytes)
	if err != nil {
		return err
	}
	orders, fetches, gathers := make([]kernels.Order, sets), make([]kernels.Fetch, sets), make([]kernels.Gather, sets)
	for s := range sets {
		ids := randomRows(batch, 0, int64(rows), uint64(s))
		misses := make([]kernels.Found, batch)
		for i, id := range ids {
			misses[i] = kernels.Found{Word: uint64(id), Position: uint32(i)}
		}
		found, err := r.put(asBytes(misses))
		if err != nil {
			return err
		}
		ordered, err := r.alloc(found.Size())
		if err != nil {
			return err
		}
		slices.Sort(ids)
		idBuffer, err := r.put(asBytes(ids))
		if err != nil {
			return err
		}
		orders[s] = kernels.Order{Found: found, Counters: counters, Ordered: ordered, Buckets: buckets, Tier: tierRows}
		fetches[s] = kernels.Fetch{Misses: ordered, Counters: counters, Tier: tierRows, Codec: codec, Out: out}
		gathers[s] = kernels.Gather{Mem: raw, Rows: idBuffer, Out: out, RowBytes: rowBytes}
	}
	plain, err := r.time(func(i int) error { return r.stream.Launch(&gathers[i%sets]) })
	if err != nil {
		return err
	}
	fetch, err := r.time(func(i int) error {
		return errors.Join(r.stream.Launch(&orders[i%sets]), r.stream.Launch(&fetches[i%sets]))
	})
	if err != nil {
		return err
	}
	bytes := float64(batch*rowBytes) / 1e9
	r.add(Result{
		Case: "miss-fetch", RowBytes: rowBytes, Codec: tier.Codec().Name(), TableBytes: int64(rows * rowBytes), Batch: batch,
		Value: bytes / fetch, Unit: "GB/s", Baseline: "plain zero-copy, sorted, uncompressed", BaselineValue: bytes / plain,
	})
	return nil
}

// gathers measures whole batches of a cache that holds about half of its table, the rows of the smallest numbers.
func (r *runner) gathers(rowBytes int) error {
	small := r.has("small-batch") && rowBytes == 512
	if !r.has("gather-hits") && !r.has("gather-misses") && !r.has("gather-80") && !small {
		return nil
	}
	rows := r.o.TableBytes / int64(rowBytes)
	data := make([]byte, rows*int64(rowBytes))
	if _, err := r.source(rowBytes).Read(data); err != nil {
		return err
	}
	table, err := cache.FromBytes("normals", cache.Float32, data, rowBytes)
	if err != nil {
		return err
	}
	c, err := cache.New(cache.Options{
		Tables: []cache.Table{table}, Budget: r.o.TableBytes / 2, Device: "cuda", Codec: "ibp4", Admission: admission.NewStaticFrequency(), Seed: 1,
	})
	if err != nil {
		return err
	}
	defer c.Close()
	stats, err := c.Stats()
	if err != nil {
		return err
	}
	cached := stats.Tables[0].CachedRows
	raw, err := r.alloc(int64(len(data)))
	if err != nil {
		return err
	}
	host, err := r.d.AllocHost(int64(len(data)), "benchmark")
	if err != nil {
		return err
	}
	defer r.d.Free(host)
	copy(host.Bytes(), data)
	data = nil
	measure := func(name string, batch int, hitShare float64, mem device.Buffer, baseline, unit string) error {
		out, err := r.alloc(int64(batch * rowBytes))
		if err != nil {
			return err
		}
		var ids []device.Buffer
		gathers := make([]kernels.Gather, sets)
		for s := range sets {
			hits := int(hitShare * float64(batch))
			rowNumbers := append(randomRows(hits, 0, cached, uint64(s)), randomRows(batch-hits, cached, rows, uint64(s))...)
			rng := rand.New(rand.NewPCG(uint64(s), 3))
			rng.Shuffle(batch, func(i, j int) { rowNumbers[i], rowNumbers[j] = rowNumbers[j], rowNumbers[i] })
			b, err := r.put(asBytes(rowNumbers))
			if err != nil {
				return err
			}
			ids = append(ids, b)
			gathers[s] = kernels.Gather{Mem: mem, Rows: b, Out: out, RowBytes: rowBytes}
		}
		view := c.On(0)
		plain, err := r.time(func(i int) error { return r.stream.Launch(&gathers[i%sets]) })
		if err != nil {
			return err
		}
		handle := r.stream.(*cuda.Stream).Handle()
		var pending []*cache.Batch
		own, err := r.time(func(i int) error {
			b, err := view.GatherDevice(context.Background(), handle, 0, ids[i%sets], out)
			if err == nil {
				pending = append(pending, b)
			}
			return err
		})
		for _, b := range pending {
			err = errors.Join(err, b.Wait())
		}
		if err != nil {
			return err
		}
		x := Result{
			Case: name, RowBytes: rowBytes, Codec: "ibp4", TableBytes: rows * int64(rowBytes), Batch: batch, Unit: unit, Baseline: baseline,
			Value: float64(batch*rowBytes) / 1e9 / own, BaselineValue: float64(batch*rowBytes) / 1e9 / plain,
		}
		if unit == "us" {
			x.Value, x.BaselineValue = own*1e6, plain*1e6
		}
		r.add(x)
		return nil
	}
	for _, m := range []struct {
		name     string
		hits     float64
		mem      device.Buffer
		baseline string
	}{
		{"gather-hits", 1, raw, "plain gather, uncompressed"},
		{"gather-misses", 0, host, "plain zero-copy, unsorted, uncompressed"},
		{"gather-80", 0.8, host, "plain zero-copy of all rows, unsorted, uncompressed"},
	} {
		if r.has(m.name) {
			if err := measure(m.name, r.o.Batch, m.hits, m.mem, m.baseline, "GB/s"); err != nil {
				return err
			}
		}
	}
	if small {
		for _, n := range []int{1, 32, 1024, 8192} {
			if err := measure("small-batch", n, 0.8, host, "plain zero-copy of all rows, uncompressed", "us"); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *runner) lookup() error {
	layout := hashmap.LayoutFor(int64(r.o.Entries))
	image := make([]uint64, layout.Bytes()/8)
	entries := make([]hashmap.Entry, r.o.Entries)
	for i := range entries {
		entries[i] = hashmap.Entry{Key: hashmap.Key(0, int64(2*i)), Location: slab.Raw(0, int64(i)*16)}
	}
	if _, err := hashmap.View(asBytes(image), layout).Build(entries); err != nil {
		return err
	}
	m, err := r.put(asBytes(image))
	if err != nil {
		return err
	}
	const batch = 1 << 20
	found, err := r.alloc(batch * kernels.FoundBytes)
	if err != nil {
		return err
	}
	counters, err := r.alloc(kernels.CountersBytes)
	if err != nil {
		return err
	}
	for _, hits := range []bool{true, false} {
		lookups := make([]kernels.Lookup, sets)
		for s := range sets {
			rows := randomRows(batch, 0, int64(r.o.Entries), uint64(s))
			for i := range rows {
				rows[i] *= 2
				if !hits {
					rows[i]++
				}
			}
			b, err := r.put(asBytes(rows))
			if err != nil {
				return err
			}
			lookups[s] = kernels.Lookup{Map: m, Layout: layout, Limit: 1 << 40, Rows: b, Found: found, Counters: counters}
		}
		// The floor of any hashmap: one random slot a key, from the same memory.
		slots := make([]kernels.Gather, sets)
		for s := range sets {
			b, err := r.put(asBytes(randomRows(batch, 0, layout.Slots(), uint64(s))))
			if err != nil {
				return err
			}
			slots[s] = kernels.Gather{Mem: m, Rows: b, Out: found, RowBytes: hashmap.SlotBytes}
		}
		plain, err := r.time(func(i int) error { return r.stream.Launch(&slots[i%sets]) })
		if err != nil {
			return err
		}
		took, err := r.time(func(i int) error {
			return errors.Join(r.stream.Fill(counters, 0), r.stream.Launch(&lookups[i%sets]))
		})
		if err != nil {
			return err
		}
		what := "hits"
		if !hits {
			what = "misses"
		}
		r.add(Result{
			Case: "lookup", RowBytes: 8, Codec: what, TableBytes: layout.Bytes(), Batch: batch, Value: batch / took / 1e9, Unit: "Gkeys/s",
			Baseline: "plain gather of one random slot a key", BaselineValue: batch / plain / 1e9,
		})
	}
	return nil
}

// loads measures mask search and compression of a table that lies in page-locked memory.
func (r *runner) loads() error {
	for _, rowBytes := range []int{512, 4096} {
		if !slices.Contains(r.o.RowBytes, rowBytes) {
			continue
		}
		var t transfer.Timings
		tier, err := transfer.Load(r.d, r.source(rowBytes), transfer.Options{Codec: "auto", Seed: 1, Timings: &t})
		if err != nil {
			return err
		}
		bytes := float64(tier.Rows()) * float64(rowBytes) / 1e9
		name := "auto"
		if tier.Codec() != nil {
			name = tier.Codec().Name()
		}
		tier.Close()
		var h transfer.Timings
		tier, err = transfer.Load(r.d, r.source(rowBytes), transfer.Options{Codec: "auto", Seed: 1, Timings: &h, OnHost: true})
		if err != nil {
			return err
		}
		tier.Close()
		r.add(Result{
			Case: "load", RowBytes: rowBytes, Codec: name, TableBytes: int64(bytes * 1e9), Batch: 1, Unit: "GB/s",
			Value: bytes / (t.Train + t.Encode).Seconds(), Baseline: fmt.Sprintf("the host's %d processors", runtime.GOMAXPROCS(0)),
			BaselineValue: bytes / (h.Train + h.Encode).Seconds(),
		})
	}
	return nil
}
