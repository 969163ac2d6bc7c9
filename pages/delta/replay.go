package delta

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// replay reads all segments and fills the index. A torn end is cut off; anything else that is damaged is an error.
func (l *Log) replay() error {
	numbers, err := listSegments(l.dir)
	if err != nil {
		return err
	}
	if l.o.ReadOnly {
		if l.othersWithoutBatches(numbers) {
			return nil
		}
		return l.replaySegments(numbers)
	}
	if left, err := filepath.Glob(filepath.Join(globbed(l.dir), "*.log.new")); err == nil {
		for _, path := range left {
			os.Remove(path) // a segment that was being made
		}
	}
	if l.othersWithoutBatches(numbers) {
		for _, number := range numbers {
			if err := os.Remove(filepath.Join(l.dir, segmentName(number))); err != nil {
				return err
			}
		}
		numbers = nil
	}
	if err := l.replaySegments(numbers); err != nil {
		return err
	}
	if len(numbers) > 0 {
		l.mu.written = l.mu.next - 1
		if l.o.Durable { // batches that Append had not returned for are found from now on
			if err := l.syncSegment(l.mu.segments[len(numbers)-1]); err != nil {
				return err
			}
			l.synced.Store(l.mu.written)
		}
		return nil
	}
	s, err := createSegment(l.dir, header{l.table, 1, l.mu.next})
	if err != nil {
		return err
	}
	l.mu.segments = append(l.mu.segments, s)
	return nil
}

// replaySegments fills the index from segments.
func (l *Log) replaySegments(numbers []uint64) error {
	for i, number := range numbers {
		if err := l.replaySegment(number, i == 0, i == len(numbers)-1); err != nil {
			return fmt.Errorf("segment %d: %w", number, err)
		}
	}
	return nil
}

// othersWithoutBatches reports whether segments hold nothing, and are not of this table: the one that was packed here before had no updates.
func (l *Log) othersWithoutBatches(numbers []uint64) bool {
	others := false
	for _, number := range numbers {
		b := make([]byte, segmentHeader+1)
		f, err := os.Open(filepath.Join(l.dir, segmentName(number)))
		if err != nil {
			return false
		}
		n, err := io.ReadFull(f, b)
		f.Close()
		if n != segmentHeader || err != io.ErrUnexpectedEOF {
			return false
		}
		_, err = parseHeader(b[:n], l.table)
		others = others || errors.Is(err, errOther)
	}
	return others
}

// globbed is a path whose characters mean nothing else in a pattern.
func globbed(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

func (l *Log) replaySegment(number uint64, first, last bool) error {
	mode := os.O_RDWR
	if l.o.ReadOnly {
		mode = os.O_RDONLY
	}
	f, err := os.OpenFile(filepath.Join(l.dir, segmentName(number)), mode, 0)
	if err != nil {
		return err
	}
	s := &segment{number: number, file: f}
	l.mu.segments = append(l.mu.segments, s) // Close closes it
	r := &reader{f: f}
	b, err := r.fill(segmentHeader)
	if err != nil {
		return err
	}
	h, err := parseHeader(b, l.table)
	if err != nil {
		return err
	}
	if h.number != number {
		return fmt.Errorf("%w: header: number (%d) must be that of the file's name", ErrCorrupt, h.number)
	}
	if first {
		l.mu.next = h.first
	}
	if h.first != l.mu.next || !first && number != l.mu.segments[len(l.mu.segments)-2].number+1 {
		return fmt.Errorf("%w: first batch (%d) must be %d: a segment is missing", ErrCorrupt, h.first, l.mu.next)
	}
	r.skip(segmentHeader)
	if last { // the one before was synced before this one was made
		l.synced.Store(h.first - 1)
	}
	for again := 0; ; {
		x, err := r.batch(l.rows, l.rowBytes)
		if err == io.EOF {
			break
		}
		if err == nil && x.number != l.mu.next {
			err = fmt.Errorf("%w: batch (%d) must be %d", ErrCorrupt, x.number, l.mu.next)
		}
		if err != nil {
			if !last {
				return fmt.Errorf("at byte %d: %w", r.at, err)
			}
			if l.o.ReadOnly && again < readAgain { // whoever has the log may just have been writing here
				again++
				r.buf = nil
				continue
			}
			if err := l.cutOff(s, r, err); err != nil {
				return err
			}
			break
		}
		at := r.at + batchHeader + int64(len(x.entries))
		for i := range x.rows {
			e := x.entry(i)
			l.putLocked(e.row, location{s, at, x.number, int32(e.length), e.compressed, e.sum})
			at += int64(e.length)
		}
		l.mu.next++
		r.skip(x.bytes)
	}
	s.bytes = r.at
	return nil
}

// readAgain is how often a log that is opened for reading alone reads bytes again that are not sound.
const readAgain = 3

// cutOff truncates a segment to where the reader stands, behind its last sound batch, unless what follows proves that this was no torn end. A log that
// is opened for reading alone only leaves the rest out.
func (l *Log) cutOff(s *segment, r *reader, fault error) error {
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	rest, err := r.fill(int(min(info.Size()-r.at, maxScan)))
	if err != nil {
		return err
	}
	if durableBehind(rest, l.mu.next, l.rows, l.rowBytes) {
		return fmt.Errorf("at byte %d: %w; durable batches follow", r.at, fault)
	}
	l.cut.Add(info.Size() - r.at)
	if l.o.ReadOnly {
		return nil
	}
	if err := s.file.Truncate(r.at); err != nil {
		return err
	}
	return syncFile(s.file)
}

// maxScan bounds the bytes behind a fault in which a later batch is looked for.
const maxScan = 1 << 30

// reader reads a file piece by piece.
type reader struct {
	f   *os.File
	at  int64  // of the file, where buf begins
	buf []byte // what has been read from there on
}

const readBytes = 4 << 20

// fill returns at least n bytes from where the reader stands, fewer at the end of the file.
func (r *reader) fill(n int) ([]byte, error) {
	for len(r.buf) < n {
		have := len(r.buf)
		want := max(n, readBytes)
		if cap(r.buf) < want {
			grown := make([]byte, have, want)
			copy(grown, r.buf)
			r.buf = grown
		}
		m, err := r.f.ReadAt(r.buf[have:want], r.at+int64(have))
		r.buf = r.buf[:have+m]
		if err == io.EOF {
			return r.buf, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return r.buf, nil
}

func (r *reader) skip(n int) {
	r.at += int64(n)
	r.buf = r.buf[n:]
}

// batch returns the batch where the reader stands; io.EOF at the end of the file.
func (r *reader) batch(rows int64, rowBytes int) (batch, error) {
	b, err := r.fill(batchHeader)
	if err != nil {
		return batch{}, err
	}
	if len(b) == 0 {
		return batch{}, io.EOF
	}
	if n := batchBytes(b); n > int64(len(b)) && n <= batchHeader+maxBatch {
		if info, err := r.f.Stat(); err == nil && r.at+n <= info.Size() { // else it is cut off
			if b, err = r.fill(int(n)); err != nil {
				return batch{}, err
			}
		}
	}
	return parseBatch(b, rows, rowBytes)
}
