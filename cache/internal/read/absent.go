package read

import (
	"context"

	"github.com/tensorcache/tensorcache/kernels"
)

// prepareAbsent prepares the lane for a batch of a table whose host tier may lack rows. For other tables it does
// nothing.
func (l *lane) prepareAbsent(ctx context.Context, table int) {
	if l.owner.set.Tables[table].Absent == nil {
		return
	}
	l.ctx, l.from = ctx, l.owner.set.Tables[table].Absent
	if l.absent == nil {
		l.absent = &kernels.Absent{}
	}
	l.absent.Reset()
}

// readsAbsent says whether GPU batches of a table take the route for absent rows (enqueueRounds).
func (d *Device) readsAbsent(table int) bool {
	return d.set.Tables[table].Absent != nil && d.Device.NeedsStaging()
}

// listed returns the list to which the kernels of the lane's batch append absent rows, or nil for tables without such
// rows.
func (l *lane) listed() *kernels.Absent {
	if l.ctx == nil {
		return nil
	}
	return l.absent
}

// takeAbsent appends the absent rows of one part of the lane's batch to all, which may be nil. It returns the list,
// or nil if it is empty. from is the position in the batch at which the part begins. REQUIRES: the part's kernels
// have ended.
func (l *lane) takeAbsent(all *kernels.Absent, from int) *kernels.Absent {
	var rows []int64
	var positions []uint32
	switch {
	case l.ctx == nil:
	case l.route.absent:
		l.rounds.useAhead()
		_, n := l.rounds.listed()
		rows, positions = l.rounds.list(n)
	default:
		rows, positions = l.absent.Rows, l.absent.Positions
		l.absent.Reset()
	}
	if len(rows) == 0 {
		return all
	}
	if all == nil {
		all = &kernels.Absent{}
	}
	for i := range positions {
		positions[i] += uint32(from)
	}
	all.Rows, all.Positions = append(all.Rows, rows...), append(all.Positions, positions...)
	return all
}
