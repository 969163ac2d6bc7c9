package delta

import (
	"fmt"
	"math"
	"os"
)

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
			l.publish(nil, number, nil, 0, false)
			return err
		}
	}
	l.publish(rows, number, s, at, true)
	return nil
}

// write writes a batch to the last segment, and returns its number and where it lies.
func (l *Log) write(rows []Row) (number uint64, s *segment, at int64, err error) {
	l.writing.Lock()
	defer l.writing.Unlock()
	return l.writeLocked(rows)
}

// writeLocked is write. REQUIRES: writing held.
func (l *Log) writeLocked(rows []Row) (number uint64, s *segment, at int64, err error) {
	s, number, at, err = l.end()
	if err == nil && at >= l.o.SegmentBytes {
		if s, err = l.rotate(); err == nil {
			at = s.bytes
		}
	}
	if err != nil {
		return 0, nil, 0, err
	}
	behind := uint32(min(number-1-l.synced.Load(), math.MaxUint32))
	l.buffer = encodeBatch(l.buffer[:0], number, l.o.Durable, behind, rows)
	if _, err := writeAt(s.file, l.buffer, at); err != nil {
		// What got through is cut off; if not even that can be done, nothing can be written behind it.
		if err := s.file.Truncate(at); err != nil {
			l.breakOff(err)
		}
		return 0, nil, 0, fmt.Errorf("delta: %w", err)
	}
	l.mu.Lock()
	s.bytes += int64(len(l.buffer))
	l.mu.next++
	l.mu.written = number
	l.mu.unpublished[number] = struct{}{}
	l.mu.Unlock()
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
	if l.o.ReadOnly {
		return fmt.Errorf("delta: %w", l.mu.broken)
	}
	if l.mu.broken != nil {
		return fmt.Errorf("delta: an earlier write failed, the log must be opened again: %w", l.mu.broken)
	}
	return nil
}

// end returns where the next batch is to be written, and its number. REQUIRES: writing held.
func (l *Log) end() (last *segment, number uint64, at int64, err error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if err := l.writableLocked(); err != nil {
		return nil, 0, 0, err
	}
	last = l.mu.segments[len(l.mu.segments)-1]
	return last, l.mu.next, last.bytes, nil
}

// breakOff keeps the log from being written until it is opened again.
func (l *Log) breakOff(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.broken = err
}

// rotate begins the next segment. REQUIRES: writing held.
func (l *Log) rotate() (*segment, error) {
	last, next, _, err := l.end()
	if err != nil {
		return nil, err
	}
	if err := l.syncSegment(last); err != nil {
		l.breakOff(err)
		return nil, fmt.Errorf("delta: %w", err)
	}
	l.noteSynced(next - 1)
	s, err := createSegment(l.dir, header{l.table, last.number + 1, next})
	if err != nil {
		return nil, fmt.Errorf("delta: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.segments = append(l.mu.segments, s)
	return s, nil
}

// noteSynced notes that all batches up to this number are on the drive.
func (l *Log) noteSynced(number uint64) {
	for {
		known := l.synced.Load()
		if known >= number || l.synced.CompareAndSwap(known, number) {
			return
		}
	}
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
	if l.synced.Load() >= number {
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
		l.breakOff(err)
		return fmt.Errorf("delta: %w", err)
	}
	l.noteSynced(written)
	return nil
}

// publish has Read find the rows of a batch that lies at a place; none of a batch that may not be on the drive. fresh says that they are new versions.
func (l *Log) publish(rows []Row, number uint64, s *segment, at int64, fresh bool) {
	bytes := int64(0)
	at += batchHeader + rowEntry*int64(len(rows))
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range rows {
		l.putLocked(r.Row, location{s, at, number, int32(len(r.Stored)), r.Compressed, checksum(r.Stored)})
		at += int64(len(r.Stored))
		bytes += int64(len(r.Stored))
	}
	delete(l.mu.unpublished, number)
	l.published.Broadcast()
	if !fresh {
		return
	}
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
