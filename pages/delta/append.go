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
	sync, show, err := l.AppendAsync(rows)
	if err == nil {
		err = sync()
	}
	if err == nil {
		show()
	}
	return err
}

// AppendAsync writes a batch and returns. sync and show do the rest of Append: sync waits for the drive if the log is durable, and show has Read find the batch. Batches stand
// in the log in the order in which AppendAsync has written them, whichever is synced or shown first. sync must be called once and, when it has returned nil, show as well:
// Seal waits for that. rows must not change before. After an error of AppendAsync nothing is written, and sync and show are nil.
func (l *Log) AppendAsync(rows []Row) (sync func() error, show func(), err error) {
	if len(rows) == 0 {
		return func() error { return nil }, func() {}, nil
	}
	size := int64(0)
	for _, r := range rows {
		n := len(r.Stored)
		switch {
		case r.Row < 0 || r.Row >= l.rows:
			return nil, nil, fmt.Errorf("delta: row (%d) must be 0 to %d", r.Row, l.rows-1)
		case r.Compressed && n >= l.rowBytes || !r.Compressed && n != l.rowBytes:
			return nil, nil, fmt.Errorf("delta: row %d (%d bytes stored) must have %d, or less if it is compressed", r.Row, n, l.rowBytes)
		}
		size += rowEntry + int64(n)
	}
	if size > maxBatch {
		return nil, nil, fmt.Errorf("delta: batch (%d bytes) must have at most %d", size, int64(maxBatch))
	}
	number, s, at, err := l.write(rows)
	if err != nil {
		return nil, nil, err
	}
	sync = func() error {
		if !l.o.Durable {
			return nil
		}
		synced := false
		defer func() { // also after a panic: nobody shows the batch, and Seal must not wait for it
			if !synced {
				l.publish(nil, number, nil, 0, false)
			}
		}()
		err := l.syncTo(number)
		synced = err == nil
		return err
	}
	return sync, func() { l.publish(rows, number, s, at, true) }, nil
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
	if err := l.syncAll(); err != nil {
		return nil, err
	}
	s, err := createSegment(l.dir, header{l.table, last.number + 1, next})
	if err != nil {
		return nil, fmt.Errorf("delta: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
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

// syncTo returns when the batch of this number is on the drive. One sync is under way at a time. It is for all batches that were written before it began. Those that
// are written meanwhile wait for it to end, and the next one is for all of these: however many goroutines append, a batch waits for two syncs at most.
func (l *Log) syncTo(number uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.mu.syncing && l.synced.Load() < number {
		l.syncEnded.Wait()
	}
	if l.synced.Load() >= number {
		return nil
	}
	return l.syncLocked()
}

// syncAll syncs the last segment. REQUIRES: writing held, so that none of it is written meanwhile.
func (l *Log) syncAll() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.mu.syncing {
		l.syncEnded.Wait()
	}
	return l.syncLocked()
}

// syncLocked syncs the last segment, and gives mu up meanwhile. Once a sync has failed there is no other: the system may have dropped what it could not write, and a later
// sync that succeeds would prove nothing. REQUIRES: mu held, and no sync is under way.
func (l *Log) syncLocked() error {
	if l.mu.broken != nil {
		return fmt.Errorf("delta: %w", l.mu.broken)
	}
	written, s := l.mu.written, l.mu.segments[len(l.mu.segments)-1] // those before were synced when the next began
	l.mu.syncing = true
	defer l.syncEnded.Broadcast()
	err := func() error {
		l.mu.Unlock()
		defer func() {
			l.mu.Lock()
			l.mu.syncing = false
		}()
		return l.syncSegment(s)
	}()
	if err != nil {
		l.mu.broken = err
		return fmt.Errorf("delta: %w", err)
	}
	l.synced.Store(max(l.synced.Load(), written))
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
