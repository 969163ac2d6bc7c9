package cache

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/cache/internal/observe"
	"github.com/tensorcache/tensorcache/cache/internal/read"
)

// Update replaces row rows[i] of the table by data[i × row bytes:], for every i. If a row number occurs twice, the last one counts.
// A Gather that begins after Update has returned sees the new rows. A Gather under way sees either version of each row, never a
// mixture. data must not change until Update returns.
//
// Row numbers from Rows(table) on append rows, up to the table's capacity. Appended rows must follow the last row without a gap, in any order within one call:
// so every row below Rows(table) has been written by somebody. For a gap, and for row numbers beyond the capacity, the error wraps ErrRows, and nothing
// changes. Of two callers that append rows 10 and 11 of a table of 10 rows, the second may be told that row 10 is missing: it is to try again.
//
// Updated rows lie in the overlay until they are written to the host tier. If the overlay is full, Update waits until earlier rows have
// left it, which takes as long as the longest batch under way. ctx bounds the waiting. The error then has the number of updated rows,
// which are the first ones given. If a client of a shared cache is what Update waits for, the error wraps ErrHeld after a time that the server
// sets. On an attached cache that loses its owner meanwhile, more rows may be updated than the number says.
//
// Updates of a table of pages are written to its log and, if that is durable, synced before they are served. Updates of several goroutines share syncs. Rows that the log has are
// served even if ctx ends, and if a client holds changes back: Update waits for it then, unless it finds before that the overlay is short of room. If a sync fails, the updates that it was for fail, and the table takes no others until it is opened again.
func (c *Cache) Update(ctx context.Context, table int, rows []int64, data []byte) (err error) {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	ctx, watch := c.startChange(ctx, "update", table, rows, len(data))
	defer func() { watch.End(err) }()
	t, err := c.tableFor(table, rows, true)
	if err != nil {
		return err
	}
	rowBytes := t.Tier.RowBytes()
	if len(data) != len(rows)*rowBytes {
		return fmt.Errorf("%w: %d bytes for %d rows of table %s must be %d", ErrOutput, len(data), len(rows), t.Name, len(rows)*rowBytes)
	}
	// Parts of an Update are published one after the other, so appended rows must ascend for the table never to have a gap.
	var of []int
	length := c.length(table)
	if slices.ContainsFunc(rows, func(r int64) bool { return r >= length }) && !slices.IsSorted(rows) {
		rows, data, of = inOrder(rows, data, rowBytes)
	}
	done, begun, err := c.owner.update(ctx, table, rows, data, watch.Cause())
	if err != nil && begun {
		return &updateError{t.Name, given(of, done), len(rows), err}
	}
	return err
}

// checkDense returns an error if some of rows, which ascend, are to be appended to a table and do not follow its last row without a gap.
func checkDense(t *read.Table, rows []int64) error {
	next := t.Tier.Rows() // may grow meanwhile, which closes gaps and makes none
	for _, r := range rows {
		if r > next {
			return fmt.Errorf("%w: row number (%d) must be at most %d, the row after the last one of table %s: rows are appended without a gap", ErrRows, r, next, t.Name)
		}
		next = max(next, r+1)
	}
	return nil
}

// inOrder returns rows in ascending order, equal numbers in the order given, with their data, and the position of each in the order given.
func inOrder(rows []int64, data []byte, rowBytes int) (ascending []int64, of []byte, positions []int) {
	positions = make([]int, len(rows))
	for i := range positions {
		positions[i] = i
	}
	slices.SortStableFunc(positions, func(a, b int) int { return cmp.Compare(rows[a], rows[b]) })
	ascending, of = make([]int64, len(rows)), make([]byte, 0, len(data))
	for i, at := range positions {
		ascending[i], of = rows[at], append(of, data[at*rowBytes:][:rowBytes]...)
	}
	return ascending, of, positions
}

// given returns how many of the first rows given are updated if the first done of those that inOrder has returned are.
func given(positions []int, done int) int {
	if positions == nil || done == len(positions) {
		return done
	}
	return slices.Min(positions[done:])
}

// updateError is the error of an Update that has begun.
type updateError struct {
	table    string
	done, of int
	err      error
}

func (e *updateError) Error() string {
	return fmt.Sprintf("cache: Update of table %s: %d of %d rows are updated: %v", e.table, e.done, e.of, e.err)
}

func (e *updateError) Unwrap() error { return e.err }

// Updated returns the number of updated rows, for an owner to tell its client.
func (e *updateError) Updated() int { return e.done }

// Invalidate withdraws rows from the data store. Their later lookups miss, with reason Invalidated, until a refresh cycle admits them
// again. Rows that are not cached stay as they are, and so do all of a resident table: there is no other copy of them. Invalidate does not wait for batches. For row numbers outside the table the error
// wraps ErrRows, and nothing changes.
func (c *Cache) Invalidate(table int, rows []int64) (err error) {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	_, watch := c.startChange(context.Background(), "invalidate", table, rows, 0)
	defer func() { watch.End(err) }()
	if _, err := c.tableFor(table, rows, false); err != nil {
		return err
	}
	return c.owner.invalidate(table, rows, watch.Cause())
}

// Refresh runs one refresh cycle. The policy observes the samples so far and ranks the rows. Then rows that it ranks low are evicted, and
// rows that it ranks high are admitted, within MaxChurn and MaxBytes of RefreshOptions. Refresh returns when the admitted rows are
// served. Gathers do not wait for it. Cycles run one at a time.
//
// A cycle also moves rows if free space is split into pieces that are too short for the longest row. After a cycle that did not reach
// MaxBytes, such pieces (Stats.HoleBytes) take at most a sixteenth of each slab, and 16 of the longest slots.
//
// The error wraps ErrPolicy if the policy has panicked, now or before. The cached rows then stay as they are.
func (c *Cache) Refresh(ctx context.Context) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	return c.owner.refresh(ctx)
}

// SetGPUMemory sets the bytes per device that slots, hashmap, row bits and tail slack may take. It returns once rows have given way;
// more room is filled by later cycles. A budget above all before it takes memory: a longer slab and, if needed, a larger hashmap,
// while the old ones are still held. A lower one keeps the memory for later.
//
// An error wraps ErrBudget when the budget does not hold a single row, ErrOptions when it is above 2^59, or device.ErrOutOfMemory when a device has no room for it, and
// nothing has changed then; one wraps ErrPolicy when the policy has panicked, and rows have given way all the same.
func (c *Cache) SetGPUMemory(ctx context.Context, bytes int64) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	return c.owner.setBudget(ctx, bytes)
}

// SetBudget is the earlier name of SetGPUMemory. It goes with the next release.
func (c *Cache) SetBudget(ctx context.Context, bytes int64) error { return c.SetGPUMemory(ctx, bytes) }

// SetRefresh changes RefreshOptions.Interval, MaxChurn and MaxBytes; zero MaxChurn and MaxBytes stand for their defaults. It waits for a cycle under
// way, and the next one begins an interval later. What is sampled cannot change: the other fields must be zero, or as they were given to New with its
// defaults. An interval needs a cache that samples accesses, and is not attached. An error wraps ErrOptions, and nothing has changed then.
func (c *Cache) SetRefresh(o RefreshOptions) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	if err := c.owner.own("SetRefresh"); err != nil {
		return err
	}
	all := new(optionsError)
	invalid := all.add
	now := &c.opts.Refresh
	for _, share := range []struct {
		name      string
		given, as float64
	}{{"Accesses", o.Accesses, now.Accesses}, {"Misses", o.Misses, now.Misses}, {"Keys", o.Keys, now.Keys}} {
		if share.given != 0 && share.given != share.as {
			invalid("cache: Refresh.%s (%v) must stay %v: it cannot change while the cache is open", share.name, share.given, share.as)
		}
	}
	o.Accesses, o.Misses, o.Keys = now.Accesses, now.Misses, now.Keys
	if o.Interval > 0 && now.Accesses == 0 {
		invalid("cache: Refresh.Interval (%v) must be 0 of a cache that was opened without Refresh.Accesses", o.Interval)
	}
	if o.OnKeys != nil {
		invalid("cache: Refresh.OnKeys must be nil: it cannot change while the cache is open")
	}
	if o.ensureDefaults(); all.orNil() == nil {
		o.validate(invalid)
	}
	if err := all.orNil(); err != nil {
		return err
	}
	c.writer.SetRefresh(o.Interval, o.MaxChurn, o.MaxBytes)
	return nil
}

// SetPolicy replaces the admission policy by one that is new. The cache takes ownership of it. It waits for a refresh cycle under way. The new
// policy begins with one access to each cached row, and learns from the samples that follow; what the old one had learnt is lost. It
// may replace a policy that has panicked. If p does not start, the error says why, p is closed, and the old policy stays. What is sampled was
// decided by New: a policy that is an admission.Weigher, in place of one that is not, observes no more misses than that one did.
func (c *Cache) SetPolicy(p admission.Policy) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	if err := c.owner.own("SetPolicy"); err != nil {
		p.Close()
		return err
	}
	if err := c.writer.SetPolicy(p); err != nil {
		return fmt.Errorf("cache: policy %s: %w", p.Name(), err)
	}
	return nil
}

// Cached appends to dst, for each row, whether it would be a hit in a batch that begins now, and returns the extended slice. Row numbers
// outside the table are not cached. For a table index out of range the error wraps ErrTable.
func (c *Cache) Cached(table int, rows []int64, dst []bool) ([]bool, error) {
	if err := c.enter(); err != nil {
		return dst, err
	}
	defer c.leave()
	if err := c.checkTable(table); err != nil {
		return dst, err
	}
	return c.owner.cached(table, rows, dst)
}

// startChange starts the span of a call that changes rows of a table.
func (c *Cache) startChange(ctx context.Context, what string, table int, rows []int64, bytes int) (context.Context, observe.Operation) {
	name := ""
	if table >= 0 && table < len(c.set.Tables) {
		name = c.set.Tables[table].Name
	}
	ctx, o := c.watch.Start(ctx, what, name)
	o.Set(observe.KeyChangedRows.Int(len(rows)), observe.KeyChangedBytes.Int(bytes))
	return ctx, o
}

// tableFor returns a table after checking that row numbers are below its capacity if grow is set, else below its length.
func (c *Cache) tableFor(table int, rows []int64, grow bool) (*read.Table, error) {
	if err := c.checkTable(table); err != nil {
		return nil, err
	}
	t := c.set.Tables[table]
	if !grow {
		return t, read.CheckRows(t, rows)
	}
	for i, r := range rows {
		if uint64(r) >= uint64(t.Tier.Capacity()) {
			return nil, fmt.Errorf("%w: row number (%d) at position %d must be 0 to %d, the capacity of table %s", ErrRows, r, i, t.Tier.Capacity()-1, t.Name)
		}
	}
	return t, nil
}
