package drive

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/pages"
)

// GatherConfig says how batches are read through a cache over the pages, whose rows lie in the order of their popularity.
type GatherConfig struct {
	// Device is "cuda" or "host"; "" measures no batches.
	Device string
	// HostMemory and Budget are those of the cache.
	HostMemory, Budget int64
	// Rows is the rows of a batch, default 200,000, and Batches how many are timed, default 12. Skew is the exponent of the power law by which rows are
	// drawn, default 1.1.
	Rows, Batches int
	Skew          float64
}

// Gathers is what batches took. Times are medians in seconds.
type Gathers struct {
	Device     string  `json:"device"`
	DeviceName string  `json:"device_name"`
	HostMemory int64   `json:"host_memory"`
	Budget     int64   `json:"budget"`
	Rows       int     `json:"rows"`
	Batches    int     `json:"batches"`
	Skew       float64 `json:"skew"`
	// OpenSeconds is how long it took to fill slab and host tier.
	OpenSeconds float64 `json:"open_seconds"`
	// HeldRows are those that slab and host tier held after the first half of the batches, and HeldShare is the share of the room of both that they took.
	HeldRows  int64   `json:"held_rows"`
	HeldShare float64 `json:"held_share"`
	// BatchSeconds is a batch's time, ResidentSeconds that of the same batch when its rows have come to the host tier, and PlainSeconds what the plain
	// reader takes for as many pages as the batch reads. OfLonger is BatchSeconds as a multiple of the longer of the two, the median of the batches.
	BatchSeconds    float64 `json:"batch_seconds"`
	ResidentSeconds float64 `json:"resident_seconds"`
	PlainSeconds    float64 `json:"plain_seconds"`
	OfLonger        float64 `json:"of_longer"`
	// AbsentRows, PagesRead and BytesRead are means of a batch; OfPageARow is BytesRead as a share of a page of 64 KiB for each absent row. LeftAbsent are the absent rows of the batch when it is repeated.
	AbsentRows float64 `json:"absent_rows"`
	PagesRead  float64 `json:"pages_read"`
	BytesRead  float64 `json:"bytes_read"`
	OfPageARow float64 `json:"of_page_a_row"`
	LeftAbsent float64 `json:"left_absent"`
	// PrefetchSeconds is the time of a batch in a loop with Prefetch two batches ahead, and PrefetchOfLonger the longer of the plain reader's time for
	// the loop's pages, batch by batch, and of the resident batches' time, as a share of the loop's.
	PrefetchSeconds  float64 `json:"prefetch_seconds"`
	PrefetchOfLonger float64 `json:"prefetch_of_longer"`
	PrefetchAbsent   float64 `json:"prefetch_absent"`
	PrefetchPages    float64 `json:"prefetch_pages"`
}

// gatherer reads batches.
type gatherer struct {
	c      *cache.Cache
	d      device.Device
	stream device.Stream
	handle uintptr
	rows   device.Buffer // page-locked
	out    device.Buffer
	check  []byte
	fill   func(dst []byte, row int64)
}

func openGatherer(kind string, c *cache.Cache, n int, fill func(dst []byte, row int64)) (_ *gatherer, err error) {
	g := &gatherer{c: c, check: make([]byte, n*c.RowBytes(0)), fill: fill}
	devices := host.Open(1, 0)
	if kind == "cuda" {
		if devices, err = cuda.Open(1); err != nil {
			return nil, err
		}
	}
	g.d = devices[0]
	if g.stream, err = g.d.NewStream(); err != nil {
		return nil, errors.Join(err, g.close())
	}
	if h, ok := g.stream.(interface{ Handle() uintptr }); ok {
		g.handle = h.Handle()
	}
	if g.rows, err = g.d.AllocHost(int64(n)*8, "row numbers"); err == nil {
		g.out, err = g.d.Alloc(int64(len(g.check)), "output")
	}
	if err != nil {
		return nil, errors.Join(err, g.close())
	}
	return g, nil
}

func (g *gatherer) close() error {
	g.d.Free(g.rows)
	g.d.Free(g.out)
	if g.stream != nil {
		g.stream.Close()
	}
	return g.d.Close()
}

// gather reads a batch. ready is how many seconds it took until the rows were in the output, waited until Batch.Wait had returned.
func (g *gatherer) gather(ctx context.Context, rows []int64) (ready, waited float64, err error) {
	for i, row := range rows {
		binary.LittleEndian.PutUint64(g.rows.Bytes()[8*i:], uint64(row))
	}
	start := time.Now()
	b, err := g.c.On(0).Enqueue(ctx, g.handle, cache.Request{DeviceRows: g.rows.Slice(0, int64(len(rows))*8), DeviceOut: g.out.Slice(0, int64(len(rows)*g.c.RowBytes(0)))})
	if err != nil {
		return 0, 0, err
	}
	if g.handle != 0 { // on the host backend batches are in no stream
		err = g.stream.Synchronize()
		ready = time.Since(start).Seconds()
	}
	err = errors.Join(err, b.Wait())
	waited = time.Since(start).Seconds()
	return cmp.Or(ready, waited), waited, err
}

// verify compares the last batch with what its rows must be.
func (g *gatherer) verify(rows []int64) error {
	n := g.c.RowBytes(0)
	if err := device.Download(g.d, g.check[:len(rows)*n], g.out.Slice(0, int64(len(rows)*n))); err != nil {
		return err
	}
	want := make([]byte, n)
	for i, row := range rows {
		if g.fill(want, row); string(want) != string(g.check[i*n:][:n]) {
			return fmt.Errorf("drive: row %d at position %d of a batch differs", row, i)
		}
	}
	return nil
}

// gathers measures batches, and steps of a text if there is one, over the pages in dir.
func (c *Config) gathers(ctx context.Context, dir string, m *pages.Manifest, plain reader, res *Result) (err error) {
	o := c.Gather
	o.Rows, o.Batches, o.Skew = cmp.Or(o.Rows, 200_000), cmp.Or(o.Batches, 12), cmp.Or(o.Skew, 1.1)
	if o.Device != "cuda" && o.Device != "host" || o.Skew <= 1 || o.Rows < 1 || o.Batches < 1 {
		return fmt.Errorf("drive: device (%q) must be cuda or host, rows (%d) and batches (%d) above 0, and skew (%g) above 1", o.Device, o.Rows, o.Batches, o.Skew)
	}
	zipf := rand.NewZipf(rand.New(rand.NewPCG(c.Seed, 3)), o.Skew, 10, uint64(m.Rows-1))
	batch := func() []int64 {
		rows := make([]int64, o.Rows)
		for i := range rows {
			rows[i] = int64(zipf.Uint64())
		}
		return rows
	}
	most := o.Rows
	var text *reading
	if c.Text.Tokens != "" {
		if text, err = c.Text.read(c.Seed, m.Rows); err != nil {
			return err
		}
		most = max(most, text.steps.Rows)
	}
	table, err := cache.Open(dir)
	if err != nil {
		return err
	}
	start := time.Now()
	training := func(yield func(int, []int64) bool) {
		for range 20 {
			if !yield(0, batch()) {
				return
			}
		}
		if text != nil {
			text.learn(yield)
		}
	}
	backend := cache.BackendHost
	if o.Device == "cuda" {
		backend = cache.BackendCUDA
	}
	held, err := cache.New(cache.Options{
		Tables: []cache.Table{table}, Budget: o.Budget, Host: cache.HostOptions{Memory: o.HostMemory}, Devices: cache.DeviceOptions{Backend: backend, Count: 1},
		Admission: cache.AdmissionOptions{Training: training},
	})
	if err != nil {
		return errors.Join(err, table.Close())
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	g := &Gathers{Device: o.Device, HostMemory: o.HostMemory, Budget: o.Budget, Rows: o.Rows, Batches: o.Batches, Skew: o.Skew, OpenSeconds: time.Since(start).Seconds()}
	res.Gathers = g
	reading, err := openGatherer(o.Device, held, most, c.fill)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reading.close()) }()
	g.DeviceName = reading.d.Info().Name
	if text != nil {
		if res.Steps, err = text.measure(ctx, reading); err != nil {
			return err
		}
	}
	all := make([][]int64, 2*o.Batches+4)
	for i := range all {
		all[i] = batch()
	}
	r := &gathering{g: g, reading: reading, plain: plain, pages: int(m.Pages), r: rand.New(rand.NewPCG(c.Seed, 4))}
	if err := r.alone(ctx, all[:o.Batches+2]); err != nil {
		return err
	}
	s, err := held.Stats()
	if err != nil {
		return err
	}
	tier := s.Tables[0].Tiers
	g.HeldRows = s.Tables[0].CachedRows + tier.HostRows
	g.HeldShare = float64(s.PayloadBytes+tier.HostBytes) / float64(s.PayloadBytes+s.FreeBytes+tier.HostCapacity)
	return r.prefetched(ctx, all[o.Batches+2:])
}

// gathering is one run of gathers.
type gathering struct {
	g       *Gathers
	reading *gatherer
	plain   reader
	pages   int
	r       *rand.Rand
}

func (r *gathering) tiers() (cache.TierStats, error) {
	s, err := r.reading.c.Stats()
	if err != nil {
		return cache.TierStats{}, err
	}
	return s.Tables[0].Tiers, nil
}

// plainSeconds is how long the plain reader takes for so many pages chosen at random.
func (r *gathering) plainSeconds(ctx context.Context, n int) (float64, error) {
	wanted := make([]uint32, n)
	for i := range wanted {
		wanted[i] = uint32(r.r.IntN(r.pages))
	}
	start := time.Now()
	_, _, err := r.plain.read(ctx, wanted)
	return time.Since(start).Seconds(), err
}

// alone reads batches one after the other, each twice. The first two are not timed.
func (r *gathering) alone(ctx context.Context, all [][]int64) error {
	var batch, resident, plain, ofLonger []float64
	for i, rows := range all {
		before, err := r.tiers()
		if err != nil {
			return err
		}
		_, first, err := r.reading.gather(ctx, rows)
		if err != nil {
			return err
		}
		if err := r.reading.verify(rows); err != nil {
			return err
		}
		after, err := r.tiers()
		if err != nil {
			return err
		}
		read, err := r.plainSeconds(ctx, int(after.PagesRead-before.PagesRead))
		if err != nil {
			return err
		}
		_, again, err := r.reading.gather(ctx, rows)
		if err != nil {
			return err
		}
		left, err := r.tiers()
		if err != nil {
			return err
		}
		if i < 2 {
			continue
		}
		batch, resident, plain = append(batch, first), append(resident, again), append(plain, read)
		ofLonger = append(ofLonger, first/max(again, read))
		n := float64(len(all) - 2)
		r.g.AbsentRows += float64(after.AbsentRows-before.AbsentRows) / n
		r.g.PagesRead += float64(after.PagesRead-before.PagesRead) / n
		r.g.BytesRead += float64(after.BytesRead-before.BytesRead) / n
		r.g.LeftAbsent += float64(left.AbsentRows-after.AbsentRows) / n
	}
	r.g.OfPageARow = r.g.BytesRead / max(1, r.g.AbsentRows) / (64 << 10)
	r.g.BatchSeconds, r.g.ResidentSeconds, r.g.PlainSeconds, r.g.OfLonger = median(batch), median(resident), median(plain), median(ofLonger)
	return nil
}

// prefetched reads batches with Prefetch two batches ahead. The first two are not timed.
func (r *gathering) prefetched(ctx context.Context, all [][]int64) error {
	ahead := func(i int) error {
		if i >= len(all) {
			return nil
		}
		return r.reading.c.Prefetch(0, all[i])
	}
	if err := errors.Join(ahead(0), ahead(1)); err != nil {
		return err
	}
	var before cache.TierStats
	var begun time.Time
	for i, rows := range all {
		if i == 2 {
			var err error
			if before, err = r.tiers(); err != nil {
				return err
			}
			begun = time.Now()
		}
		if err := ahead(i + 2); err != nil {
			return err
		}
		if _, _, err := r.reading.gather(ctx, rows); err != nil {
			return err
		}
	}
	n := float64(len(all) - 2)
	loop := time.Since(begun).Seconds()
	after, err := r.tiers()
	if err != nil {
		return err
	}
	if err := r.reading.verify(all[len(all)-1]); err != nil {
		return err
	}
	read := 0.0
	for range len(all) - 2 { // as the loop does: all pages at once would be read in longer runs
		seconds, err := r.plainSeconds(ctx, int(float64(after.PagesRead-before.PagesRead)/n))
		if err != nil {
			return err
		}
		read += seconds
	}
	r.g.PrefetchSeconds = loop / n
	r.g.PrefetchOfLonger = max(read, n*r.g.ResidentSeconds) / loop
	r.g.PrefetchAbsent, r.g.PrefetchPages = float64(after.AbsentRows-before.AbsentRows)/n, float64(after.PagesRead-before.PagesRead)/n
	return nil
}

func median(v []float64) float64 {
	slices.Sort(v)
	return (v[len(v)/2] + v[(len(v)-1)/2]) / 2
}
