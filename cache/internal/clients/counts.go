package clients

import (
	"log/slog"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/board"
)

// What batches of one client on one device can count in a second of one table. More, or less than before, is nonsense: counters of such a client are
// taken as they were before it.
const (
	mostRows  = 1 << 36 // also Gathers
	mostBytes = 1 << 44
)

// countsLocked returns what the client's batches on a device have counted of a table. REQUIRES: Owner.mu is locked, and the client is not gone.
func (c *Client) countsLocked(device, table int) board.Totals {
	was := &c.counted[device][table]
	if c.doubted {
		return *was
	}
	now, ok := c.board.Sum(table, device*c.lanes, (device+1)*c.lanes)
	kind := c.owner.kinds[table]
	kind.batches(&now)
	replays, whole := c.capturedLocked(device, table)
	now.Add(&replays)
	switch {
	case !ok, !whole: // the client writes all the time
		return *was
	case !plausible(was, &now, time.Since(c.since)):
		c.doubted = true
		c.owner.o.Log.Warn("counters of a client are out of range: it is not counted any more", slog.String("client", c.name))
		return *was
	}
	kind.peerBytes(was, &now)
	*was = now
	return now
}

// addCountsLocked adds what countsLocked returns.
func (c *Client) addCountsLocked(to *board.Totals, device, table int) {
	counts := c.countsLocked(device, table)
	to.Add(&counts)
}

// totalsLocked returns the sum of all tables and devices. REQUIRES: as countsLocked.
func (c *Client) totalsLocked() (t board.Totals) {
	for d := range c.counted {
		for table := range c.counted[d] {
			c.addCountsLocked(&t, d, table)
		}
	}
	return t
}

// plausible says whether counters can have become now from was, if all began at 0 so long ago.
func plausible(was, now *board.Totals, age time.Duration) bool {
	seconds := age.Seconds() + 1
	in := func(was, now int64, most float64) bool { return now >= was && float64(now) <= most*seconds }
	for r := range now.Reasons {
		if !in(was.Reasons[r], now.Reasons[r], mostRows) {
			return false
		}
	}
	return in(was.Overflow, now.Overflow, mostRows) && now.Overflow <= now.Hits && in(was.Gathers, now.Gathers, mostRows) && in(was.Hits, now.Hits, mostRows) && in(was.PeerHits, now.PeerHits, mostRows) &&
		now.PeerHits <= now.Hits && in(was.HostBytes, now.HostBytes, mostBytes)
}
