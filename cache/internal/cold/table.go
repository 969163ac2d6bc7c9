package cold

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tensorcache/tensorcache/codec"
	"github.com/tensorcache/tensorcache/internal/throttle"
	"github.com/tensorcache/tensorcache/pages"
)

// Source is what holds all rows of a table, in the form in which tiers store them.
type Source interface {
	// ReadRows calls visit once for each of rows, which are row numbers in any order, with its stored form, from several goroutines. stored is valid
	// until visit returns. A row that cannot be read has an error that names tier, page and cause. ReadRows returns when all have been visited,
	// soon after ctx has ended, with what it has read.
	ReadRows(ctx context.Context, rows []int64, visit func(i int, stored []byte, compressed bool, err error)) pages.ReadStats
}

// StoreReads are what was read from one store. Reads is how many times something was asked of it, and Took how long that took together.
type StoreReads struct {
	Name                        string
	Reads, Pages, Bytes, Failed int64
	Took                        time.Duration
	Fault                       error // why one of those that failed did, which names it; nil if none has

	log *throttle.Log // of faults
}

// Log holds the newest versions of updated rows.
type Log interface {
	// Append takes new versions of rows. sync returns when they are durable, if the log is. apply makes Find and Get return them, each row in the version of the last Append
	// that was applied. sync must be called once, and apply as well when sync has returned nil. stored must not change before. Both are nil if there is an error.
	Append(rows []int64, stored [][]byte, compressed []bool) (sync func() error, apply func(), err error)
	// Find says whether the log has a version of a row, and how many bytes it is stored in. It does not wait for a drive.
	Find(row int64) (stored int, compressed, ok bool)
	// Get returns the newest version of a row; ok is false if the log has none. stored is not changed later. It may take as long as a drive does.
	Get(row int64) (stored []byte, compressed, ok bool, err error)
	// Bytes returns how many bytes of rows it has taken, and how many have been written for that, to the log and for merging it into pages.
	Bytes() (taken, written int64)
	// Merges returns how often the log could not be merged into pages, or compacted, and whether a merge waits for the store of the pages now.
	Merges() (failed int64, waiting bool)
	// Held returns how many rows the log has, and the bytes of its files, or of its rows in memory.
	Held() (rows, bytes int64)
	Close() error
}

// Errors of reads.
var (
	// ErrCold is wrapped by errors of batches some of whose rows cannot be read from the tiers below the host.
	ErrCold = errors.New("cache: rows below the host tier cannot be read")
	// ErrEnded is the error of reads while the cache closes: what package cache returns of calls on a closed cache.
	ErrEnded = errors.New("cache: closed")
)

// NoAnswer is the error of rows that were not read within Options.Timeout.
type NoAnswer time.Duration

func (n NoAnswer) Error() string { return fmt.Sprintf("no answer within %v", time.Duration(n)) }

// Options configure a Table.
type Options struct {
	Name     string
	RowBytes int
	Codec    codec.Codec // nil if all rows are raw
	Timeout  time.Duration
	Log      Log
	Ahead    int64 // most rows that prefetches under way may have
	Waiting  int64 // most bytes of flights that have been read and wait for the host tier; one flight may be longer
	// Taken is told of prefetched rows that a batch has taken from their flight. It is called by any goroutine, and may be nil.
	Taken  func(row int64)
	PageOf func(row int64) uint32
	Logger *slog.Logger // is told of pages that cannot be read; may be nil
}

// Table reads absent rows of a table.
type Table struct {
	Counts Counts

	o         Options
	source    Source
	life      context.Context
	end       context.CancelCauseFunc
	versions  [versions]atomic.Uint32
	flights   flights
	completed chan *Flight
	waiting   atomic.Int64  // bytes of the flights in completed
	logReads  chan struct{} // has room for the reads of the log that are under way
	commits   commits
	stores    struct {
		sync.Mutex
		all []StoreReads
	}
}

// Stores returns what was read from each store so far.
func (t *Table) Stores() []StoreReads {
	t.stores.Lock()
	defer t.stores.Unlock()
	return slices.Clone(t.stores.all)
}

// count notes what a call of Source.ReadRows has read. It logs that pages could not be read, of each store at most every 10 seconds: one that is down fails
// for every page.
func (t *Table) count(r pages.ReadStats) {
	for _, s := range r.Stores {
		if s.Pages+s.Failed == 0 {
			continue
		}
		t.Counts.Pages.Add(s.Pages)
		t.Counts.Bytes.Add(s.Bytes)
		if log := t.countStore(s); s.Fault != nil && t.o.Logger != nil {
			log.Record(t.o.Logger, slog.LevelWarn, "page cannot be read", slog.String("table", t.o.Name), slog.String("store", s.Name), slog.Int64("pages", s.Failed), slog.Any("error", s.Fault))
		}
	}
}

// countStore adds to what was read from a store, and returns its log of faults.
func (t *Table) countStore(s pages.StoreStats) *throttle.Log {
	t.stores.Lock()
	defer t.stores.Unlock()
	i := slices.IndexFunc(t.stores.all, func(known StoreReads) bool { return known.Name == s.Name })
	if i < 0 {
		i = len(t.stores.all)
		t.stores.all = append(t.stores.all, StoreReads{Name: s.Name, log: new(throttle.Log)})
	}
	to := &t.stores.all[i]
	to.Reads, to.Pages, to.Bytes, to.Failed, to.Took = to.Reads+1, to.Pages+s.Pages, to.Bytes+s.Bytes, to.Failed+s.Failed, to.Took+time.Duration(s.Seconds*float64(time.Second))
	to.Fault = cmp.Or(s.Fault, to.Fault)
	return to.log
}

// Counts are the counters of a Table.
type Counts struct {
	Rows, Pages, Bytes, Nanos, Reads atomic.Int64 // read; Reads counts calls, each for one batch or one prefetch
	FromLog, LogReads, LogNanos      atomic.Int64 // rows that the log had, reads that found some there, and how long these took
	FromFlight                       atomic.Int64 // rows that were on their way
	Prefetched, Unused, Dropped      atomic.Int64 // rows that Prefetch was asked for and that were not in flight; those that left unread; those for which there was no room
	Promoted, Demoted                atomic.Int64 // rows that cycles have moved to the host tier, and off it
}

const versions = 1 << 14

// New returns a table that reads from a source.
func New(source Source, o Options) *Table {
	t := &Table{o: o, source: source, completed: make(chan *Flight, 64), logReads: make(chan struct{}, logReads)}
	t.life, t.end = context.WithCancelCause(context.Background())
	t.flights.rows = map[int64]flightRow{}
	t.commits.last = make(chan struct{})
	close(t.commits.last)
	return t
}

// End makes all reads return soon, and later ones at once, with ErrEnded.
func (t *Table) End() { t.end(ErrEnded) }

// Life returns a context that ends with End.
func (t *Table) Life() context.Context { return t.life }

// Close closes the log. REQUIRES: End, and no read is under way.
func (t *Table) Close() error { return t.o.Log.Close() }

// SetAhead sets Options.Ahead, Options.Waiting and Options.Taken. No other call may be under way.
func (t *Table) SetAhead(rows, bytes int64, taken func(row int64)) {
	t.o.Ahead, t.o.Waiting, t.o.Taken = rows, bytes, taken
}

// PageOf returns the page that a row lies in: rows of one page are best read together.
func (t *Table) PageOf(row int64) uint32 { return t.o.PageOf(row) }

// Log returns the log of updated rows.
func (t *Table) Log() Log { return t.o.Log }

func (t *Table) version(row int64) *atomic.Uint32 {
	return &t.versions[uint64(row)*0x9e3779b97f4a7c15>>(64-14)]
}

// Version returns the counter of a row's versions.
func (t *Table) Version(row int64) uint32 { return t.version(row).Load() }

// Changed notes that a row has a new version. REQUIRES: the log has it.
func (t *Table) Changed(row int64) { t.version(row).Add(1) }

// bounded returns a context that ends with ctx, with the table, or after the time-out.
func (t *Table) bounded(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithTimeoutCause(ctx, t.o.Timeout, NoAnswer(t.o.Timeout))
	ctx, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(t.life, func() { end(ErrEnded) })
	return ctx, func() {
		stop()
		end(nil)
		cancel()
	}
}

// Read calls visit once for each of rows with its newest version in the form in which tiers store it, as Source does.
func (t *Table) Read(ctx context.Context, rows []int64, visit func(i int, stored []byte, compressed bool, err error)) {
	if err := context.Cause(t.life); err != nil {
		for i := range rows {
			visit(i, nil, false, err)
		}
		return
	}
	ctx, cancel := t.bounded(ctx)
	defer cancel()
	below, at := t.readLog(ctx, rows, visit)
	if len(below) == 0 {
		return
	}
	begun := time.Now()
	reads := t.source.ReadRows(ctx, below, func(i int, stored []byte, compressed bool, err error) {
		if err == nil && !compressed && len(stored) != t.o.RowBytes {
			err = fmt.Errorf("table %s: row %d has %d bytes, want %d", t.o.Name, below[i], len(stored), t.o.RowBytes)
		}
		if err != nil {
			if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
				err = fmt.Errorf("%w: %w", err, cause)
			}
		}
		visit(at[i], stored, compressed, err)
	})
	t.Counts.Reads.Add(1)
	t.Counts.Rows.Add(int64(len(below)))
	t.count(reads)
	t.Counts.Nanos.Add(int64(time.Since(begun)))
}

// Peek calls visit with the lengths of the newest versions of rows, as tiers store them. No counter counts that, and rows that cannot be read are left out.
func (t *Table) Peek(ctx context.Context, rows []int64, visit func(i, stored int, compressed bool)) {
	if t.life.Err() != nil {
		return
	}
	ctx, cancel := t.bounded(ctx)
	defer cancel()
	t.source.ReadRows(ctx, rows, func(i int, stored []byte, compressed bool, err error) {
		if newer, as, ok := t.o.Log.Find(rows[i]); ok { // updated since the caller looked
			visit(i, newer, as)
		} else if err == nil {
			visit(i, len(stored), compressed)
		}
	})
}

// Outcome is what became of the absent rows of a batch.
type Outcome struct {
	Rows, Failed int64
	At           int   // position of the first row that failed
	Err          error // why that one failed
	FailedAt     []int // positions of all that failed, in any order
	Took         time.Duration
}

// Fail notes that the row at a position has failed.
func (o *Outcome) Fail(at int, err error) {
	o.FailedAt = append(o.FailedAt, at)
	if o.Failed++; o.Err == nil || at < o.At {
		o.At, o.Err = at, err
	}
}

// Add adds what became of another batch's rows, except FailedAt. At and Err stay as the first batch with failed rows has set them.
func (o *Outcome) Add(other *Outcome) {
	if o.Failed == 0 {
		o.At, o.Err = other.At, other.Err
	}
	o.Rows, o.Failed, o.Took = o.Rows+other.Rows, o.Failed+other.Failed, o.Took+other.Took
}

// Deliver calls put once for each absent row of a batch with its newest version in the form in which tiers store it, from several goroutines, and hands
// what it reads to the writer for the host tier. stored is not changed later.
func (t *Table) Deliver(ctx context.Context, rows []int64, put func(i int, stored []byte, compressed bool, err error)) {
	rest, at := t.flights.take(ctx, t, rows, put)
	if len(rest) == 0 {
		return
	}
	f := t.newFlight(rest)
	t.Read(ctx, rest, func(i int, stored []byte, compressed bool, err error) {
		if err == nil {
			f.put(i, stored, compressed)
			stored = f.Stored[i] // stored itself is valid until this returns
		}
		put(at[i], stored, compressed, err)
	})
	t.complete(f)
}

// Longest is the longest time that Deliver takes: a row that is being prefetched may fail, and be read again.
func (t *Table) Longest() time.Duration { return 2*t.o.Timeout + longestSlack }

// longestSlack is for what goes on beside waiting.
const longestSlack = 10 * time.Second

// Gather writes absent rows of a batch to their positions in out, stride bytes apart, and zeros where a row cannot be read.
func (t *Table) Gather(ctx context.Context, rows []int64, positions []uint32, out []byte, stride int) (o Outcome) {
	begun := time.Now()
	o.Rows = int64(len(rows))
	var mu sync.Mutex
	put := func(i int, stored []byte, compressed bool, err error) {
		to := out[int(positions[i])*stride:][:t.o.RowBytes]
		if err == nil {
			err = t.decode(to, stored, compressed, rows[i])
		}
		if err == nil {
			return
		}
		clear(to)
		mu.Lock()
		defer mu.Unlock()
		o.Fail(int(positions[i]), err)
	}
	t.Deliver(ctx, rows, put)
	o.Took = time.Since(begun)
	return o
}

func (t *Table) decode(to, stored []byte, compressed bool, row int64) error {
	if !compressed {
		copy(to, stored)
		return nil
	}
	if t.o.Codec == nil {
		return fmt.Errorf("table %s: row %d is compressed, and the table has no codec", t.o.Name, row)
	}
	if _, err := t.o.Codec.Decode(to, stored); err != nil {
		return fmt.Errorf("table %s: row %d does not decode: %w", t.o.Name, row, err)
	}
	return nil
}
