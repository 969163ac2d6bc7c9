//go:build cuda && linux

package gpu

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tensorcache/tensorcache/bench/rates"
	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
)

// What two GPUs do together. Rows are looked up by a power law of exponent 1 over all rows. Each GPU has a budget of one twentieth of the
// table's bytes, like cachebench's default workload, and its own stream and goroutine.
const (
	pairBudget  = 20  // the table's bytes by this
	pairBatches = 8   // different batches that take turns
	pairRounds  = 20  // batches timed on each GPU, times Options.Runs
	pairCycles  = 3   // cycles of refreshing while batches are timed
	pairLimit   = 60  // seconds, within which the cycles must end: one takes 2 to 10
	pairHead    = 200 // shuffling always ranks the first rows: all rows by this
)

// findPeer finds a GPU whose memory the first one reads. Otherwise it skips the cases that need one.
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
	*runner
	gatherer
	rows []device.Buffer
	out  device.Buffer
}

// openPair makes a cache over so many GPUs. The caller closes p, also if openPair fails.
func (r *runner) openPair(p *pair, gpus int, o cache.Options) {
	p.runner, p.source = r, whole(r.normalRows().host.Bytes(), smallRow)
	rows := int64(len(p.source) / smallRow)
	batch := func(seed uint64) []int64 { return powerLawRows(r.o.Batch, 1, rows, seed) }
	o.Devices.Count = gpus
	if o.Budget == 0 {
		o.Budget = int64(len(p.source)) / pairBudget
	}
	if o.Admission.Policy == nil {
		o.Admission.Policy = admission.NewFrequency()
	}
	o.Admission.Training = iter.Seq2[int, []int64](func(yield func(int, []int64) bool) {
		for i := range uint64(4 * pairBatches) {
			if !yield(0, batch(1000+i)) {
				return
			}
		}
	})
	p.cache = newCache(p.source, smallRow, o)
	for i := range uint64(pairBatches) {
		p.batches = append(p.batches, batch(i))
	}
	for i, d := range []*cuda.Device{r.d, r.peer}[:gpus] {
		g := &pairGPU{runner: &runner{d: d}}
		p.gpus = append(p.gpus, g)
		g.open()
		g.gatherer = gathererOf(p.cache, i, g.stream)
		for _, b := range p.batches {
			g.rows = append(g.rows, g.put(asBytes(b)))
		}
		g.out = g.alloc(int64(r.o.Batch * smallRow))
	}
}

func (p *pair) close() {
	if p.cache != nil {
		defer func() { must(p.cache.Close()) }()
	}
	for _, g := range p.gpus {
		g.release()
	}
}

// load is what a cache did while its GPUs read batch after batch.
type load struct {
	seconds float64         // from the first batch's begin to the last one's end
	times   []time.Duration // of all batches, sorted
	stats   cache.Stats     // of these batches
	bytes   float64         // of output
}

func (l *load) percentile(p float64) float64 {
	return float64(l.times[int(p*float64(len(l.times)-1))].Nanoseconds()) / 1e3
}

// run has every GPU serve so many batches, one after the other, all GPUs at once, again and again until so many cycles of refreshing have ended. It compares each
// GPU's last output.
func (p *pair) run(rounds int, cycles int64) (l load) {
	for range warmups {
		p.serve(pairBatches)
	}
	before, start := get(p.cache.Stats()), time.Now()
	for {
		l.times = append(l.times, p.serve(rounds)...)
		l.seconds = time.Since(start).Seconds()
		after := get(p.cache.Stats())
		l.stats = after.Sub(before)
		done := l.stats.Changes
		if cycles == 0 || done.Cycles >= cycles && done.AdmittedRows > 0 {
			break
		}
		if after.RefreshError != "" || l.seconds > pairLimit {
			must(fmt.Errorf("cycles of refreshing (%d in %.1f s, %d rows admitted) must be %d, and admit some: %q", done.Cycles, l.seconds, done.AdmittedRows, cycles, after.RefreshError))
		}
	}
	l.bytes = float64(len(l.times)) * float64(p.o.Batch*smallRow)
	slices.Sort(l.times)
	for _, g := range p.gpus {
		check(g.d, fmt.Sprintf("device %d", g.d.Info().Index), g.out, p.source, p.batches[(rounds-1)%pairBatches], smallRow)
	}
	return l
}

// serve has all GPUs read at once, and returns how long each batch took.
func (p *pair) serve(rounds int) []time.Duration {
	var wg sync.WaitGroup
	times, errs := make([][]time.Duration, len(p.gpus)), make([]error, len(p.gpus))
	for i, g := range p.gpus {
		wg.Go(func() {
			errs[i] = try(func() {
				for n := range rounds {
					start := time.Now()
					must(g.gather(g.rows[n%pairBatches], g.out))
					times[i] = append(times[i], time.Since(start))
				}
			})
		})
	}
	wg.Wait()
	must(errors.Join(errs...))
	return slices.Concat(times...)
}

// measurePair opens a cache, runs it, and closes it. One that refreshes in the background ends some cycles meanwhile.
func (r *runner) measurePair(gpus int, o cache.Options) load {
	p := &pair{}
	defer p.close()
	r.openPair(p, gpus, o)
	cycles := int64(0)
	if o.Refresh.Interval > 0 {
		cycles = pairCycles
	}
	return p.run(pairRounds*r.o.Runs, cycles)
}

func (r *runner) pairResult(name, unit string) Result {
	return Result{Case: name, RowBytes: smallRow, Codec: codecName, TableBytes: r.o.TableBytes, Batch: r.o.Batch, Unit: unit}
}

// shareOf is the share of lookups in percent.
func shareOf(n int64, s cache.Stats) float64 {
	return 100 * float64(n) / float64(max(1, s.Tables[0].Lookups))
}

func hitRate(s cache.Stats) float64  { return shareOf(s.Tables[0].Hits, s) }
func peerRate(s cache.Stats) float64 { return shareOf(s.Tables[0].PeerHits, s) }

// pairLoad is the load of two GPUs with a placement, which several cases look at.
func (r *runner) pairLoad(placement cache.PlacementMode) load {
	if l, ok := r.pairLoads[placement]; ok {
		return l
	}
	if r.pairLoads == nil {
		o := rates.Options{GPUs: []int{r.d.Info().Index, r.peer.Info().Index}, RowBytes: smallRow, Batch: max(32, r.o.Batch), TableBytes: min(r.o.TableBytes, 2<<30), Runs: r.o.Runs}
		r.rates, r.pairLoads = get(rates.Measure(o)).Rates, map[cache.PlacementMode]load{}
	}
	if err := try(func() {
		r.pairLoads[placement] = r.measurePair(2, cache.Options{Devices: cache.DeviceOptions{Placement: placement, Rates: r.rates}})
	}); err != nil {
		must(fmt.Errorf("%s: %w", placement, err))
	}
	return r.pairLoads[placement]
}

// pairThroughput compares two GPUs with one of the same budget each, and the hit rate with that of one of twice the budget.
func (r *runner) pairThroughput() {
	one := r.measurePair(1, cache.Options{})
	two := r.pairLoad(cache.PlacementAuto)
	twice := r.measurePair(1, cache.Options{Budget: 2 * (r.o.TableBytes / pairBudget)})
	x := r.pairResult("pair-throughput", "GB/s")
	x.Value, x.Baseline, x.BaselineValue = two.bytes/1e9/two.seconds, "one GPU", one.bytes/1e9/one.seconds
	x.Detail = fmt.Sprintf("hit rates %.2f %% and %.2f %%; %.2f %% of lookups read of the peer", hitRate(one.stats), hitRate(two.stats), peerRate(two.stats))
	r.add(x)
	y := r.pairResult("pair-throughput", "points")
	y.Value = math.Abs(hitRate(two.stats) - hitRate(twice.stats))
	y.Detail = fmt.Sprintf("hit rate of two GPUs %.2f %%, of one with twice the budget %.2f %%", hitRate(two.stats), hitRate(twice.stats))
	r.add(y)
}

// pairPlacement compares placements by the time of a batch, and the cost model's prediction with that time.
func (r *runner) pairPlacement() {
	medians := map[cache.PlacementMode]float64{}
	for _, placement := range []cache.PlacementMode{cache.PlacementPartition, cache.PlacementReplicate, cache.PlacementAuto} {
		l := r.pairLoad(placement)
		s, median := l.stats.Placement, l.percentile(0.5)
		medians[placement] = median
		predicted := float64(r.o.Batch) * s.RowNanos / 1e3
		y := r.pairResult("pair-placement", "%")
		y.Codec = codecName + " " + string(placement)
		y.Value = 100 * math.Abs(predicted/median-1)
		y.Detail = fmt.Sprintf("predicted %.0f µs, measured %.0f; hits %.2f %%, of peers %.2f %%; %s", predicted, median, hitRate(l.stats), peerRate(l.stats), s.Why)
		r.add(y)
	}
	x := r.pairResult("pair-placement", "us")
	partition, replicate := medians[cache.PlacementPartition], medians[cache.PlacementReplicate]
	x.Value, x.Baseline, x.BaselineValue = medians[cache.PlacementAuto], "the better of partition and replicate", min(partition, replicate)
	x.Detail = fmt.Sprintf("partition %.0f, replicate %.0f; rates local %.0f, peer %.0f, host %.1f GB/s", partition, replicate, r.rates.Local, r.rates.Peer, r.rates.Host)
	r.add(x)
}

// pairRefresh compares the slowest batches while the cache refreshes with those while it does not.
func (r *runner) pairRefresh() {
	still := r.measurePair(2, cache.Options{Admission: cache.AdmissionOptions{Policy: r.shuffling()}})
	changing := r.measurePair(2, cache.Options{
		Admission: cache.AdmissionOptions{Policy: r.shuffling()},
		Refresh:   cache.RefreshOptions{Interval: 20 * time.Millisecond, Accesses: 1. / 16, MaxChurn: 0.02},
	})
	x := r.pairResult("pair-refresh", "us")
	x.Value, x.Baseline, x.BaselineValue = changing.percentile(0.99), "p99 without refreshing", still.percentile(0.99)
	n := changing.stats.Changes
	x.Detail = fmt.Sprintf("p99; p50 %.0f and %.0f; %d cycles admitted %d rows", changing.percentile(0.5), still.percentile(0.5), n.Cycles, n.AdmittedRows)
	r.add(x)
}

// shuffling is a policy that leaves a twentieth of its ranking out, another one each time, but none of the first rows. So cycles have work
// and the hit rate stays. It is no admission.Explainer, so that no row is copied.
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
