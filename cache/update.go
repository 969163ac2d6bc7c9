package cache

import (
	"context"
	"fmt"

	"github.com/tensorcache/tensorcache/cache/internal/observe"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/hashmap"
)

// Update replaces rows[i] of the table by data[i × row bytes:], for every i; of a row number given twice the last counts.
// When it has returned, every Gather that begins sees the new rows; those under way see either version of each, never a
// mixture. data is used until it returns.
//
// Row numbers from Rows(table) on, below the table's capacity, insert rows: the table becomes as long as the highest one
// needs, and rows between that were never given are zeros. An error that wraps ErrRows, with nothing changed, is for row
// numbers beyond the capacity.
//
// Rows on their way to the host tier are bounded by Options.Overlay: Update waits for earlier ones when there are more,
// which takes as long as the longest batch under way. ctx bounds that; the error then says how many rows are updated, a
// prefix of those given.
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
	done, err := c.writer.Update(ctx, table, rows, data, watch.Cause())
	if err != nil {
		return fmt.Errorf("cache: Update of table %s: %d of %d rows are updated: %w", t.Name, done, len(rows), err)
	}
	return nil
}

// Invalidate withdraws rows from the data store: their later lookups miss, with reason Invalidated, and are read from the
// host tier until admission takes them again: by the next Refresh, if the policy ranks them high. Rows that are not cached
// stay as they are. It waits for no batch. Row numbers outside the table are an error that wraps ErrRows, with nothing changed.
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
	return c.writer.Invalidate(table, rows, watch.Cause())
}

// Refresh runs one cycle: it hands the samples so far to the policy, asks it for its ranking, takes the slots of the rows
// worth least, and admits those worth more in their place, within MaxChurn and MaxBytes. It returns when they are being
// served. Gathers do not wait for it. Cycles run one at a time.
//
// Where slots of different sizes leave the free space in pieces, it moves rows: after a cycle that did not run out of
// MaxBytes, free pieces too short for the longest row take at most a sixteenth of each slab, and a window (Stats.HoleBytes).
//
// An error wraps ErrPolicy when the policy panicked, now or before: what is cached then stays as it is.
func (c *Cache) Refresh(ctx context.Context) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	return c.writer.Refresh(ctx)
}

// SetBudget sets the bytes per device that slots, hashmap, row bits and tail slack may take. It returns once rows have given way;
// more room is filled by later cycles. A budget above all before it takes memory: a longer slab and, if needed, a larger hashmap,
// while the old ones are still held. A lower one keeps the memory for later. With 8 devices, Options.Budget is the most.
//
// An error wraps ErrBudget when the budget does not hold a single row, or device.ErrOutOfMemory when a device has no room for it, and
// nothing has changed then; one wraps ErrPolicy when the policy has panicked, and rows have given way all the same.
func (c *Cache) SetBudget(ctx context.Context, bytes int64) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.leave()
	return c.writer.SetBudget(ctx, bytes)
}

// Cached appends to dst whether each row would be a hit in a batch that begins now, and returns the extended slice. A row
// number out of range is not cached. An index of no table is an error that wraps ErrTable.
func (c *Cache) Cached(table int, rows []int64, dst []bool) ([]bool, error) {
	if err := c.enter(); err != nil {
		return dst, err
	}
	defer c.leave()
	if err := c.checkTable(table); err != nil {
		return dst, err
	}
	limit := c.set.Tables[table].Tier.Rows()
	for _, row := range rows {
		in := row >= 0 && row < limit
		dst = append(dst, in && c.writer.Find(hashmap.Key(table, row)).Valid())
	}
	return dst, nil
}

// startChange begins the span of a call that changes rows of a table.
func (c *Cache) startChange(ctx context.Context, what string, table int, rows []int64, bytes int) (context.Context, observe.Operation) {
	name := ""
	if table >= 0 && table < len(c.set.Tables) {
		name = c.set.Tables[table].Name
	}
	ctx, o := c.watch.Start(ctx, what, name)
	o.Set(observe.KeyChangedRows.Int(len(rows)), observe.KeyChangedBytes.Int(bytes))
	return ctx, o
}

// tableFor returns a table, and checks the row numbers: below its capacity where it may grow, else below its length.
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
