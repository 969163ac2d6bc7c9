package cache

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/cold"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/internal/wire"
)

// absentWait is how long a batch of an attached cache waits for the owner to read absent rows. The owner has a time-out of its own, which is usually shorter.
const absentWait = 30 * time.Second

// remoteRows asks the owner for absent rows of a table.
type remoteRows struct {
	remote          *remote
	table, rowBytes int
}

// absentees returns who reads the absent rows of a table.
func (r *remote) absentees(table, rowBytes int) read.RowFetcher {
	return &remoteRows{r, table, rowBytes}
}

// Gather implements read.RowFetcher.
func (a *remoteRows) Gather(ctx context.Context, rows []int64, positions []uint32, out []byte, stride int) (o cold.Outcome) {
	begun := time.Now()
	o.Rows = int64(len(rows))
	ctx, cancel := context.WithTimeout(ctx, absentWait)
	defer cancel()
	stop := context.AfterFunc(a.remote.life, cancel)
	defer stop()
	n := a.rowBytes
	fail := func(i int, err error) {
		clear(out[int(positions[i])*stride:][:n])
		o.Fail(int(positions[i]), err)
	}
	part := max(1, min(requestRows, wire.AbsentBytes/n))
	var silent error // the owner is not asked again
	for from := 0; from < len(rows); from += part {
		to := min(from+part, len(rows))
		var answer wire.AbsentRows
		err := silent
		if err == nil {
			err = a.remote.call(ctx, wire.Absent, wire.RowsRequest{Table: a.table, Rows: rows[from:to]}, nil, &answer)
		}
		switch {
		case errors.Is(err, wire.ErrSilent):
			silent = err
		case errors.Is(err, ErrClosed): // the owner's cache, not this one
			err = fmt.Errorf("%w: %s: it closes", ErrOwner, a.remote.address)
		}
		if err == nil && len(answer.Data) != (to-from)*n {
			err = fmt.Errorf("%w: answered with %d bytes for %d rows", ErrOwner, len(answer.Data), to-from)
		}
		if err != nil {
			for i := from; i < to; i++ {
				fail(i, err)
			}
			continue
		}
		for i := from; i < to; i++ {
			copy(out[int(positions[i])*stride:][:n], answer.Data[(i-from)*n:])
		}
		for _, i := range answer.Failed {
			if i >= 0 && i < to-from {
				fail(from+i, errors.New(answer.Reason))
			}
		}
	}
	o.Took = time.Since(begun)
	return o
}

// Deliver implements read.RowFetcher. Rows arrive uncompressed.
func (a *remoteRows) Deliver(ctx context.Context, rows []int64, put func(i int, stored []byte, compressed bool, err error)) {
	n := a.rowBytes
	part := max(1, min(requestRows, wire.AbsentBytes/n))
	positions := make([]uint32, min(part, len(rows)))
	for i := range positions {
		positions[i] = uint32(i)
	}
	for from := 0; from < len(rows); from += part {
		of := rows[from:min(from+part, len(rows))]
		data := make([]byte, len(of)*n)
		o := a.Gather(ctx, of, positions[:len(of)], data, n)
		failed := map[int]bool{}
		for _, i := range o.FailedAt {
			failed[i] = true
		}
		for i := range of {
			var err error
			if failed[i] {
				err = o.Err
			}
			put(from+i, data[i*n:][:n], false, err)
		}
	}
}

// Longest implements read.RowFetcher.
func (a *remoteRows) Longest() time.Duration { return 2 * absentWait }

func (r *remote) prefetch(table int, rows []int64) error {
	if !r.hasPages(table) {
		return nil
	}
	return inRequests(rows, 0, func(from, to int) error {
		return r.call(r.life, wire.Prefetch, wire.RowsRequest{Table: table, Rows: rows[from:to]}, nil, nil)
	})
}
