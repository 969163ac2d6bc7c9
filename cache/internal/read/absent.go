package read

import (
	"context"

	"github.com/tensorcache/tensorcache/kernels"
)

// mayBeAbsent readies the lane for a batch of a table of which the host tier may not hold all rows. Others it leaves alone.
func (l *lane) mayBeAbsent(ctx context.Context, table int) {
	if l.owner.set.Tables[table].Absent == nil {
		return
	}
	l.ctx, l.from = ctx, l.owner.set.Tables[table].Absent
	if l.absent == nil {
		l.absent = &kernels.Absent{}
	}
	l.absent.Reset()
}

// readsAbsent says whether the device's batches of a table are those of enqueueRounds.
func (d *Device) readsAbsent(table int) bool {
	return d.set.Tables[table].Absent != nil && d.Device.NeedsStaging()
}

// listed returns where the kernels of the lane's batch list absent rows, nil if there are none.
func (l *lane) listed() *kernels.Absent {
	if l.ctx == nil {
		return nil
	}
	return l.absent
}

// takeAbsent adds to a list, which may be nil, the absent rows of a part of the lane's batch that begins at position from, whose kernels have ended. It
// returns the list, nil if it is empty.
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
