package cache

import "github.com/tensorcache/tensorcache/hashmap"

// Sample is one access of those that Options.Capture hears of.
type Sample struct {
	Table int
	Row   int64
	// Missed says that the row was not cached when the sample was read, up to 20 ms after the access.
	Missed bool
	// ByAccess and ByKey say what the access was kept for: Refresh.Accesses, Refresh.Keys, or both.
	ByAccess, ByKey bool
}

// Cached appends to dst whether each row would be a hit in a batch that begins now, and returns the extended slice. A row
// number out of range is not cached; a table that there is none of is an error.
func (c *Cache) Cached(table int, rows []int64, dst []bool) ([]bool, error) {
	if err := c.enter(); err != nil {
		return dst, err
	}
	defer c.leave()
	t, err := c.tableFor(table, nil, false)
	if err != nil {
		return dst, err
	}
	limit := t.tier.Rows()
	for _, row := range rows {
		in := row >= 0 && row < limit
		dst = append(dst, in && c.changes.mu.index.Find(hashmap.Key(table, row)).Valid()) // may be read beside its writer
	}
	return dst, nil
}

// captureRest hands the last samples to Options.Capture. REQUIRES: nothing runs in the background, no call is inside.
func (c *Cache) captureRest() {
	if c.opts.Capture == nil {
		return
	}
	for _, d := range c.devices {
		if d.ring == nil {
			return // New did not get that far
		}
		d.drain()
	}
	c.learner.drain()
}
