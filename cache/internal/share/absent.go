package share

import (
	"context"
	"errors"
	"fmt"

	"github.com/tensorcache/tensorcache/cache/internal/cold"
	"github.com/tensorcache/tensorcache/internal/wire"
)

// ReadAbsent implements sharing.Owner. Rows that have come to the host tier meanwhile are read from below it all the same: what is there is the
// newest version, too.
func (w *Owner) ReadAbsent(ctx context.Context, table int, rows []int64) (*wire.AbsentRows, error) {
	if table < 0 || table >= len(w.set.Tables) || w.set.Tables[table].Cold == nil {
		return nil, fmt.Errorf("cache: table (%d) must be one with absent rows", table)
	}
	t := w.set.Tables[table]
	n := t.Tier.RowBytes()
	if len(rows) > max(1, wire.AbsentBytes/n) {
		return nil, fmt.Errorf("cache: absent rows (%d) must be at most %d", len(rows), max(1, wire.AbsentBytes/n))
	}
	positions := make([]uint32, len(rows))
	for i, row := range rows {
		if row < 0 || row >= t.Tier.Rows() {
			return nil, fmt.Errorf("cache: row number (%d) must be 0 to %d of table %s", row, t.Tier.Rows()-1, t.Name)
		}
		positions[i] = uint32(i)
	}
	answer := &wire.AbsentRows{Data: make([]byte, len(rows)*n)}
	o := t.Cold.Gather(ctx, rows, positions, answer.Data, n)
	t.Counts.AddAbsent(o.Rows, o.Failed)
	switch {
	case errors.Is(o.Err, cold.ErrEnded):
		return nil, cold.ErrEnded
	case o.Failed > 0:
		answer.Failed, answer.Reason = o.FailedAt, o.Err.Error()
	}
	return answer, nil
}
