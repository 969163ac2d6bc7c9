package delta

import (
	"context"
	"fmt"
	"path/filepath"
)

// compactBytes is about how many bytes Compact writes while appends wait.
const compactBytes = 1 << 20

// Compact writes the newest version of every row to new segments and removes those before: versions that were replaced no longer take space. Rows are
// appended and read meanwhile. After an error, also one of a context that has ended, the log has what it had. It must not be called while rows that Seal
// has returned are being merged.
func (l *Log) Compact(ctx context.Context) error {
	s, err := l.seal(ctx)
	if err != nil {
		return err
	}
	for from := 0; from < len(s.rows); {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := l.moveRows(ctx, s, from)
		if err != nil {
			return fmt.Errorf("delta: compacting %s: %w", filepath.Base(l.dir), err)
		}
		from += n
	}
	if err := l.Sync(); err != nil { // before the only other copy of these rows is removed
		return err
	}
	return l.Drop(s)
}

// moveRows appends some of the sealed rows, from one on, unless they have newer versions, and returns how many it has dealt with.
func (l *Log) moveRows(ctx context.Context, s *Sealed, from int) (n int, err error) {
	var rows []Row
	for bytes := 0; from+n < len(s.rows) && bytes < compactBytes; n++ {
		stored, compressed, err := s.Read(from+n, nil)
		if err != nil {
			return 0, err
		}
		rows = append(rows, Row{s.rows[from+n], stored, compressed})
		bytes += rowEntry + len(stored)
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	if err := l.awaitPublishedLocked(ctx, l.mu.next); err != nil { // no more are written while writing is held
		l.mu.Unlock()
		return 0, err
	}
	kept := rows[:0]
	for i, r := range rows {
		if l.mu.index[r.Row] == s.at[from+i] {
			kept = append(kept, r)
		}
	}
	l.mu.Unlock()
	if len(kept) == 0 {
		return n, nil
	}
	number, segment, at, err := l.writeLocked(kept)
	if err != nil {
		return 0, err
	}
	l.publish(kept, number, segment, at, false)
	return n, nil
}
