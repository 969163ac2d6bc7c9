package delta

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/tensorcache/tensorcache/pages"
)

// Merge writes the rows of the log into the next generation of the table's pages (pages.Rewrite), and removes them from the log. from is the current
// generation. create is called if there are rows. committed, if not nil, is called when the new generation is the one that readers open; what
// reads the log must read the new generation when it returns. Rows are appended and read meanwhile. A crash at any moment leaves the old generation and the
// log, or the new one. One call at a time.
func (l *Log) Merge(ctx context.Context, from pages.Store, create func() (pages.Writer, error), committed func() error, progress func(groups, of int64)) (done pages.Rewritten, err error) {
	sealed, err := l.seal(ctx)
	if err != nil || len(sealed.Rows()) == 0 {
		return done, err
	}
	w, err := create()
	if err != nil {
		return done, err
	}
	if _, done, err = pages.Rewrite(ctx, from, w, sealed, progress); err != nil {
		return done, err
	}
	if committed != nil {
		if err := committed(); err != nil {
			return done, err
		}
	}
	return done, l.Drop(sealed)
}

// Sealed is what the log held at a moment, to be merged into pages: it is a pages.Updates.
type Sealed struct {
	l    *Log
	last uint64 // segment
	rows []int64
	at   []location
}

// Seal returns the newest versions of all rows, which later ones do not change. They are on the drive when it returns. It waits until all batches that were
// written before are shown.
func (l *Log) Seal() (*Sealed, error) { return l.seal(context.Background()) }

// seal is Seal. ctx ends the wait for batches to be shown, which may depend on other things than the drive.
func (l *Log) seal(ctx context.Context) (*Sealed, error) {
	if err := l.Sync(); err != nil { // most of it, without holding up appends
		return nil, err
	}
	l.writing.Lock()
	last, next, _, err := l.end()
	if err == nil {
		_, err = l.rotate()
	}
	l.writing.Unlock()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	// Batches that were written before and are not published yet lie in segments that Drop removes.
	if err := l.awaitPublishedLocked(ctx, next); err != nil {
		return nil, err
	}
	s := &Sealed{l: l, last: last.number}
	for row, at := range l.mu.index {
		if at.segment.number <= last.number {
			s.rows = append(s.rows, row)
		}
	}
	slices.SortFunc(s.rows, cmp.Compare[int64])
	s.at = make([]location, len(s.rows))
	for i, row := range s.rows {
		s.at[i] = l.mu.index[row]
	}
	return s, nil
}

// awaitPublishedLocked waits until no batch below this number is written and not published, and gives mu up meanwhile.
func (l *Log) awaitPublishedLocked(ctx context.Context, next uint64) error {
	defer context.AfterFunc(ctx, func() {
		l.mu.Lock() // else the wake-up could fall between the check and the wait
		defer l.mu.Unlock()
		l.published.Broadcast()
	})()
	for l.unpublishedLocked(next) {
		if err := ctx.Err(); err != nil {
			return err
		}
		l.published.Wait()
	}
	return nil
}

// unpublishedLocked reports whether a batch below this number has been written and is not published.
func (l *Log) unpublishedLocked(next uint64) bool {
	for number := range l.mu.unpublished {
		if number < next {
			return true
		}
	}
	return false
}

// Rows returns the numbers of the rows, ascending. They must not be changed.
func (s *Sealed) Rows() []int64 { return s.rows }

// Read returns row i of Rows as it is stored. It lies in buf if that is long enough.
func (s *Sealed) Read(i int, buf []byte) (stored []byte, compressed bool, err error) {
	r, err := s.l.readAt(s.rows[i], s.at[i], buf)
	return r.Stored, r.Compressed, err
}

// Drop forgets the versions that were sealed, and those before, and removes their segments. Call it when the generation that they were
// merged into is committed and read. Rows that have been appended since stay. Nothing may read s any more.
func (l *Log) Drop(s *Sealed) error {
	l.mu.Lock()
	if l.mu.closed {
		l.mu.Unlock()
		return fmt.Errorf("delta: %w", os.ErrClosed)
	}
	for row, at := range l.mu.index {
		if at.segment.number <= s.last {
			delete(l.mu.index, row)
			l.mu.stored -= int64(at.length)
		}
	}
	n := 0
	for n < len(l.mu.segments) && l.mu.segments[n].number <= s.last {
		n++
	}
	dropped := l.mu.segments[:n:n]
	l.mu.segments = slices.Clone(l.mu.segments[n:])
	l.mu.Unlock()
	var faults []error
	for _, x := range dropped { // in ascending order: what is left has no gap
		faults = append(faults, x.close(false), os.Remove(filepath.Join(l.dir, segmentName(x.number))))
	}
	return errors.Join(append(faults, syncFolder(l.dir))...)
}
