package delta

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/internal/filelock"
	"github.com/tensorcache/tensorcache/pages"
)

// Options say how a log is written.
type Options struct {
	// Durable has Append return when its rows are on the drive. Otherwise they are on the drive at the latest when Sync or Seal has returned;
	// a machine that ends before may lose them, a process that ends does not.
	Durable bool
	// ReadOnly opens what the log has now, for reading alone: nothing of it changes, also while another process has the log and appends to it. A folder
	// that is not there is a log without rows. What is not sound at the end is left out.
	ReadOnly bool
	// SegmentBytes is the length from which a segment is followed by the next; 0 for 256 MiB.
	SegmentBytes int64
}

// Log is a log of updated rows of one table.
type Log struct {
	dir      string
	table    [32]byte
	rows     int64
	rowBytes int
	o        Options
	lock     *os.File

	// writing is held while a batch is written or the next segment is made: one batch is written at a time. Whoever holds it may take mu.
	writing sync.Mutex
	buffer  []byte // guarded by writing

	mu struct { // held for moments: reads do not wait for the drive
		sync.RWMutex
		segments []*segment // ascending; the last is written to
		index    map[int64]location
		next     uint64 // number of the next batch
		written  uint64 // number of the last batch that was written
		// unpublished are batches that were written and that Read does not find yet.
		unpublished map[uint64]struct{}
		stored      int64 // bytes of the rows that index names
		broken      error // what keeps the log from being written
		closed      bool
		syncing     bool // the last segment is being synced
	}
	published *sync.Cond    // of mu: a batch has left unpublished
	syncEnded *sync.Cond    // of mu: syncing has become false
	synced    atomic.Uint64 // number of the last batch that is known to be on the drive; stored under mu
	// Of Stats.
	appendedRows, appendedBytes, logBytes, cut atomic.Int64
}

// location says where the newest version of a row lies.
type location struct {
	segment    *segment
	at         int64
	batch      uint64
	length     int32
	compressed bool
	sum        uint32
}

// Open opens the log of a table in a folder, which is made if there is none. The table is the one that the log's pages are of: the encoding
// of its rows must be that which the log was written with.
func Open(dir string, m *pages.Manifest, o Options) (_ *Log, err error) {
	if o.SegmentBytes < 0 {
		return nil, fmt.Errorf("delta: segment (%d bytes) must not be negative", o.SegmentBytes)
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = 256 << 20
	}
	if o.ReadOnly {
		return openReadOnly(dir, m, o)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	l := newLog(dir, m, o)
	if l.lock, err = filelock.Try(filepath.Join(dir, "lock")); err != nil {
		return nil, fmt.Errorf("delta: %s: another process has the log: %w", dir, err)
	}
	if err := l.replay(); err != nil {
		l.Close()
		return nil, fmt.Errorf("delta: %s: %w", dir, err)
	}
	return l, nil
}

func newLog(dir string, m *pages.Manifest, o Options) *Log {
	l := &Log{dir: dir, table: m.Encoding(), rows: m.Rows, rowBytes: m.RowBytes, o: o}
	l.mu.index, l.mu.unpublished = map[int64]location{}, map[uint64]struct{}{}
	l.published, l.syncEnded = sync.NewCond(&l.mu), sync.NewCond(&l.mu)
	l.mu.next = 1
	return l
}

// openAgain is how often a log whose segments are removed meanwhile is opened again.
const openAgain = 100

// openReadOnly opens what a log has now.
func openReadOnly(dir string, m *pages.Manifest, o Options) (*Log, error) {
	for tries := 0; ; tries++ {
		l := newLog(dir, m, o)
		if l.mu.broken = errReadOnly; !there(dir) {
			return l, nil
		}
		err := l.replay()
		if err == nil {
			return l, nil
		}
		l.Close()
		if tries == openAgain || !errors.Is(err, fs.ErrNotExist) { // else segments have just been removed
			return nil, fmt.Errorf("delta: %s: %w", dir, err)
		}
	}
}

// errReadOnly keeps a log from being written that was opened for reading alone.
var errReadOnly = errors.New("the log was opened for reading alone")

// there reports whether a folder may be there.
func there(dir string) bool {
	_, err := os.Stat(dir)
	return !errors.Is(err, fs.ErrNotExist)
}

// Empty reports whether a folder has no log, or one without rows. It looks at the lengths of files alone: whoever has the log may append to it meanwhile.
func Empty(dir string) (bool, error) {
	numbers, err := listSegments(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	for _, number := range numbers {
		info, err := os.Stat(filepath.Join(dir, segmentName(number)))
		if errors.Is(err, fs.ErrNotExist) { // just removed, by who merges: newer ones are in use
			return false, nil
		}
		if err != nil || info.Size() != segmentHeader {
			return false, err
		}
	}
	return err == nil, err
}

// Find reports whether the log has a version of a row, and how that is stored. It reads no file.
func (l *Log) Find(row int64) (stored int, compressed, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	at, ok := l.mu.index[row]
	return int(at.length), at.compressed, ok
}

// Read returns the newest version of a row, which lies in buf if that is long enough. ok is false if the log has none.
func (l *Log) Read(row int64, buf []byte) (r Row, ok bool, err error) {
	for {
		l.mu.RLock()
		at, ok := l.mu.index[row]
		l.mu.RUnlock()
		if !ok {
			return Row{}, false, nil
		}
		r, err := l.readAt(row, at, buf)
		if errors.Is(err, os.ErrClosed) && !l.isClosed() {
			continue // Drop has removed the segment meanwhile
		}
		return r, true, err
	}
}

func (l *Log) isClosed() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.mu.closed
}

func (l *Log) readAt(row int64, at location, buf []byte) (Row, error) {
	if cap(buf) < int(at.length) {
		buf = make([]byte, at.length)
	}
	buf = buf[:at.length]
	if err := at.segment.read(buf, at.at); err != nil {
		return Row{}, fmt.Errorf("delta: segment %d: row %d: %w", at.segment.number, row, err)
	}
	if checksum(buf) != at.sum {
		return Row{}, fmt.Errorf("delta: segment %d: row %d: %w: wrong checksum", at.segment.number, row, ErrCorrupt)
	}
	return Row{row, buf, at.compressed}, nil
}

// Sync returns when all batches that Append has returned for are on the drive.
func (l *Log) Sync() error {
	l.mu.RLock()
	written := l.mu.written
	err := l.writableLocked()
	l.mu.RUnlock()
	if err != nil {
		return err
	}
	return l.syncTo(written)
}

// Close closes the log. What was appended is synced.
func (l *Log) Close() error {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	if l.mu.closed {
		l.mu.Unlock()
		return nil
	}
	l.mu.closed = true
	segments, broken := l.mu.segments, l.mu.broken
	l.mu.Unlock()
	var faults []error
	for i, s := range segments {
		faults = append(faults, s.close(i == len(segments)-1 && broken == nil))
	}
	if l.lock != nil {
		faults = append(faults, l.lock.Close())
	}
	return errors.Join(faults...)
}

// Stats are sums since the log was opened, but for Rows, StoredBytes and Segments, which are what it holds.
type Stats struct {
	// Rows have a version in the log, of StoredBytes together.
	Rows, StoredBytes int64
	// Segments are files, of SegmentBytes together.
	Segments, SegmentBytes int64
	// AppendedRows were given to Append, of AppendedBytes, for which LogBytes were written.
	AppendedRows, AppendedBytes, LogBytes int64
	// CutBytes are those of a torn end that opening cut off.
	CutBytes int64
}

// Stats returns the log's counts.
func (l *Log) Stats() Stats {
	l.mu.RLock()
	defer l.mu.RUnlock()
	s := Stats{
		Rows: int64(len(l.mu.index)), StoredBytes: l.mu.stored, Segments: int64(len(l.mu.segments)),
		AppendedRows: l.appendedRows.Load(), AppendedBytes: l.appendedBytes.Load(), LogBytes: l.logBytes.Load(), CutBytes: l.cut.Load(),
	}
	for _, x := range l.mu.segments {
		s.SegmentBytes += x.bytes
	}
	return s
}
