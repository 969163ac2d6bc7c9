package cache

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
)

// maxBatch is the most rows of one Gather: positions are 32 bits wide.
const maxBatch = 1<<31 - 1

// Gather writes row rows[i] of the table to out[i × row bytes:], for every i. rows are row numbers in any order,
// duplicates allowed; out must be exactly len(rows) × row bytes long. It blocks until out is written. The devices take
// turns; On picks one.
//
// Row numbers outside the table give an error that wraps ErrRows and names the first one and their count; an output of
// the wrong size one that wraps ErrOutput. out is untouched then. ctx is checked before work begins; once begun, a
// batch is finished, since out is being written. When a device fails for good, another one serves the batch; On that device it
// is an error that wraps ErrDevice.
func (c *Cache) Gather(ctx context.Context, table int, rows []int64, out []byte) error {
	if err := c.enter(); err != nil {
		return c.telemetry.refused(err)
	}
	defer c.leave()
	return c.gatherEntered(ctx, table, rows, out)
}

// GatherAsync is Gather that returns at once. rows and out must stay as they are until the Pending is done.
func (c *Cache) GatherAsync(ctx context.Context, table int, rows []int64, out []byte) *Pending {
	return c.async(ctx, func() error { return c.gatherEntered(ctx, table, rows, out) })
}

// gatherEntered is Gather on any device that is not lost. REQUIRES: the cache is entered.
func (c *Cache) gatherEntered(ctx context.Context, table int, rows []int64, out []byte) error {
	for {
		d := c.nextDevice()
		err := d.gatherEntered(ctx, table, rows, out)
		if err == nil || !errors.Is(err, ErrDevice) || !c.survives(d) {
			return err
		}
	}
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
	return v.device.cache.async(ctx, func() error { return v.device.gatherEntered(ctx, table, rows, out) })
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
	for {
		d := c.devices[(c.turn.Add(1)-1)%uint64(len(c.devices))]
		if !d.isLost() { // as one is always
			return d
		}
	}
}

// async runs a Gather in a goroutine.
func (c *Cache) async(ctx context.Context, gather func() error) *Pending {
	p := &Pending{done: make(chan struct{})}
	if err := c.enter(); err != nil {
		p.err = c.telemetry.refused(err)
		close(p.done)
		return p
	}
	go func() {
		pprof.SetGoroutineLabels(c.labels(ctx, "gather"))
		defer c.leave()
		defer close(p.done)
		p.err = gather()
	}()
	return p
}

func (d *deviceState) gather(ctx context.Context, table int, rows []int64, out []byte) error {
	if err := d.cache.enter(); err != nil {
		return d.cache.telemetry.refused(err)
	}
	defer d.cache.leave()
	return d.gatherEntered(ctx, table, rows, out)
}

// gatherEntered is Gather. REQUIRES: the cache is entered.
func (d *deviceState) gatherEntered(ctx context.Context, table int, rows []int64, out []byte) error {
	o := d.observe(ctx, table, len(rows))
	err := d.gatherBatch(ctx, table, rows, out, o.traced)
	o.end(err)
	return err
}

// gatherBatch is Gather, of a batch that is sampled if traced is not nil.
func (d *deviceState) gatherBatch(ctx context.Context, table int, rows []int64, out []byte, traced *tracedBatch) error {
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
	if d.isLost() {
		return d.lostError()
	}
	staged := d.slab.Bytes() == nil // then the device cannot address Go memory either
	part := len(rows)
	var area *staging
	if staged {
		part = max(1, min(part, stagedBytes/t.tier.RowBytes()))
		select {
		case area = <-d.stagings:
		case <-ctx.Done():
			return ctx.Err()
		}
		if area == nil {
			area = &staging{}
		}
		defer func() { d.stagings <- area }()
	}
	l, err := d.acquire(ctx, d.table(table), part, traced != nil)
	if err != nil {
		return d.orLost(err)
	}
	defer d.releaseLane(l, nil)
	if err := l.begin(ctx); err != nil {
		return err
	}
	l.trace(traced)
	var done outcome
	for from := 0; from < len(rows); from += part {
		to := min(from+part, len(rows))
		rows, out := rows[from:to], out[from*t.tier.RowBytes():to*t.tier.RowBytes()]
		if staged {
			err = l.runStaged(area, table, rows, out)
		} else {
			err = l.run(table, rows, out)
		}
		if err != nil {
			return d.wrap(err, len(rows), t)
		}
		done.add(kernels.CountersView(l.result), from)
		l.traceDone(from)
	}
	return done.report(d, table, len(rows))
}

// checkRows reports row numbers outside the table: the first and how many there are.
func checkRows(rows []int64, t *table) error {
	first, bad, limit := 0, 0, t.tier.Rows()
	for i, r := range rows {
		if uint64(r) >= uint64(limit) {
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
		ErrRows, rows[first], first, limit-1, t.name, bad, len(rows))
}

// run gathers into memory that the device can address.
func (l *lane) run(table int, rows []int64, out []byte) error {
	err := l.enqueue(l.stream, table, device.HostBuffer(AsBytes(rows)), device.HostBuffer(out))
	if err == nil {
		err = l.done.Synchronize()
	}
	return l.finish(err)
}

// finish waits, after an error, for what was enqueued: it must end before the batch's memory is used again.
func (l *lane) finish(err error) error {
	if err == nil {
		return nil
	}
	return errors.Join(err, l.abandon(l.stream))
}
