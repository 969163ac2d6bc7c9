package clients

import (
	"context"
	"errors"
	"fmt"

	"github.com/tensorcache/tensorcache/cache/internal/board"
	"github.com/tensorcache/tensorcache/cache/internal/cold"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/internal/wire"
	"github.com/tensorcache/tensorcache/slab/buddy"
)

// tableKind is what clients have to know of a table beside what all tables have, and how their boards count it.
type tableKind interface {
	// residentLocked says where the rows of a resident table lie, nil for other kinds. generation is the layout's.
	residentLocked(r *regions, generation uint64) *wire.Resident
	// batches and replays turn what a board has of batches, and of replays of captured ones, to totals.
	batches(t *board.Totals)
	replays(t *board.Totals)
	// peerBytes sets now.PeerBytes, given the totals before.
	peerBytes(was, now *board.Totals)
	// readAbsent reads rows that a client has not found in the host tier.
	readAbsent(ctx context.Context, rows []int64) (*wire.AbsentRows, error)
}

func kindOf(t *read.Table) tableKind {
	switch {
	case t.Resident != nil:
		return resident{cached{t}}
	case t.Cold != nil:
		return paged{cached{t}}
	}
	return cached{t}
}

// cached is a table with all rows in host memory.
type cached struct{ t *read.Table }

func (cached) residentLocked(*regions, uint64) *wire.Resident { return nil }
func (cached) batches(*board.Totals)                          {}
func (cached) replays(*board.Totals)                          {}
func (cached) peerBytes(_, _ *board.Totals)                   {}

func (c cached) readAbsent(context.Context, []int64) (*wire.AbsentRows, error) {
	return nil, fmt.Errorf("cache: table %s must be one of pages, which has absent rows", c.t.Name)
}

// paged is a table of pages.
type paged struct{ cached }

// readAbsent reads rows that have come to the host tier meanwhile from below it all the same: what is there is the newest version, too.
func (p paged) readAbsent(ctx context.Context, rows []int64) (*wire.AbsentRows, error) {
	t, n := p.t, p.t.Tier.RowBytes()
	if most := max(1, wire.AbsentBytes/n); len(rows) > most {
		return nil, fmt.Errorf("cache: absent rows (%d) must be at most %d", len(rows), most)
	}
	positions := make([]uint32, len(rows))
	for i, row := range rows {
		if row < 0 || row >= t.Tier.Rows() {
			return nil, fmt.Errorf("cache: row number (%d) must be 0 to %d of table %s", row, t.Tier.Rows()-1, t.Name)
		}
		positions[i] = uint32(i)
	}
	absent := &wire.AbsentRows{Data: make([]byte, len(rows)*n)}
	o := t.Cold.Gather(ctx, rows, positions, absent.Data, n)
	t.Counts.AddAbsent(o.Rows, o.Failed)
	switch {
	case errors.Is(o.Err, cold.ErrEnded):
		return nil, cold.ErrEnded
	case o.Failed > 0:
		absent.Failed, absent.Reason = o.FailedAt, o.Err.Error()
	}
	return absent, nil
}

// resident is a resident table.
type resident struct{ cached }

// residentLocked: ranges may change meanwhile, by the rules of kernels.Ranges. Then there is a later layout, for which the writer waits before it goes on.
func (k resident) residentLocked(r *regions, generation uint64) *wire.Resident {
	of, d := k.t.Resident.Rows, &wire.Resident{}
	for i := range of.Devices {
		d.Slots = append(d.Slots, r.ref(of.Slots[i], i, false, false, "slots of a resident table", generation))
		d.Words = append(d.Words, r.ref(of.Words[i], i, false, false, "words of a resident table", generation))
	}
	d.Only, d.Changes = of.Ranges.Now()
	for n := range buddy.MaxRanges {
		one := of.Ranges.Of(n)
		if one == nil {
			continue
		}
		to := wire.Range{Number: n, Target: one.Target, Slot: one.Slot, Overflow: one.Overflow}
		for i := range of.Devices {
			on, host := 0, one.Peers == nil
			if !host {
				on = one.Peers[i]
			}
			to.Buddy = append(to.Buddy, r.ref(one.Buddy[i], on, host, false, "buddy memory", generation))
		}
		d.Ranges = append(d.Ranges, to)
	}
	return d
}

func (resident) batches(t *board.Totals) { t.OfResident() }

func (resident) replays(t *board.Totals) {
	t.Hits += t.Misses()
	t.OfResident()
}

// peerBytes: what was read since it was counted last is taken for read from where overflow places lie now.
func (k resident) peerBytes(was, now *board.Totals) {
	if now.PeerBytes = was.PeerBytes; k.t.Resident.Rows.OnPeers() {
		now.PeerBytes += now.HostBytes - was.HostBytes
	}
}
