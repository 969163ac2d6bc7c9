package delta

import (
	"errors"
	"fmt"
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

	mu struct { // held while a batch is written, and for moments
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
	}
	published *sync.Cond // of mu: a batch has left unpublished
	syncing   struct {
		sync.Mutex
		synced uint64 // number of the last batch that is on the drive
	}
	buffer []byte // guarded by mu
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
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	l := &Log{dir: dir, table: m.Encoding(), rows: m.Rows, rowBytes: m.RowBytes, o: o}
	if l.lock, err = filelock.Try(filepath.Join(dir, "lock")); err != nil {
		return nil, fmt.Errorf("delta: %s: another process has the log: %w", dir, err)
	}
	l.mu.index, l.mu.unpublished = map[int64]location{}, map[uint64]struct{}{}
	l.published = sync.NewCond(&l.mu)
	l.mu.next = 1
	if err := l.replay(); err != nil {
		l.Close()
		return nil, fmt.Errorf("delta: %s: %w", dir, err)
	}
	return l, nil
}

// Append appends a batch: versions of rows, later ones before earlier ones of the same row. It is found by Read when Append has returned
// nil, and is on the drive if the log is durable. After an error a process that opens the log later finds the whole batch or nothing of it.
// Batches of goroutines that append at the same time share a sync.
func (l *Log) Append(rows []Row) error {
	if len(rows) == 0 {
		return nil
	}
	size := int64(0)
	for _, r := range rows {
		n := len(r.Stored)
		switch {
		case r.Row < 0 || r.Row >= l.rows:
			return fmt.Errorf("delta: row (%d) must be 0 to %d", r.Row, l.rows-1)
		case r.Compressed && n >= l.rowBytes || !r.Compressed && n != l.rowBytes:
			return fmt.Errorf("delta: row %d (%d bytes stored) must have %d, or less if it is compressed", r.Row, n, l.rowBytes)
		}
		size += rowEntry + int64(n)
	}
	if size > maxBatch {
		return fmt.Errorf("delta: batch (%d bytes) must have at most %d", size, int64(maxBatch))
	}
	number, s, at, err := l.write(rows)
	if err != nil {
		return err
	}
	if l.o.Durable {
		if err := l.syncTo(number); err != nil {
			l.publish(nil, number, nil, 0)
			return err
		}
	}
	l.publish(rows, number, s, at+batchHeader+rowEntry*int64(len(rows)))
	return nil
}

// write writes a batch to the last segment, and returns its number and where it lies.
func (l *Log) write(rows []Row) (number uint64, s *segment, at int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writableLocked(); err != nil {
		return 0, nil, 0, err
	}
	s = l.mu.segments[len(l.mu.segments)-1]
	if s.bytes >= l.o.SegmentBytes {
		if s, err = l.rotateLocked(); err != nil {
			return 0, nil, 0, err
		}
	}
	number, at = l.mu.next, s.bytes
	l.buffer = encodeBatch(l.buffer[:0], number, l.o.Durable, rows)
	if _, err := writeAt(s.file, l.buffer, at); err != nil {
		// What got through is cut off; if not even that can be done, nothing can be written behind it.
		if err := s.file.Truncate(at); err != nil {
			l.mu.broken = err
		}
		return 0, nil, 0, fmt.Errorf("delta: %w", err)
	}
	s.bytes += int64(len(l.buffer))
	l.mu.next++
	l.mu.written = number
	l.mu.unpublished[number] = struct{}{}
	l.logBytes.Add(int64(len(l.buffer)))
	if cap(l.buffer) > 64<<20 {
		l.buffer = nil
	}
	return number, s, at, nil
}

// writableLocked returns an error if the log cannot be written.
func (l *Log) writableLocked() error {
	if l.mu.closed {
		return fmt.Errorf("delta: %w", os.ErrClosed)
	}
	if l.mu.broken != nil {
		return fmt.Errorf("delta: an earlier write failed, the log must be opened again: %w", l.mu.broken)
	}
	return nil
}

// rotateLocked begins the next segment.
func (l *Log) rotateLocked() (*segment, error) {
	last := l.mu.segments[len(l.mu.segments)-1]
	if err := l.syncSegment(last); err != nil {
		l.mu.broken = err
		return nil, fmt.Errorf("delta: %w", err)
	}
	s, err := createSegment(l.dir, header{l.table, last.number + 1, l.mu.next})
	if err != nil {
		return nil, fmt.Errorf("delta: %w", err)
	}
	l.mu.segments = append(l.mu.segments, s)
	return s, nil
}

func (l *Log) syncSegment(s *segment) error {
	s.using.RLock()
	defer s.using.RUnlock()
	if s.closed {
		return s.fault
	}
	return syncFile(s.file)
}

// syncTo returns when the batch of this number is on the drive.
func (l *Log) syncTo(number uint64) error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	if l.syncing.synced >= number {
		return nil
	}
	l.mu.RLock()
	written, broken := l.mu.written, l.mu.broken
	s := l.mu.segments[len(l.mu.segments)-1] // those before were synced when the next began
	l.mu.RUnlock()
	if broken != nil {
		return fmt.Errorf("delta: %w", broken)
	}
	if err := l.syncSegment(s); err != nil {
		// The system may have dropped what it could not write: a later sync that succeeds would prove nothing.
		l.mu.Lock()
		l.mu.broken = err
		l.mu.Unlock()
		return fmt.Errorf("delta: %w", err)
	}
	l.syncing.synced = written
	return nil
}

// publish has Read find the rows of a batch, whose stored bytes begin at a place; none of a batch that may not be on the drive.
func (l *Log) publish(rows []Row, number uint64, s *segment, at int64) {
	bytes := int64(0)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range rows {
		l.putLocked(r.Row, location{s, at, number, int32(len(r.Stored)), r.Compressed, checksum(r.Stored)})
		at += int64(len(r.Stored))
		bytes += int64(len(r.Stored))
	}
	delete(l.mu.unpublished, number)
	l.published.Broadcast()
	l.appendedRows.Add(int64(len(rows)))
	l.appendedBytes.Add(bytes)
}

// putLocked notes a version of a row, unless a newer one is known.
func (l *Log) putLocked(row int64, to location) {
	was, ok := l.mu.index[row]
	if ok && was.batch > to.batch {
		return
	}
	l.mu.index[row] = to
	l.mu.stored += int64(to.length) - int64(was.length)
}

// Has reports whether the log has a version of a row.
func (l *Log) Has(row int64) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	_, ok := l.mu.index[row]
	return ok
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
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.closed {
		return nil
	}
	l.mu.closed = true
	var faults []error
	for i, s := range l.mu.segments {
		faults = append(faults, s.close(i == len(l.mu.segments)-1 && l.mu.broken == nil))
	}
	return errors.Join(append(faults, l.lock.Close())...)
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
