package cache

import (
	"context"
	"errors"
	"fmt"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
	"github.com/tensorcache/tensorcache/slab"
	"github.com/tensorcache/tensorcache/transfer"
)

// maxBatch is the most rows of one Gather: positions are 32 bits wide.
const maxBatch = 1<<31 - 1

// Gather writes row rows[i] of the table to out[i × row bytes:], for every i. rows are row numbers in any order,
// duplicates allowed; out must be exactly len(rows) × row bytes long. It blocks until out is written. The devices take
// turns; On picks one.
//
// Row numbers outside the table give an error that wraps ErrRows and names the first one and their count; an output of
// the wrong size one that wraps ErrOutput. out is untouched then. ctx is checked before work begins; once begun, a
// batch is finished, since out is being written.
func (c *Cache) Gather(ctx context.Context, table int, rows []int64, out []byte) error {
	return c.nextDevice().gather(ctx, table, rows, out)
}

// GatherAsync is Gather that returns at once. rows and out must stay as they are until the Pending is done.
func (c *Cache) GatherAsync(ctx context.Context, table int, rows []int64, out []byte) *Pending {
	return c.nextDevice().gatherAsync(ctx, table, rows, out)
}

// On returns the cache as seen from device i, 0 ≤ i < Devices(): its Gathers run there. It panics for other i.
func (c *Cache) On(i int) View {
	return View{c.devices[i]}
}

// View is a cache whose Gathers run on one device.
type View struct{ device *deviceState }

// Gather is Cache.Gather on the view's device.
func (v View) Gather(ctx context.Context, table int, rows []int64, out []byte) error {
	return v.device.gather(ctx, table, rows, out)
}

// GatherAsync is Cache.GatherAsync on the view's device.
func (v View) GatherAsync(ctx context.Context, table int, rows []int64, out []byte) *Pending {
	return v.device.gatherAsync(ctx, table, rows, out)
}

// Pending is a Gather under way. It is safe for concurrent use.
type Pending struct {
	done chan struct{}
	err  error
}

// Done returns a channel that is closed when the Gather has returned.
func (p *Pending) Done() <-chan struct{} { return p.done }

// Wait blocks until the Gather has returned and returns its error.
func (p *Pending) Wait() error {
	<-p.done
	return p.err
}

func (c *Cache) nextDevice() *deviceState {
	return c.devices[(c.turn.Add(1)-1)%uint64(len(c.devices))]
}

func (d *deviceState) gatherAsync(ctx context.Context, table int, rows []int64, out []byte) *Pending {
	p := &Pending{done: make(chan struct{})}
	if err := d.cache.enter(); err != nil {
		p.err = err
		close(p.done)
		return p
	}
	go func() {
		defer d.cache.leave()
		defer close(p.done)
		p.err = d.gatherEntered(ctx, table, rows, out)
	}()
	return p
}

func (d *deviceState) gather(ctx context.Context, table int, rows []int64, out []byte) error {
	if err := d.cache.enter(); err != nil {
		return err
	}
	defer d.cache.leave()
	return d.gatherEntered(ctx, table, rows, out)
}

// gatherEntered is Gather. REQUIRES: the cache is entered.
func (d *deviceState) gatherEntered(ctx context.Context, table int, rows []int64, out []byte) error {
	if table < 0 || table >= len(d.cache.tables) {
		return fmt.Errorf("cache: table (%d) must be 0 to %d", table, len(d.cache.tables)-1)
	}
	t := d.cache.tables[table]
	switch rowBytes := t.tier.RowBytes(); {
	case len(rows) > maxBatch:
		return fmt.Errorf("cache: batch (%d rows) must have at most %d", len(rows), maxBatch)
	case len(out) != len(rows)*rowBytes:
		return fmt.Errorf("%w: %d bytes for %d rows of table %s must be %d", ErrOutput, len(out), len(rows), t.name, len(rows)*rowBytes)
	}
	if err := checkRows(rows, t); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(rows) == 0 {
		return nil
	}
	l, err := d.acquire(ctx, len(rows))
	if err != nil {
		return err
	}
	defer d.releaseLane(l)
	if err := l.run(table, rows, out); err != nil {
		return fmt.Errorf("cache: Gather of %d rows of table %s on device %d: %w", len(rows), t.name, d.index, err)
	}
	return l.settle(t, rows)
}

// checkRows reports row numbers outside the table: the first and how many there are.
func checkRows(rows []int64, t *table) error {
	first, bad := 0, 0
	for i, r := range rows {
		if uint64(r) >= uint64(t.tier.Rows()) {
			if bad == 0 {
				first = i
			}
			bad++
		}
	}
	if bad == 0 {
		return nil
	}
	return fmt.Errorf("%w: row number (%d) at position %d must be 0 to %d of table %s; %d of %d are out of range",
		ErrRows, rows[first], first, t.tier.Rows()-1, t.name, bad, len(rows))
}

// run enqueues the stages of a batch and waits for them: lookup, then hits and misses beside each other.
func (l *lane) run(table int, rows []int64, out []byte) (err error) {
	d := l.owner
	t := d.cache.tables[table]
	n := int64(len(rows)) * kernels.FoundBytes
	*kernels.CountersView(l.counters) = kernels.Counters{}
	batch := transfer.Batch{
		Found: l.found.Slice(0, n), Scratch: l.scratch.Slice(0, n), Counters: l.counters, Out: device.HostBuffer(out),
	}
	l.lookup = kernels.Lookup{
		Map: d.hashes, Layout: d.layout, Table: table, Rows: device.HostBuffer(AsBytes(rows)), Found: batch.Found, Counters: l.counters,
	}
	l.decode = kernels.Decode{
		Found: batch.Found, Counters: l.counters, Slabs: l.slabs, Codec: t.tier.Codec(), Out: batch.Out, RowBytes: t.tier.RowBytes(),
	}
	// Whatever was enqueued must end before the batch's memory is used again.
	defer func() { err = errors.Join(err, l.miss.Synchronize(), l.hits.Synchronize()) }()
	if err := l.hits.Launch(&l.lookup); err != nil {
		return err
	}
	split, err := l.hits.Record()
	if err != nil {
		return err
	}
	if err := l.miss.Wait(split); err != nil {
		return err
	}
	if err := l.plan.Enqueue(l.miss, d.tiers[table], t.tier.Codec(), batch); err != nil {
		return err
	}
	return l.hits.Launch(&l.decode)
}

// settle counts a finished batch and reports rows that did not decode.
func (l *lane) settle(t *table, rows []int64) error {
	count := kernels.CountersView(l.counters)
	found := kernels.FoundView(l.found.Slice(0, int64(len(rows))*kernels.FoundBytes))
	reasons := count.Reasons
	for _, m := range found[len(found)-int(count.Misses):] {
		// The hashmap knows nothing of rows it never held: admission does.
		if why := slab.Reason(m.Reason); why == slab.Cold {
			switch row := int64(m.Word); {
			case t.oversize.has(row):
				why = slab.Oversize
			case t.rejected.has(row):
				why = slab.Rejected
			}
			reasons[slab.Cold]--
			reasons[why]++
		}
	}
	t.counts.add(count, &reasons)
	if count.Corrupt != 0 {
		p := count.CorruptPosition
		return fmt.Errorf("%w: %d of %d rows of table %s do not decode, row %d among them", ErrCorrupt, count.Corrupt, len(rows), t.name, rows[p])
	}
	return nil
}
