package cold

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// logReads is how many goroutines of a table read its log at once.
	logReads = 64
	// logReadRows is how many rows of a batch are worth one more goroutine.
	logReadRows = 16
)

// loggedRow is a row that was looked for in the log.
type loggedRow struct {
	i              int
	stored         []byte
	compressed, ok bool
	err            error
}

// readLog calls visit for the rows that the log has, and returns the others and their indices. The log's drive may hang: rows that it has not
// delivered when ctx ends have an error.
func (t *Table) readLog(ctx context.Context, rows []int64, visit func(i int, stored []byte, compressed bool, err error)) (rest []int64, at []int) {
	var in []int
	rest, at = make([]int64, 0, len(rows)), make([]int, 0, len(rows))
	for i, row := range rows {
		if _, _, ok := t.o.Log.Find(row); ok {
			in = append(in, i)
		} else {
			rest, at = append(rest, row), append(at, i)
		}
	}
	if len(in) == 0 {
		return rest, at
	}
	begun := time.Now()
	defer func() {
		t.Counts.LogReads.Add(1)
		t.Counts.LogNanos.Add(int64(time.Since(begun)))
	}()
	wanted := make([]int64, len(in)) // rows is the caller's again when visit has been called for all
	for n, i := range in {
		wanted[n] = rows[i]
	}
	found := make(chan loggedRow, len(in)) // never full: a goroutine that comes late does not wait
	var next atomic.Int64
	read := func() {
		defer func() { <-t.logReads }()
		for ctx.Err() == nil {
			n := int(next.Add(1)) - 1
			if n >= len(in) {
				return
			}
			stored, compressed, ok, err := t.o.Log.Get(wanted[n])
			found <- loggedRow{in[n], stored, compressed, ok, err}
		}
	}
	begin := t.logReads // nil when enough have begun
	left := map[int]struct{}{}
	for _, i := range in {
		left[i] = struct{}{}
	}
	for readers := 0; len(left) > 0; {
		select {
		case begin <- struct{}{}:
			if readers++; readers*logReadRows >= len(in) {
				begin = nil
			}
			go read()
		case f := <-found:
			delete(left, f.i)
			if !f.ok && f.err == nil { // merged into the pages meanwhile
				rest, at = append(rest, rows[f.i]), append(at, f.i)
				continue
			}
			t.Counts.FromLog.Add(1)
			visit(f.i, f.stored, f.compressed, f.err)
		case <-ctx.Done():
			for i := range left {
				visit(i, nil, false, fmt.Errorf("table %s: row %d in the log of updates: %w", t.o.Name, rows[i], context.Cause(ctx)))
			}
			return rest, at
		}
	}
	return rest, at
}
