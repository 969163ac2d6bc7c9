//go:build cuda && linux

package gpu

import (
	"context"
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
	"github.com/tensorcache/tensorcache/slab/placement"
)

// What the batches of gatherRates are made of.
const (
	missesOf = 5  // a batch by its misses, where it has many
	sameOf   = 20 // a batch by the lookups of one row, where there are many
	fewRows  = 32
)

// gathering is a cache whose Gathers are timed.
type gathering struct {
	cache        *cache.Cache
	options      RateOptions
	gpus         []*reader
	cached, rows int64
	own, others  [8][]int64 // rows that each GPU, by its place, has in its slab, and reads of others'
	peers        bool
}

// gatherRates times Gathers by the host's clock, and returns the rates of the cost model that come closest to them. Of n rows, of
// which m miss, the model has
//
//	overhead + n row + m/host + beside (n - m) hit   with hits beside misses, which take longer
//	overhead + n row + n hit                         without misses
//
// where hit is the own slab's or a peer's. The first of all is read with two numbers of misses.
func gatherRates(o RateOptions, gpus []*reader) (r placement.Rates, err error) {
	g := &gathering{options: o, gpus: gpus, peers: len(gpus) > 1}
	for _, a := range gpus {
		for _, b := range gpus {
			g.peers = g.peers && (a == b || a.d.CanRead(b.d))
		}
	}
	if !g.peers {
		g.gpus = gpus[:1]
	}
	if err := g.open(); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, g.cache.Close()) }()
	many := max(1, o.Batch/missesOf)
	few := max(1, many/2)
	own := g.batch(o.Batch, many)
	var stats cache.Stats
	var mixed, less, hits, peers, peerHits, same, small float64
	for _, c := range []struct {
		to    *float64
		batch func(gpu int, random *rand.Rand) []int64
		peers bool
	}{
		{&small, g.batch(fewRows, 0).local, false}, {&mixed, own.local, false}, {&less, g.batch(o.Batch, few).local, false},
		{&hits, g.batch(o.Batch, 0).local, false}, {&peers, own.peer, true}, {&peerHits, g.batch(o.Batch, 0).peer, true}, {&same, own.same, true},
	} {
		if c.peers && !g.peers {
			continue
		}
		before, err := g.cache.Stats()
		if err != nil {
			return r, err
		}
		if *c.to, err = g.time(c.batch); err != nil {
			return r, err
		}
		if stats, err = g.cache.Stats(); err != nil {
			return r, err
		}
		if t := stats.Sub(before).Tables[0]; c.peers && t.LocalHits > t.Lookups/100 || !c.peers && t.PeerHits > t.Lookups/100 {
			return r, fmt.Errorf("rates: rows lie elsewhere than they should: %d hits are in the own slab, %d in peers'", t.LocalHits, t.PeerHits)
		}
	}
	t := stats.Tables[0]
	stored := float64(t.StoredBytes) / float64(t.Rows)
	n, m, rowBytes := float64(o.Batch), float64(many), float64(o.RowBytes)
	if g.peers {
		// The more of the batch are peers' rows, the longer both kinds of batch take.
		if further := (1 - m/n) * (peerHits - hits); further > 0 {
			r.Beside = min(max(0, (peers-mixed)/further), 0.9)
		}
		r.Same = max(0, same-peers) / (n / sameOf)
	}
	miss := mixed / m // what a miss takes longer than a hit
	if many > few {
		miss = max((mixed-less)/float64(many-few), 0.1*miss)
	}
	// What is left of a batch without misses and hits: overhead and lookups.
	rest := min(max((mixed-m*miss-r.Beside*hits)/(1-r.Beside), 0), 0.9*hits)
	hit := (hits - rest) / n
	r.Overhead = min(small, rest) / 1e3
	r.Row = (rest - 1e3*r.Overhead) / n
	r.Local, r.Host = rowBytes/hit, stored/(miss+r.Beside*hit)
	r.Peer = r.Host // without peers, nothing is read of them
	if g.peers {
		r.Peer = stored / max((peerHits-rest)/n, hit) // no faster than the own
	}
	return r, nil
}

// open makes the cache. It holds the table's first rows, each in one slab.
func (g *gathering) open() error {
	source := whole(g.gpus[0].host.Bytes(), g.options.RowBytes)
	normals().fill(source)
	table, err := cache.FromBytes("normals", cache.Float32, source, g.options.RowBytes)
	if err != nil {
		return err
	}
	o := cache.Options{
		Tables: []cache.Table{table}, Device: "cuda", Devices: len(g.gpus), Codec: codecName, Seed: seed, Placement: cache.PlacementPartition,
		Budget: int64(len(source) / 8 / len(g.gpus)), Admission: admission.NewStaticFrequency(),
	}
	weights := make([]int64, len(g.gpus))
	for i, r := range g.gpus {
		o.GPUs = append(o.GPUs, r.d.Info().Index)
		weights[i] = 1
	}
	if g.cache, err = cache.New(o); err != nil {
		return err
	}
	stats, err := g.cache.Stats()
	if err != nil {
		return errors.Join(err, g.cache.Close())
	}
	g.rows, g.cached = stats.Tables[0].Rows, stats.Tables[0].CachedRows
	owner := placement.NewPartition(weights)
	for row := range g.cached * 9 / 10 { // the last ones may not have found room in every slab
		for i, of := 0, owner.Owner(hashmap.Key(0, row)); i < len(g.gpus); i++ {
			if i == of {
				g.own[i] = append(g.own[i], row)
			} else {
				g.others[i] = append(g.others[i], row)
			}
		}
	}
	enough := g.cached < g.rows/2
	for i := range g.gpus {
		enough = enough && len(g.own[i]) > 0 && (len(g.gpus) == 1 || len(g.others[i]) > 0)
	}
	if !enough {
		return errors.Join(fmt.Errorf("rates: table (%d rows, of which %d are cached) is too small", g.rows, g.cached), g.cache.Close())
	}
	return nil
}

// rateBatch is n rows, so many of which miss.
type rateBatch struct {
	*gathering
	n, misses int
}

func (g *gathering) batch(n, misses int) rateBatch { return rateBatch{g, n, misses} }

// local has hits in the GPU's own slab, peer in others, and same too, one row of which is many of them.
func (b rateBatch) local(gpu int, random *rand.Rand) []int64 { return b.make(random, b.of(gpu, true)) }
func (b rateBatch) peer(gpu int, random *rand.Rand) []int64  { return b.make(random, b.of(gpu, false)) }
func (b rateBatch) same(gpu int, random *rand.Rand) []int64 {
	of, queue := b.of(gpu, false), b.n/sameOf
	first := of(random)
	return b.make(random, func(random *rand.Rand) int64 {
		if queue--; queue >= 0 {
			return first
		}
		return of(random)
	})
}

// of returns rows at random of those of the GPU's own slab, or of the others'.
func (b rateBatch) of(gpu int, own bool) func(*rand.Rand) int64 {
	rows := b.others[gpu]
	if own {
		rows = b.own[gpu]
	}
	return func(random *rand.Rand) int64 { return rows[random.IntN(len(rows))] }
}

func (b rateBatch) make(random *rand.Rand, hit func(*rand.Rand) int64) []int64 {
	rows := make([]int64, b.n)
	for i := range rows {
		if i < b.misses {
			from := b.cached * 11 / 10
			rows[i] = from + random.Int64N(b.rows-from)
		} else {
			rows[i] = hit(random)
		}
	}
	random.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	return rows
}

// time returns what a batch takes on the slowest GPU, the median, in nanoseconds.
func (g *gathering) time(make func(gpu int, random *rand.Rand) []int64) (slowest float64, err error) {
	var wg sync.WaitGroup
	times, errs := [8]float64{}, [8]error{}
	for i := range g.gpus {
		wg.Go(func() {
			var numbers [][]int64
			for k := range uint64(sets) {
				numbers = append(numbers, make(i, rand.New(rand.NewPCG(uint64(i), k))))
			}
			times[i], errs[i] = g.timeOn(i, numbers)
		})
	}
	wg.Wait()
	return slices.Max(times[:]), errors.Join(errs[:]...)
}

func (g *gathering) timeOn(gpu int, numbers [][]int64) (nanos float64, err error) {
	r := g.gpus[gpu]
	var rows []device.Buffer
	defer func() {
		for _, b := range rows {
			r.d.Free(b)
		}
	}()
	for _, n := range numbers {
		b, err := putOn(r.d, asBytes(n))
		rows = append(rows, b)
		if err != nil {
			return 0, err
		}
	}
	view, handle := g.cache.On(gpu), r.stream.(*cuda.Stream).Handle()
	out := r.out.Slice(0, int64(len(numbers[0])*g.options.RowBytes))
	var times []float64
	for i := range (warmups + g.options.Runs) * sets {
		start := time.Now()
		b, err := view.GatherDevice(context.Background(), handle, 0, rows[i%sets], out)
		if err == nil {
			err = b.Wait()
		}
		if err != nil {
			return 0, err
		}
		if i >= warmups*sets {
			times = append(times, float64(time.Since(start).Nanoseconds()))
		}
	}
	return median(times), nil
}
