package read

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/reduce"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
)

// A pooled batch of a table of pages on a GPU is two on one stream: one gathers its rows to device memory, as plain batches do, and one adds them up there, as
// pooled batches of a table without a codec add up rows that miss, in the order that package reduce says. Bags of one size pass through the memory in rounds.

// mostGathered is the most rows of a round. More would take more lists than a device has beside the memory for the rows.
const mostGathered = 256 << 10

// gatheredParts are where the parts of a round's memory begin: an empty hashmap, row numbers for both batches, sums of runs, and rows.
type gatheredParts struct{ numbers, places, partials, rows, end int64 }

// emptyMap is the layout of a hashmap without entries, all of whose bytes are 0xff.
var emptyMap = hashmap.LayoutFor(1)

func gatheredPartsOf(b *reduce.Batch, rowBytes int) (p gatheredParts) {
	up := func(n int64) int64 { return (n + 127) &^ 127 }
	n := int64(b.Rows)
	p.numbers = up(emptyMap.Bytes())
	p.places = p.numbers + up(8*n)
	p.partials = p.places + up(8*n)
	p.rows = p.partials + up(b.PartialBytes())
	p.end = p.rows + up(n*int64(rowBytes)) + slab.TailSlack
	return p
}

// gatherThenPool enqueues a pooled batch of a table some of whose rows may be absent.
func (d *Device) gatherThenPool(ctx context.Context, s device.Stream, table int, rows RowNumbers, b *reduce.Batch, out device.Buffer, w Watcher, trace *Trace) (*Batch, error) {
	if !d.Device.NeedsStaging() {
		return d.gatherThenPoolHere(ctx, s, table, rows, b, out, w)
	}
	t, width := d.set.Tables[table], rows.bytes()
	if len(d.lanes)-d.spare < 2 { // one gathers while the other one waits to add up
		return nil, fmt.Errorf("%w: batches at a time (%d) must be at least 2 for sums of table %s, of which rows may be absent from host memory", ErrPooling, len(d.lanes)-d.spare, t.Name)
	}
	rowBytes := t.Tier.RowBytes()
	most := int(min(mostGathered, d.set.Tuning.GatheredBytes/int64(rowBytes)))
	select { // two calls that hold lanes while they wait for others could wait for each other
	case d.gathering <- struct{}{}:
		defer func() { <-d.gathering }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if b.Rows > 0 && (rowBytes >= longRow || rowBytes%4 != 0 || b.Size == 0 && b.Rows > most || b.Size > most) {
		return d.gatherThenSum(ctx, s, table, rows, b, out, w, trace)
	}
	bags := b.Bags
	if b.Size != 0 {
		bags = most / b.Size
	}
	all := &Batch{table: table, rows: b.Rows}
	all.mu.settled = true
	joined := &joinedWatcher{of: w}
	joined.begin()
	for from := 0; from < b.Bags; from += bags {
		round := *b
		if b.Size != 0 {
			round.Bags = min(bags, b.Bags-from)
			round.Rows = round.Bags * b.Size
		}
		at := from * b.Size
		if b.Weights.Size() > 0 {
			round.Weights = b.Weights.Slice(int64(at)*4, int64(at+round.Rows)*4)
		}
		numbers := RowNumbers{rows.Buffer.Slice(int64(at)*width, int64(at+round.Rows)*width), rows.Int32}
		to := out.Slice(int64(from)*b.Stride, int64(from+round.Bags-1)*b.Stride+int64(b.OutBytes()))
		err := d.gatherRound(ctx, s, table, at, numbers, &round, to, all, joined, trace)
		if err != nil {
			joined.forget()
			return nil, errors.Join(err, firstError(all.parts)) // they write to out
		}
		trace = nil // it is of the first round
	}
	joined.End(nil, time.Time{})
	return all, nil
}

// gatherRound enqueues some bags of a batch, whose rows begin at a position, and adds both batches to all.
func (d *Device) gatherRound(
	ctx context.Context, s device.Stream, table, from int, rows RowNumbers, b *reduce.Batch, out device.Buffer, all *Batch, w *joinedWatcher, trace *Trace,
) error {
	t := d.set.Tables[table]
	padding := b.Padding
	b.Padding = -1
	pool := d.fusedRoute(table, b)
	pool.gathered, pool.from = true, from
	l, fail, err := d.acquireToSum(ctx, s, pool, table, b.Rows)
	if err != nil {
		return err
	}
	n, p := int64(b.Rows), gatheredPartsOf(b, t.Tier.RowBytes())
	divided := &kernels.PoolRows{
		Rows: rows.Buffer, Int32: rows.Int32, Numbers: l.lists.Slice(p.numbers, p.numbers+8*n), Places: l.lists.Slice(p.places, p.places+8*n),
		Padding: padding, Limit: t.Tier.Rows(),
	}
	if n > 0 {
		if err := errors.Join(s.Fill(l.lists.Slice(0, emptyMap.Bytes()), 0xff), s.Launch(divided)); err != nil {
			return fail(d.wrap(err, b.Rows, t))
		}
		plain, planned := d.decide(table, n, trace != nil)
		plain.gathers, plain.from = true, from
		w.begin()
		gathered, err := d.gather(ctx, s, plain, planned, table, RowNumbers{Buffer: divided.Numbers}, l.lists.Slice(p.rows, p.rows+n*int64(t.Tier.RowBytes())), w, trace)
		if err != nil {
			return fail(err)
		}
		all.parts = append(all.parts, gathered)
	}
	if err := l.enqueue(s, table, RowNumbers{Buffer: divided.Places}, out); err != nil {
		return fail(d.wrap(err, b.Rows, t))
	}
	w.begin()
	all.parts = append(all.parts, d.track(l, table, b.Rows, w))
	return nil
}

// acquireToSum acquires a lane for what adds up rows that other batches gather on a stream. Behind an error, fail gives the lane back and returns the error.
func (d *Device) acquireToSum(ctx context.Context, s device.Stream, r route, table, rows int) (l *lane, fail func(error) error, err error) {
	if l, err = d.acquire(ctx, r, rows); err != nil {
		return nil, nil, d.orLost(err)
	}
	l.view = d.view.Load() // it reads nothing of the cache, so changes need not know of it
	fail = func(err error) error {
		l.abandon(s)
		d.release(l, nil)
		return err
	}
	if d.IsLost() {
		return nil, nil, fail(d.LostError())
	}
	if l.after != nil {
		if err := s.Wait(l.after); err != nil {
			return nil, nil, fail(d.wrap(err, rows, d.set.Tables[table]))
		}
	}
	return l, fail, nil
}

// enqueueGathered enqueues the adding up of gathered rows.
func (r *route) enqueueGathered(l *lane, s device.Stream, lookup kernels.Lookup) error {
	rowBytes := r.table.Rows.RowBytes
	p, n := gatheredPartsOf(r.pool, rowBytes), int64(r.pool.Rows)
	l.serve = kernels.Serve{
		Lookup: kernels.Lookup{
			Map: l.lists.Slice(0, emptyMap.Bytes()), Layout: emptyMap, Limit: n, Rows: lookup.Rows, Out: lookup.Out, RowBytes: rowBytes, Counters: l.counters,
		},
		Tier:   kernels.HostRows{Mem: l.lists.Slice(p.rows, p.rows+n*int64(rowBytes)), Stride: int64(rowBytes), RowBytes: rowBytes},
		Result: l.result, Batch: l.batch, Pool: r.pool, Partials: l.lists.Slice(p.partials, p.partials+r.pool.PartialBytes()),
	}
	return s.Launch(l.serve.Pooled())
}

// gatherThenPoolHere is gatherThenPool for the host backend, where all is done when it returns.
func (d *Device) gatherThenPoolHere(ctx context.Context, s device.Stream, table int, rows RowNumbers, b *reduce.Batch, out device.Buffer, w Watcher) (*Batch, error) {
	t, o := d.set.Tables[table], Outcome{pooled: true}
	if err := s.Synchronize(); err != nil {
		return nil, d.wrap(err, b.Rows, t)
	}
	numbers := make([]int64, b.Rows)
	for i := range numbers {
		row := rows.at(i)
		switch {
		case row == b.Padding:
			row = -1
		case uint64(row) >= uint64(t.Tier.Rows()):
			if o.outOfRange++; o.outOfRange == 1 {
				o.outOfRangeAt = i
			}
			row = -1
		}
		numbers[i] = row
	}
	left := *b
	left.Padding = -1
	err := gatherThenPool(ctx, d, table, numbers, &left, out.Bytes(), nil)
	if err == nil {
		err = o.verdict(t, int64(b.Rows))
	}
	return d.over(table, b.Rows, err, w), nil
}

// at returns row number i, which the host addresses.
func (r RowNumbers) at(i int) int64 {
	mem := unsafe.Pointer(unsafe.SliceData(r.Buffer.Bytes()))
	if r.Int32 {
		return int64(unsafe.Slice((*int32)(mem), i+1)[i])
	}
	return unsafe.Slice((*int64)(mem), i+1)[i]
}

// firstError waits for batches, and returns the error of the first that had one.
func firstError(of []*Batch) (err error) {
	for _, b := range of {
		if e := b.Wait(); err == nil {
			err = e
		}
	}
	return err
}

// joinedWatcher notifies a watcher when all of several batches have ended.
type joinedWatcher struct {
	mu   sync.Mutex
	of   Watcher // may be nil
	left int
	err  error
	at   time.Time
}

// begin announces a call of End.
func (j *joinedWatcher) begin() {
	j.mu.Lock()
	j.left++
	j.mu.Unlock()
}

// End implements Watcher.
func (j *joinedWatcher) End(err error, at time.Time) {
	j.mu.Lock()
	j.left--
	if j.err == nil {
		j.err = err
	}
	if at.After(j.at) {
		j.at = at
	}
	last := j.left == 0 && j.of != nil
	j.mu.Unlock()
	if last {
		j.of.End(j.err, j.at)
	}
}

// forget keeps the watcher from being notified.
func (j *joinedWatcher) forget() {
	j.mu.Lock()
	j.of = nil
	j.mu.Unlock()
}

// Rows implements Watcher. None of the batches is a window.
func (j *joinedWatcher) Rows(int) {}

// Captured implements Watcher. None of the batches is.
func (j *joinedWatcher) Captured() {}
