//go:build cuda && linux

package gpu

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
)

// What two GPUs do together. Rows are looked up by a power law of exponent 1 over all of them; each GPU has a budget of one
// twentieth of the table's bytes, as cachebench's default workload, and its own stream and goroutine.
const (
	pairBudget  = 20 // the table's bytes by this
	pairBatches = 8  // different ones, that take turns
	pairRounds  = 20 // batches timed on each GPU, times Options.Runs
	pairCycles  = 3  // cycles of refreshing while batches are timed
	pairLimit   = 60 // seconds, within which they must end: one takes 2 to 10
	// pairHead is the part of the rows that shuffling ranks all: the first ones.
	pairHead = 200
)

// findPeer finds the GPU whose memory the first one reads, or says why cases are skipped.
func (r *runner) findPeer(devices []device.Device) {
	why := "needs two GPUs"
	if len(devices) > 1 {
		a, b := devices[0].(*cuda.Device), devices[1].(*cuda.Device)
		if a.CanRead(b) && b.CanRead(a) {
			r.peer = b
			return
		}
		why = "the first two GPUs cannot read each other's memory"
	}
	for _, c := range PairCases {
		if r.has(c) {
			r.skip(c, "%s", why)
		}
	}
}

// pairs says whether any of these cases of two GPUs is to be run and can.
func (r *runner) pairs(names ...string) bool { return r.peer != nil && r.has(names...) }

// pair is a cache of one or two GPUs under load.
type pair struct {
	*runner
	cache   *cache.Cache
	gpus    []*pairGPU
	source  []byte
	batches [][]int64
}

// pairGPU is what one GPU's goroutine uses.
type pairGPU struct {
	d      *cuda.Device
	stream device.Stream
	rows   []device.Buffer
	out    device.Buffer
}

// openPair makes a cache over so many GPUs.
func (r *runner) openPair(gpus int, o cache.Options) (p *pair, err error) {
	table, err := r.normalRows()
	if err != nil {
		return nil, err
	}
	p = &pair{runner: r, source: whole(table.host.Bytes(), smallRow)}
	rows := int64(len(p.source) / smallRow)
	batch := func(seed uint64) []int64 { return powerLawRows(r.o.Batch, 1, rows, seed) }
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	tableOf, err := cache.FromBytes("normals", cache.Float32, p.source, smallRow)
	if err != nil {
		return p, err
	}
	o.Tables, o.Device, o.Devices, o.Codec, o.Seed = []cache.Table{tableOf}, "cuda", gpus, codecName, seed
	if o.Budget == 0 {
		o.Budget = int64(len(p.source)) / pairBudget
	}
	if o.Admission == nil {
		o.Admission = admission.NewFrequency()
	}
	o.Training = iter.Seq2[int, []int64](func(yield func(int, []int64) bool) {
		for i := range uint64(4 * pairBatches) {
			if !yield(0, batch(1000+i)) {
				return
			}
		}
	})
	if p.cache, err = cache.New(o); err != nil {
		return p, err
	}
	for i := range uint64(pairBatches) {
		p.batches = append(p.batches, batch(i))
	}
	for _, d := range []*cuda.Device{r.d, r.peer}[:gpus] {
		g := &pairGPU{d: d}
		p.gpus = append(p.gpus, g)
		if g.stream, err = d.NewStream(); err != nil {
			return p, err
		}
		for _, b := range p.batches {
			rows, err := putOn(d, asBytes(b))
			if err != nil {
				return p, err
			}
			g.rows = append(g.rows, rows)
		}
		if g.out, err = d.Alloc(int64(r.o.Batch*smallRow), "benchmark"); err != nil {
			return p, err
		}
	}
	return p, nil
}

func (p *pair) close() error {
	var err error
	if p.cache != nil {
		err = p.cache.Close()
	}
	for _, g := range p.gpus {
		for _, b := range append(g.rows, g.out) {
			g.d.Free(b)
		}
		if g.stream != nil {
			g.stream.Close()
		}
	}
	return err
}

// load is what was measured under load.
type load struct {
	seconds float64         // from the first batch's begin to the last one's end
	times   []time.Duration // of all batches, ordered
	stats   cache.Stats     // of those batches
	bytes   float64         // of output
}

func (l *load) percentile(p float64) float64 {
	return float64(l.times[int(p*float64(len(l.times)-1))].Nanoseconds()) / 1e3
}

// run has every GPU serve so many batches, one after the other, all GPUs at once, and so many cycles of refreshing end meanwhile.
// Each GPU's last output is compared.
func (p *pair) run(rounds int, cycles int64) (l load, err error) {
	for range warmups {
		if _, err := p.serve(pairBatches); err != nil {
			return l, err
		}
	}
	before, err := p.cache.Stats()
	if err != nil {
		return l, err
	}
	after := before
	for {
		start := time.Now()
		times, err := p.serve(rounds)
		if err != nil {
			return l, err
		}
		l.times = append(l.times, times...)
		l.seconds += time.Since(start).Seconds()
		if after, err = p.cache.Stats(); err != nil {
			return l, err
		}
		done := after.Sub(before).Changes
		if cycles == 0 || done.Cycles >= cycles && done.AdmittedRows > 0 {
			break
		}
		if after.RefreshError != "" || l.seconds > pairLimit {
			return l, fmt.Errorf("cycles of refreshing (%d in %.1f s, %d rows admitted) must be %d, and admit some: %q",
				done.Cycles, l.seconds, done.AdmittedRows, cycles, after.RefreshError)
		}
	}
	l.bytes = float64(len(l.times)) * float64(p.o.Batch*smallRow)
	slices.Sort(l.times)
	l.stats = after.Sub(before)
	for _, g := range p.gpus {
		got := make([]byte, min(g.out.Size(), 1<<20)/smallRow*smallRow)
		if err := device.Download(g.d, got, g.out.Slice(0, int64(len(got)))); err != nil {
			return l, err
		}
		last := p.batches[(rounds-1)%pairBatches]
		for i := range len(got) / smallRow {
			if !slices.Equal(got[i*smallRow:][:smallRow], p.source[last[i]*smallRow:][:smallRow]) {
				return l, fmt.Errorf("device %d: row %d at position %d differs from its source", g.d.Info().Index, last[i], i)
			}
		}
	}
	return l, nil
}

func (p *pair) serve(rounds int) (times []time.Duration, err error) {
	var wg sync.WaitGroup
	each, errs := make([][]time.Duration, len(p.gpus)), make([]error, len(p.gpus))
	for i, g := range p.gpus {
		wg.Go(func() {
			view, handle := p.cache.On(i), g.stream.(*cuda.Stream).Handle()
			for n := range rounds {
				start := time.Now()
				b, err := view.GatherDevice(context.Background(), handle, 0, g.rows[n%pairBatches], g.out)
				if err == nil {
					err = b.Wait()
				}
				if err != nil {
					errs[i] = err
					return
				}
				each[i] = append(each[i], time.Since(start))
			}
		})
	}
	wg.Wait()
	return slices.Concat(each...), errors.Join(errs...)
}

// measurePair opens a cache, runs it, and closes it. One that refreshes in the background ends some cycles meanwhile.
func (r *runner) measurePair(gpus int, o cache.Options) (l load, err error) {
	p, err := r.openPair(gpus, o)
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	cycles := int64(0)
	if o.Refresh.Interval > 0 {
		cycles = pairCycles
	}
	return p.run(pairRounds*r.o.Runs, cycles)
}

func (r *runner) pairResult(name, unit string) Result {
	return Result{Case: name, RowBytes: smallRow, Codec: codecName, TableBytes: r.o.TableBytes, Batch: r.o.Batch, Unit: unit}
}

func hitRate(s cache.Stats) float64 {
	return float64(s.Tables[0].Hits) / float64(max(1, s.Tables[0].Lookups))
}

// pairLoad is the load of two GPUs by a placement, which several cases look at.
func (r *runner) pairLoad(placement string) (l load, err error) {
	if l, ok := r.pairLoads[placement]; ok {
		return l, nil
	}
	if r.pairLoads == nil {
		o := RateOptions{GPUs: []int{r.d.Info().Index, r.peer.Info().Index}, RowBytes: smallRow, Batch: max(32, r.o.Batch), TableBytes: min(r.o.TableBytes, 2<<30), Runs: r.o.Runs}
		measured, err := MeasureRates(o)
		if err != nil {
			return l, err
		}
		r.rates, r.pairLoads = measured.Rates, map[string]load{}
	}
	if l, err = r.measurePair(2, cache.Options{Placement: placement, Rates: r.rates}); err != nil {
		return l, fmt.Errorf("%s: %w", placement, err)
	}
	r.pairLoads[placement] = l
	return l, nil
}

// pairThroughput compares two GPUs with one of the same budget each, and the hit rate with that of one of twice the budget.
func (r *runner) pairThroughput() error {
	one, err := r.measurePair(1, cache.Options{})
	if err != nil {
		return err
	}
	two, err := r.pairLoad(cache.PlacementAuto)
	if err != nil {
		return err
	}
	twice, err := r.measurePair(1, cache.Options{Budget: 2 * (r.o.TableBytes / pairBudget)})
	if err != nil {
		return err
	}
	x := r.pairResult("pair-throughput", "GB/s")
	x.Value, x.Baseline, x.BaselineValue = two.bytes/1e9/two.seconds, "one GPU", one.bytes/1e9/one.seconds
	x.Detail = fmt.Sprintf("hit rates %.2f %% and %.2f %%; %.2f %% of lookups read of the peer", 100*hitRate(one.stats), 100*hitRate(two.stats), 100*peerRate(two.stats))
	r.add(x)
	y := r.pairResult("pair-throughput", "points")
	y.Value = 100 * math.Abs(hitRate(two.stats)-hitRate(twice.stats))
	y.Detail = fmt.Sprintf("hit rate of two GPUs %.2f %%, of one with twice the budget %.2f %%", 100*hitRate(two.stats), 100*hitRate(twice.stats))
	r.add(y)
	return nil
}

func peerRate(s cache.Stats) float64 {
	return float64(s.Tables[0].PeerHits) / float64(max(1, s.Tables[0].Lookups))
}

// pairPlacement compares placements by the time of a batch, and the model's prediction with that.
func (r *runner) pairPlacement() error {
	loads := map[string]load{}
	for _, placement := range []string{cache.PlacementPartition, cache.PlacementReplicate, cache.PlacementAuto} {
		l, err := r.pairLoad(placement)
		if err != nil {
			return err
		}
		loads[placement] = l
		s := l.stats.Placement
		predicted := r.rates.Overhead + float64(r.o.Batch)*s.RowNanos/1e3
		y := r.pairResult("pair-placement", "%")
		y.Codec = codecName + " " + placement
		y.Value = 100 * math.Abs(predicted/l.percentile(0.5)-1)
		y.Detail = fmt.Sprintf("predicted %.0f µs, measured %.0f; hits %.2f %%, of peers %.2f %%; %s", predicted, l.percentile(0.5), 100*hitRate(l.stats), 100*peerRate(l.stats), s.Why)
		r.add(y)
	}
	x := r.pairResult("pair-placement", "us")
	partition, replicate, chosen := loads[cache.PlacementPartition], loads[cache.PlacementReplicate], loads[cache.PlacementAuto]
	x.Value, x.Baseline, x.BaselineValue = chosen.percentile(0.5), "the better of partition and replicate", min(partition.percentile(0.5), replicate.percentile(0.5))
	m := r.rates
	x.Detail = fmt.Sprintf("partition %.0f, replicate %.0f; rates local %.0f, peer %.0f, host %.1f GB/s, overhead %.1f µs, row %.3f ns, beside %.2f, same row %.1f ns",
		partition.percentile(0.5), replicate.percentile(0.5), m.Local, m.Peer, m.Host, m.Overhead, m.Row, m.Beside, m.Same)
	r.add(x)
	return nil
}

// pairRefresh compares the slowest batches beside cycles of refreshing with those without.
func (r *runner) pairRefresh() error {
	still, err := r.measurePair(2, cache.Options{Admission: r.shuffling()})
	if err != nil {
		return err
	}
	changing, err := r.measurePair(2, cache.Options{
		Admission: r.shuffling(),
		Refresh:   cache.RefreshOptions{Interval: 20 * time.Millisecond, Accesses: 1. / 16, MaxChurn: 0.02},
	})
	if err != nil {
		return err
	}
	x := r.pairResult("pair-refresh", "us")
	x.Value, x.Baseline, x.BaselineValue = changing.percentile(0.99), "p99 without refreshing", still.percentile(0.99)
	n := changing.stats.Changes
	x.Detail = fmt.Sprintf("p99; p50 %.0f and %.0f; %d cycles admitted %d rows", changing.percentile(0.5), still.percentile(0.5), n.Cycles, n.AdmittedRows)
	r.add(x)
	return nil
}

// shuffling is a policy that leaves out a twentieth of its ranking but for the first rows, another one each time, so that cycles
// have work and hits stay as they are.
//
// It is no admission.Explainer, so nothing is copied.
type shuffling struct {
	admission.Policy
	head  int // rows
	cycle uint64
}

func (r *runner) shuffling() *shuffling {
	return &shuffling{Policy: admission.NewFrequency(), head: int(r.o.TableBytes / smallRow / pairHead)}
}

func (p *shuffling) Rank() iter.Seq[uint64] {
	p.cycle++
	random := rand.New(rand.NewPCG(p.cycle, 5))
	return func(yield func(uint64) bool) {
		n := 0
		for key := range p.Policy.Rank() {
			if n++; (n <= p.head || random.IntN(20) != 0) && !yield(key) {
				return
			}
		}
	}
}
