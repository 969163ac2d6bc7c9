package clients

import (
	"fmt"

	"github.com/tensorcache/tensorcache/cache/internal/board"
)

// captures is how many places a client's board has for captured batches of a device: 384 KiB.
const captures = 1024

// placeOf returns a device's place on the client's board.
func (c *Client) placeOf(device, i int) *board.Capture { return c.board.Capture(device*captures + i) }

// counted returns the table of the captured batch that has a place, and what its replays have counted. ok is false if the place has changed all the time.
func (w *Owner) counted(p *board.Capture) (table uint64, t board.Totals, ok bool) {
	if table, t, ok = p.Load(); table < uint64(len(w.kinds)) {
		w.kinds[table].replays(&t)
	}
	t.PeerHits = min(t.PeerHits, t.Hits)
	return table, t, ok
}

// replaysLocked calls f for each place of a device that has been used.
func (c *Client) replaysLocked(device int, f func(*board.Capture)) {
	for i := range c.board.Used(device, captures) {
		f(c.placeOf(device, i))
	}
}

// capturedLocked returns what captured batches of a table have counted on a device. ok is false if a place has changed all the time.
func (c *Client) capturedLocked(device, table int) (t board.Totals, ok bool) {
	t, ok = c.freed[device][table], true
	c.replaysLocked(device, func(p *board.Capture) {
		of, one, whole := c.owner.counted(p)
		if ok = ok && whole; of == uint64(table) {
			t.Add(&one)
		}
	})
	return t, ok
}

// capturesLocked says whether any client has captured batches. REQUIRES: Owner.mu is locked.
func (w *Owner) capturesLocked() bool {
	for _, c := range w.mu.clients {
		for d := range w.set.Devices {
			if c.board.Used(d, captures) > 0 {
				return true
			}
		}
	}
	return false
}

// FreeCaptures implements sharing.Client.
func (c *Client) FreeCaptures(device, from, count int) error {
	w := c.owner
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.gone {
		return fmt.Errorf("cache: client %s has left", c.name)
	}
	if device < 0 || device >= len(w.set.Devices) || from < 0 || count < 0 || from > captures-count {
		return fmt.Errorf("cache: places (%d from %d on, of device %d) must be among the %d of each of %d devices", count, from, device, captures, len(w.set.Devices))
	}
	counted := make([]board.Totals, len(w.set.Tables))
	for i := from; i < from+count; i++ {
		p := c.placeOf(device, i)
		table, t, ok := w.counted(p)
		if !ok || p.Running() != 0 || table >= uint64(len(counted)) {
			return fmt.Errorf("cache: place (%d of device %d) must be of a captured batch none of whose replays runs", i, device)
		}
		counted[table].Add(&t)
	}
	for i := from; i < from+count; i++ {
		c.placeOf(device, i).Clear()
	}
	for table := range counted {
		c.freed[device][table].Add(&counted[table])
	}
	return nil
}
