//go:build cuda && linux

package gpu

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/tensorcache/tensorcache/cache"
	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/cuda"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/transfer"
)

// served is a cache of one table, whose rows of the smallest numbers it holds.
type served struct {
	*runner
	cache  *cache.Cache
	source []byte // the rows, uncompressed
	// rows of the table, those that are cached, and the bytes of each.
	rows, cached int64
	rowBytes     int
}

// serve makes a cache of a table's rows.
func (r *runner) serve(source []byte, rowBytes int, o cache.Options) (*served, error) {
	s := &served{runner: r, source: whole(source, rowBytes), rowBytes: rowBytes}
	s.rows = int64(len(s.source) / rowBytes)
	table, err := cache.FromBytes("normals", cache.Float32, s.source, rowBytes)
	if err != nil {
		return nil, err
	}
	o.Tables, o.Device, o.Codec, o.Seed = []cache.Table{table}, "cuda", codecName, seed
	if o.Admission == nil {
		o.Admission = admission.NewStaticFrequency()
	}
	if s.cache, err = cache.New(o); err != nil {
		return nil, err
	}
	stats, err := s.cache.Stats()
	if err != nil {
		return nil, errors.Join(err, s.cache.Close())
	}
	if s.cached = stats.Tables[0].CachedRows; s.cached == 0 || s.cached == s.rows {
		err := fmt.Errorf("cached rows (%d) must be some of %d: the table is too small", s.cached, s.rows)
		return nil, errors.Join(err, s.cache.Close())
	}
	return s, nil
}

// turns are batches of one size that take turns.
type turns struct {
	numbers [][]int64
	rows    []device.Buffer
}

// upload puts batches on the device.
func (r *runner) upload(numbers [][]int64) (turns, error) {
	t := turns{numbers: numbers}
	for _, n := range numbers {
		b, err := r.put(asBytes(n))
		if err != nil {
			return t, err
		}
		t.rows = append(t.rows, b)
	}
	return t, nil
}

// batches are hits and misses mixed at random, and the same ones apart.
func (s *served) batches(hits, misses int) (mixed, hit, miss [][]int64) {
	for i := range uint64(sets) {
		h, m := randomRows(hits, 0, s.cached, i), randomRows(misses, s.cached, s.rows, i)
		all := slices.Concat(h, m)
		rand.New(rand.NewPCG(i, 3)).Shuffle(len(all), func(a, b int) { all[a], all[b] = all[b], all[a] })
		mixed, hit, miss = append(mixed, all), append(hit, h), append(miss, m)
	}
	return mixed, hit, miss
}

// out returns the part of an output that a batch of these writes.
func (s *served) out(out device.Buffer, t turns) device.Buffer {
	return out.Slice(0, t.rows[0].Size()/8*int64(s.rowBytes))
}

// gather times whole Gathers on the device, and compares what the last one wrote.
func (s *served) gather(t turns, out device.Buffer) (float64, error) {
	return s.gatherAfter(s.o.Runs, func() error { return nil }, t, out)
}

func (s *served) gatherAfter(runs int, before func() error, t turns, out device.Buffer) (float64, error) {
	view, handle := s.cache.On(0), s.stream.(*cuda.Stream).Handle()
	out = s.out(out, t)
	start, err := s.cache.Stats()
	if err != nil {
		return 0, err
	}
	var pending []*cache.Batch
	seconds, err := s.timeAfter(runs, before, func(i int) error {
		b, err := view.GatherDevice(context.Background(), handle, 0, t.rows[i%sets], out)
		if err == nil {
			pending = append(pending, b)
		}
		return err
	})
	for _, b := range pending {
		err = errors.Join(err, b.Wait())
	}
	if err != nil {
		return 0, err
	}
	end, err := s.cache.Stats()
	if err != nil {
		return 0, err
	}
	if err := s.checkHits(t, end.Sub(start).Tables[0]); err != nil {
		return 0, err
	}
	return seconds, s.check("Gather", out, s.source, t.numbers[s.lastSet(runs)], s.rowBytes)
}

// checkHits says whether the rows that were to be cached were. Every batch of a set has as many of them; a map may hold
// all but a few.
func (s *served) checkHits(t turns, done cache.TableStats) error {
	want := 0
	for _, row := range t.numbers[0] {
		if row < s.cached {
			want++
		}
	}
	have, share := float64(done.Hits)/float64(done.Lookups), float64(want)/float64(len(t.numbers[0]))
	if math.Abs(have-share) > 0.001 {
		return fmt.Errorf("hits (%.2f %% of %d lookups) must be %.2f %%: other rows are cached than expected", 100*have, done.Lookups, 100*share)
	}
	return nil
}

// plain times a plain gather of the same rows, uncompressed, from wherever they lie.
func (s *served) plain(t turns, mem, out device.Buffer) (float64, error) {
	gathers := make([]kernels.Gather, sets)
	for i := range gathers {
		gathers[i] = kernels.Gather{Mem: mem, Rows: t.rows[i], Out: s.out(out, t), RowBytes: s.rowBytes}
	}
	return s.time(func(i int) error { return s.stream.Launch(&gathers[i%sets]) })
}

// zeroCopy times plain gathers from page-locked memory, of the rows as they come and in order: GB/s of each.
func (s *served) zeroCopy(t turns, host, out device.Buffer) (unsorted, sorted float64, err error) {
	seconds, err := s.plain(t, host, out)
	if err != nil {
		return 0, 0, err
	}
	unsorted = s.speed(t, seconds)
	var inOrder [][]int64
	for _, n := range t.numbers {
		inOrder = append(inOrder, slices.Sorted(slices.Values(n)))
	}
	o, err := s.upload(inOrder)
	if err != nil {
		return 0, 0, err
	}
	if seconds, err = s.plain(o, host, out); err != nil {
		return 0, 0, err
	}
	return unsorted, s.speed(t, seconds), nil
}

// speed is the GB/s of output of a batch.
func (s *served) speed(t turns, seconds float64) float64 {
	return float64(len(t.numbers[0])*s.rowBytes) / 1e9 / seconds
}

// result is what all results of the cache share.
func (s *served) result(name string, batch int) Result {
	return Result{Case: name, RowBytes: s.rowBytes, Codec: codecName, TableBytes: int64(len(s.source)), Batch: batch, Unit: "GB/s"}
}

// gathers measures whole batches of a cache that holds about half of its table. tier has the same rows in the same layout as
// the cache's own host tier, and is needed for gather-misses only.
func (r *runner) gathers(rowBytes int, tier *transfer.Tier) error {
	small := []string{"small-batch", "small-batch-caller", "caller"}
	if rowBytes != smallRow {
		small = nil
	}
	if !r.has(append(small, "gather-hits", "gather-misses", "gather-80")...) {
		return nil
	}
	table, err := r.normalRows()
	if err != nil {
		return err
	}
	var s *served
	if err := r.measure(setup, func() (err error) {
		s, err = r.serve(table.host.Bytes(), rowBytes, cache.Options{Budget: r.o.TableBytes / 2})
		return err
	}); err != nil {
		return err
	}
	defer s.cache.Close()
	out, err := r.alloc(int64(r.o.Batch) * int64(rowBytes))
	if err != nil {
		return err
	}
	for _, c := range []struct {
		name string
		run  func() error
	}{
		{"gather-hits", func() error { return s.gatherHits(table, out) }},
		{"gather-misses", func() error { return s.gatherMisses(table, out, tier) }},
		{"gather-80", func() error { return s.gather80(table, out) }},
	} {
		if r.has(c.name) {
			if err := r.measure(c.name, c.run); err != nil {
				return err
			}
		}
	}
	if !r.has(small...) {
		return nil
	}
	return r.measure("small-batch", func() error { return s.smallBatches(table) })
}

func (s *served) gatherHits(table *filled, out device.Buffer) error {
	_, hits, _ := s.batches(s.o.Batch, 0)
	t, err := s.upload(hits)
	if err != nil {
		return err
	}
	plain, err := s.plain(t, table.mem, out)
	if err != nil {
		return err
	}
	own, err := s.gather(t, out)
	if err != nil {
		return err
	}
	x := s.result("gather-hits", s.o.Batch)
	x.Value, x.Baseline, x.BaselineValue = s.speed(t, own), "plain gather, uncompressed", s.speed(t, plain)
	s.add(x)
	return nil
}

// gatherMisses compares with what the link could do if it moved the sectors of the stored rows and nothing else.
func (s *served) gatherMisses(table *filled, out device.Buffer, tier *transfer.Tier) error {
	limits, err := s.limits()
	if err != nil {
		return err
	}
	_, _, misses := s.batches(0, s.o.Batch)
	t, err := s.upload(misses)
	if err != nil {
		return err
	}
	touched, err := sectorsOf(tier, misses)
	if err != nil {
		return err
	}
	unsorted, sorted, err := s.zeroCopy(t, table.host, out)
	if err != nil {
		return err
	}
	own, err := s.gather(t, out)
	if err != nil {
		return err
	}
	x := s.result("gather-misses", s.o.Batch)
	x.Value, x.Baseline, x.BaselineValue = s.speed(t, own), "link × row bytes ÷ bytes of sectors touched", limits.toDevice*float64(s.rowBytes)/touched
	x.Further = []Further{{UnsortedZeroCopy, unsorted}, {SortedZeroCopy, sorted}}
	x.Detail = fmt.Sprintf("%.1f bytes of sectors a row", touched)
	s.add(x)
	return nil
}

// sectorsOf returns the mean bytes of the sectors that these rows touch in a host tier, from each one's address and
// stored length.
func sectorsOf(tier *transfer.Tier, batches [][]int64) (float64, error) {
	sum, rows := int64(0), 0
	for _, b := range batches {
		for _, row := range b {
			stored, _, err := tier.Stored(row)
			if err != nil {
				return 0, err
			}
			sum += sectors(address(stored), len(stored))
		}
		rows += len(b)
	}
	return float64(sum) / float64(rows), nil
}

// gather80 compares a batch of 80 % hits with the slower of its hits and its misses alone: what it would take if the two
// overlapped in full. Each run comes behind other work that clears the device's caches: hits or misses alone, back to back, find
// there what the other kind would have driven out.
func (s *served) gather80(table *filled, out device.Buffer) error {
	hits := s.o.Batch * 8 / 10
	mixed, hit, miss := s.batches(hits, s.o.Batch-hits)
	busy, err := s.alloc(s.busyBytes())
	if err != nil {
		return err
	}
	var seconds [3]float64
	var t [3]turns
	for i, numbers := range [][][]int64{mixed, hit, miss} {
		if t[i], err = s.upload(numbers); err != nil {
			return err
		}
		if seconds[i], err = s.gatherAfter(s.o.Runs, func() error { return s.stream.Fill(busy, 0) }, t[i], out); err != nil {
			return err
		}
	}
	plain, err := s.plain(t[0], table.host, out)
	if err != nil {
		return err
	}
	x := s.result("gather-80", s.o.Batch)
	x.Value, x.Baseline, x.BaselineValue = s.speed(t[0], seconds[0]), "the slower of its hits and its misses alone", s.speed(t[0], max(seconds[1], seconds[2]))
	x.Further = []Further{{UnsortedZeroCopy + ", of all rows", s.speed(t[0], plain)}}
	x.Detail = fmt.Sprintf("µs, each behind other work: %.0f; hits alone %.0f, misses alone %.0f", seconds[0]*1e6, seconds[1]*1e6, seconds[2]*1e6)
	s.add(x)
	return nil
}
