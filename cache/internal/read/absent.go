package read

import (
	"context"

	"github.com/tensorcache/tensorcache/cache/internal/cold"
	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/kernels"
)

// mayBeAbsent readies the lane for a batch of a table of which the host tier may not hold all rows. Others it leaves alone.
func (l *lane) mayBeAbsent(ctx context.Context, table int) {
	if l.owner.set.Tables[table].Absent == nil {
		return
	}
	l.ctx, l.from, l.below = ctx, l.owner.set.Tables[table].Absent, cold.Outcome{}
	if l.absent == nil {
		l.absent = &kernels.Absent{}
	}
}

// listed returns where the kernels of the lane's batch list absent rows, nil if there are none.
func (l *lane) listed() *kernels.Absent {
	if l.ctx == nil {
		return nil
	}
	return l.absent
}

// readAbsent reads the absent rows of a batch whose kernels have ended, and notes in below what became of them. The batch no longer reads memory of
// the cache then, so changes do not wait for it.
func (l *lane) readAbsent(from Absentees, out device.Buffer) {
	l.below = cold.Outcome{}
	if len(l.absent.Rows) == 0 {
		return
	}
	l.end()
	l.below = from.Gather(l.ctx, l.absent.Rows, l.absent.Positions, out.Bytes())
	l.absent.Reset()
}
