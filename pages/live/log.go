package live

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/pages/delta"
)

// LogOptions configure a Log.
type LogOptions struct {
	Dir     string // folder of the delta log
	Durable bool   // Append syncs
	Logger  *slog.Logger
	// MergeBytes and MergeWait are documented at mergeShare.
	MergeBytes int64
	MergeWait  time.Duration
	// OpenError, if not nil, returns what Append returns of an error of opening the log.
	OpenError func(error) error
}

// Log is the delta log of the updated rows of a Table, which it merges into the pages.
type Log struct {
	o     LogOptions
	table *Table

	opening sync.Mutex
	log     atomic.Pointer[delta.Log] // nil until there is one

	merging sync.Mutex
	written []uint64      // generations that this process has written to a store and does not read, committed or not, ascending; guarded by merging
	merged  atomic.Int64  // bytes written to pages
	failed  atomic.Int64  // merges that failed
	waiting atomic.Bool   // a merge waits for the store
	warned  atomic.Int64  // bytes of a log that is not merged when that was logged last
	working atomic.Bool   // the log is being shortened in the background, or that is to be tried again
	replace chan struct{} // has room for one: while a merge is to be tried again, the log is to be compacted
	life    context.Context
	end     context.CancelFunc
	tasks   sync.WaitGroup
}

// OpenLog opens a log if it has rows. Otherwise the first update does, so that processes which update nothing share a table.
func OpenLog(t *Table, o LogOptions) (*Log, error) {
	u := &Log{o: o, table: t, replace: make(chan struct{}, 1)}
	u.life, u.end = context.WithCancel(context.Background())
	switch empty, err := delta.Empty(o.Dir); {
	case err != nil:
		return u, err
	case empty: // perhaps since another process has merged it
		return u, t.unchanged(u.life)
	}
	_, err := u.open(true)
	return u, err
}

// open opens the log. Rows in it are read from it if it is opened with the table. Otherwise they are an error: memory may have versions before them.
func (u *Log) open(withTable bool) (*delta.Log, error) {
	if l := u.log.Load(); l != nil {
		return l, nil
	}
	u.opening.Lock()
	defer u.opening.Unlock()
	if l := u.log.Load(); l != nil {
		return l, nil
	}
	l, err := delta.Open(u.o.Dir, u.table.manifest, delta.Options{Durable: u.o.Durable})
	if err != nil {
		return nil, err
	}
	// From now on nobody else merges into the pages.
	err = u.table.unchanged(u.life)
	if rows := l.Stats().Rows; err == nil && !withTable && rows > 0 {
		err = fmt.Errorf("cache: table %s: another process has updated %d rows since the table was opened: open it again", u.table.manifest.Name, rows)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	u.log.Store(l)
	return l, nil
}

// Append writes versions of rows. sync returns when they are durable, if the log is. apply makes Find and Get return them, and must be called, unless sync has failed.
// stored must not change before.
func (u *Log) Append(rows []int64, stored [][]byte, compressed []bool) (sync func() error, apply func(), err error) {
	l, err := u.open(false)
	if err != nil {
		if u.o.OpenError != nil {
			err = u.o.OpenError(err)
		}
		return nil, nil, err
	}
	all := make([]delta.Row, len(rows))
	for i, row := range rows {
		all[i] = delta.Row{Row: row, Stored: stored[i], Compressed: compressed[i]}
	}
	sync, found, err := l.AppendAsync(all)
	if err != nil {
		return nil, nil, err
	}
	return sync, func() {
		found()
		u.appended(l.Stats())
	}, nil
}

// Find returns the stored length of a row that the log has. It does not wait for a drive.
func (u *Log) Find(row int64) (stored int, compressed, ok bool) {
	l := u.log.Load()
	if l == nil {
		return 0, false, false
	}
	return l.Find(row)
}

// Get returns the newest version of a row; ok is false if the log has none.
func (u *Log) Get(row int64) (stored []byte, compressed, ok bool, err error) {
	l := u.log.Load()
	if l == nil {
		return nil, false, false, nil
	}
	r, ok, err := l.Read(row, nil)
	return r.Stored, r.Compressed, ok, err
}

// Bytes returns how many bytes of rows were appended, and how many have been written for that, to the log and to pages.
func (u *Log) Bytes() (taken, written int64) {
	l := u.log.Load()
	if l == nil {
		return 0, 0
	}
	s := l.Stats()
	return s.AppendedBytes, s.LogBytes + u.merged.Load()
}

// Merges returns how often the log could not be merged or compacted, and whether a merge waits for the store of the pages now.
func (u *Log) Merges() (failed int64, waiting bool) { return u.failed.Load(), u.waiting.Load() }

// Held returns how many rows the log has, and the bytes of its files.
func (u *Log) Held() (rows, bytes int64) {
	l := u.log.Load()
	if l == nil {
		return 0, 0
	}
	s := l.Stats()
	return s.Rows, s.SegmentBytes
}

// Close ends merging and closes the log.
func (u *Log) Close() error {
	u.end()
	u.tasks.Wait()
	if l := u.log.Load(); l != nil {
		return l.Close()
	}
	return nil
}
