//go:build cuda && linux

package gpu

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/dtype"
	"github.com/tensorcache/tensorcache/transfer"
)

// served is a cache of one table, with a stream that Gathers are timed on. It holds the rows with the smallest numbers.
type served struct {
	*runner
	gatherer
	cache        *cache.Cache
	source       []byte // the rows, uncompressed
	rows, cached int64
	rowBytes     int
}

// newCache returns a cache of the tables of the options, or, if there are none, of one of float32 rows. Rows repeat (patternBytes), and have slots of their own
// all the same, as different rows would.
func newCache(source []byte, rowBytes int, o cache.Options) *cache.Cache {
	if o.Tables == nil {
		o.Tables = []cache.Table{get(cache.FromBytes("normals", dtype.Float32, source, rowBytes))}
	}
	o.Devices.Backend, o.Codec, o.Seed, o.Host.NoEqualRows = "cuda", cmp.Or(o.Codec, codecName), seed, true
	return get(cache.New(o))
}

// serve makes a cache of a table's rows.
func (r *runner) serve(source []byte, rowBytes int, o cache.Options) *served {
	s := &served{runner: r, source: whole(source, rowBytes), rowBytes: rowBytes}
	s.rows = int64(len(s.source) / rowBytes)
	if o.Admission.Policy == nil {
		o.Admission.Policy = admission.NewStaticFrequency()
	}
	s.cache = newCache(s.source, rowBytes, o)
	s.gatherer = gathererOf(s.cache, 0, r.stream)
	if s.cached = get(s.cache.Stats()).Tables[0].CachedRows; s.cached == 0 || s.cached == s.rows {
		must(errors.Join(fmt.Errorf("cached rows (%d) must be some of %d: the table is too small", s.cached, s.rows), s.cache.Close()))
	}
	return s
}

// mixed returns batches of so many hits and misses in random order.
func (s *served) mixed(hits, misses int) turns {
	return s.batches(func(set uint64) []int64 {
		all := slices.Concat(randomRows(hits, 0, s.cached, set), randomRows(misses, s.cached, s.rows, set))
		if hits > 0 && misses > 0 {
			rand.New(rand.NewPCG(set, 3)).Shuffle(len(all), func(a, b int) { all[a], all[b] = all[b], all[a] })
		}
		return all
	})
}

// timeGathers times Gathers on the device, each after what before enqueues, if it is not nil. It compares what the last one wrote.
func (s *served) timeGathers(runs int, before func() error, t turns, out device.Buffer) float64 {
	out = out.Slice(0, int64(t.size()*s.rowBytes))
	start := get(s.cache.Stats())
	seconds := s.timeBatches(runs, before, func(i int) (*cache.Batch, error) { return s.begin(t.rows[i%sets], out) })
	s.checkHits(t, get(s.cache.Stats()).Sub(start).Tables[0])
	check(s.d, "Gather", out, s.source, t.last(runs), s.rowBytes)
	return seconds
}

// checkHits compares the share of hits with the share of rows that are cached, which is the same in all batches. A map may hold all but a
// few of these rows.
func (s *served) checkHits(t turns, done cache.TableStats) {
	want := 0
	for _, row := range t.numbers[0] {
		if row < s.cached {
			want++
		}
	}
	have, share := float64(done.Hits)/float64(done.Lookups), float64(want)/float64(t.size())
	if math.Abs(have-share) > 0.001 {
		must(fmt.Errorf("hits (%.2f %% of %d lookups) must be %.2f %%: other rows are cached than expected", 100*have, done.Lookups, 100*share))
	}
}

// plain times plain gathers of the same rows, uncompressed, from memory of any kind.
func (s *served) plain(t turns, mem, out device.Buffer) float64 {
	return s.launches(t.plain(mem, out, s.rowBytes))
}

// zeroCopy returns the GB/s of plain gathers from page-locked memory, of the rows as they come and in order.
func (s *served) zeroCopy(t turns, host, out device.Buffer) (unsorted, sorted float64) {
	unsorted = s.speed(t, s.plain(t, host, out))
	return unsorted, s.speed(t, s.plain(s.sorted(t), host, out))
}

// speed is the GB/s of output of a batch.
func (s *served) speed(t turns, seconds float64) float64 {
	return float64(t.size()*s.rowBytes) / 1e9 / seconds
}

// result has what all results of the cache share.
func (s *served) result(name string, batch int) Result {
	return Result{Case: name, RowBytes: s.rowBytes, Codec: codecName, TableBytes: int64(len(s.source)), Batch: batch, Unit: "GB/s"}
}

// gathers measures Gathers of a cache that holds about half of its table. tier has the same rows in the same layout as the cache's host
// tier. Only gather-misses needs it.
func (r *runner) gathers(rowBytes int, tier *transfer.Tier) {
	withSmall, withCaptured := rowBytes == smallRow && r.has(small...), rowBytes == smallRow && r.has("captured")
	if !withSmall && !withCaptured && !r.has("gather-hits", "gather-misses", "gather-80") {
		return
	}
	t := r.normalRows()
	var s *served
	r.measure(setup, func() { s = r.serve(t.host.Bytes(), rowBytes, cache.Options{Budget: r.o.TableBytes / 2}) })
	defer s.cache.Close()
	out := r.alloc(int64(r.o.Batch) * int64(rowBytes))
	for _, c := range []runs{
		{"gather-hits", func() { s.gatherHits("gather-hits", codecName, s.o.Batch, t, out) }},
		{"gather-misses", func() { s.gatherMisses(t, out, tier) }},
		{"gather-80", func() { s.gather80(t, out) }},
	} {
		if r.has(c.name) {
			r.measure(c.name, c.run)
		}
	}
	if withSmall {
		r.measure("small-batch", func() { s.smallBatches(t) })
	}
	if withCaptured {
		r.measure("captured", func() { s.captured(t) })
	}
}

// hitBatches are the batches of gather-hits-codecs, and hitBatchCodecs its codecs.
var (
	hitBatches     = []int{200_000, 262_144, 1 << 20}
	hitBatchCodecs = []cache.Codec{registry.None, codecName, "rank", sparseRowsCodec}
)

// sparseBudget is the bytes of budget for each 0/1 row of which the codec for sparse rows is to cache some and not all: slots of 16 to 48 bytes and
// 20 bytes of hashmap for each.
const sparseBudget = 24

// gatherHitsCodecs measures Gathers of hits of further codecs and batches; of the codec for sparse rows, of 0/1 rows.
func (r *runner) gatherHitsCodecs(rowBytes int) {
	for _, name := range hitBatchCodecs {
		t, label, budget := r.normalRows(), string(name), r.o.TableBytes/2
		if name == sparseRowsCodec {
			t, label, budget = r.sparseRows(), label+OnesSuffix, r.o.TableBytes/int64(rowBytes)*sparseBudget
		}
		s := r.serve(t.host.Bytes(), rowBytes, cache.Options{Budget: budget, Codec: name})
		err := try(func() {
			for _, n := range hitBatches {
				s.gatherHits("gather-hits-codecs", label, n, t, r.alloc(int64(n)*int64(rowBytes)))
				r.free()
			}
		})
		must(errors.Join(err, s.cache.Close()))
	}
}

func (s *served) gatherHits(name, codec string, n int, of *table, out device.Buffer) {
	t := s.mixed(n, 0)
	x := s.result(name, n)
	x.Codec = codec
	x.Baseline, x.BaselineValue = "plain gather, uncompressed", s.speed(t, s.plain(t, of.mem, out))
	x.Value = s.speed(t, s.timeGathers(s.o.Runs, nil, t, out))
	s.add(x)
}

// gatherMisses compares with what the link could do if it moved the sectors of the stored rows and nothing else.
func (s *served) gatherMisses(of *table, out device.Buffer, tier *transfer.Tier) {
	limits := s.limits()
	t := s.mixed(0, s.o.Batch)
	touched := sectorsOf(tier, t)
	unsorted, sorted := s.zeroCopy(t, of.host, out)
	x := s.result("gather-misses", s.o.Batch)
	x.Value = s.speed(t, s.timeGathers(s.o.Runs, nil, t, out))
	x.Baseline, x.BaselineValue = "link × row bytes ÷ bytes of sectors touched", limits.toDevice*float64(s.rowBytes)/touched
	x.Further = []Further{{Name: UnsortedZeroCopy, Value: unsorted}, {Name: SortedZeroCopy, Value: sorted}}
	x.Detail = fmt.Sprintf("%.1f bytes of sectors a row", touched)
	s.add(x)
}

// sectorsOf returns the mean bytes of the sectors that a row touches in a host tier, from its address and stored length.
func sectorsOf(tier *transfer.Tier, t turns) float64 {
	sum := int64(0)
	for _, numbers := range t.numbers {
		for _, row := range numbers {
			stored, _, err := tier.Stored(row)
			must(err)
			sum += sectors(address(stored), len(stored))
		}
	}
	return float64(sum) / float64(sets*t.size())
}

// gather80 compares a batch of 80 % hits with the slower of its hits and its misses alone: the time if the two overlapped in full. Each run
// follows other work that clears the device's caches. Otherwise hits or misses alone would find there what the other kind drives out.
func (s *served) gather80(of *table, out device.Buffer) {
	hits := s.o.Batch * 8 / 10
	busy := s.alloc(s.busyBytes())
	t := [3]turns{s.mixed(hits, s.o.Batch-hits), s.mixed(hits, 0), s.mixed(0, s.o.Batch-hits)}
	var seconds [3]float64
	for i := range t {
		seconds[i] = s.timeGathers(s.o.Runs, func() error { return s.stream.Fill(busy, 0) }, t[i], out)
	}
	plain := s.plain(t[0], of.host, out)
	x := s.result("gather-80", s.o.Batch)
	x.Value, x.Baseline, x.BaselineValue = s.speed(t[0], seconds[0]), "the slower of its hits and its misses alone", s.speed(t[0], max(seconds[1], seconds[2]))
	x.Further = []Further{{Name: UnsortedZeroCopy + ", of all rows", Value: s.speed(t[0], plain)}}
	x.Detail = fmt.Sprintf("µs, each behind other work: %.0f; hits alone %.0f, misses alone %.0f", seconds[0]*1e6, seconds[1]*1e6, seconds[2]*1e6)
	s.add(x)
}
