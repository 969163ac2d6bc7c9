package live

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/tensorcache/tensorcache/pages"
	"github.com/tensorcache/tensorcache/pages/delta"
)

// The log is merged into pages when its files have more than MergeBytes, and more than one byte in mergeShare of the table's stored bytes. It is compacted,
// where it is not merged into a directory, when its files have more than MergeBytes, and compactShare times what the newest versions take. What failed is
// tried again after MergeWait, and then after twice the time before, at most maxMergeWait. LogOptions has MergeBytes and MergeWait.
const (
	mergeShare   = 8
	compactShare = 2
	// loggedRowBytes is what a row of the log takes beside its bytes, if there are many in a batch.
	loggedRowBytes = 16
	maxMergeWait   = 5 * time.Minute
	// oldReads is how long a merge waits for reads of the generation before, to delete it.
	oldReads = 30 * time.Second
	// A log remembers the latest maxWritten generations that it has written: three days of them, with maxMergeWait between them.
	maxWritten = 1024
)

// mayMerge reports whether the log can be merged into pages.
func (u *Log) mayMerge() bool { return u.table.merged || u.table.rewritable }

// replaced reports whether the log is to be compacted: most of it are versions that were replaced. Merging into a directory removes them, too, and
// writes few pages; merging into other stores writes all.
func (u *Log) replaced(s delta.Stats) bool {
	return !u.table.merged && s.SegmentBytes > max(u.o.MergeBytes, compactShare*(s.StoredBytes+loggedRowBytes*s.Rows))
}

// warn logs that the log is long and is not merged, once, and again when it has twice the bytes.
func (u *Log) warn(s delta.Stats) {
	warned, bytes := u.warned.Load(), s.StoredBytes+loggedRowBytes*s.Rows
	if u.mayMerge() || bytes <= max(u.o.MergeBytes, u.table.manifest.StoredBytes/mergeShare, 2*warned) || !u.warned.CompareAndSwap(warned, bytes) {
		return
	}
	u.o.Logger.Warn("updates are not merged into the pages of this table while a cache has it open: log, memory and the time of opening grow with every row that is updated",
		slog.String("table", u.table.manifest.Name), slog.String("log", u.o.Dir), slog.Int64("rows", s.Rows), slog.Int64("bytes", bytes))
}

// long reports whether the log is to be merged or compacted.
func (u *Log) long(s delta.Stats) bool {
	return u.replaced(s) || u.mayMerge() && s.SegmentBytes > max(u.o.MergeBytes, u.table.manifest.StoredBytes/mergeShare)
}

// appended warns of a long log that is not merged, and has the log shortened in the background if it is long.
func (u *Log) appended(s delta.Stats) {
	u.warn(s)
	if !u.long(s) {
		return
	}
	if u.working.CompareAndSwap(false, true) {
		u.tasks.Go(u.shortenInBackground)
	} else if u.replaced(s) {
		select {
		case u.replace <- struct{}{}:
		default:
		}
	}
}

// shortenInBackground shortens the log in the background until it is short enough, or the cache closes.
func (u *Log) shortenInBackground() {
	wait := u.o.MergeWait
	for {
		compact := u.replaced(u.log.Load().Stats())
		err := u.Shorten(u.life, compact)
		if u.life.Err() != nil {
			return
		}
		if err == nil {
			if !compact {
				wait = u.o.MergeWait
			}
			u.working.Store(false)
			// What was appended meanwhile may be much already.
			if !u.long(u.log.Load().Stats()) || !u.working.CompareAndSwap(false, true) {
				return
			}
			continue
		}
		u.o.Logger.Warn("updates are not merged yet: the log of updates grows until that succeeds", slog.Any("error", err), slog.Duration("again_in", wait))
		if errors.Is(err, errNotBegun) { // the merge has waited, has written nothing, and goes on as soon as it can
			wait = u.o.MergeWait
		}
		if !u.rest(wait) {
			return
		}
		wait = min(2*wait, maxMergeWait)
	}
}

// rest waits after a merge that failed, and compacts the log meanwhile when that is due. It returns false if the cache closes.
func (u *Log) rest(wait time.Duration) bool {
	for over := time.After(wait); ; {
		select {
		case <-over:
			return true
		case <-u.replace:
			if !u.replaced(u.log.Load().Stats()) {
				continue
			}
			if err := u.Shorten(u.life, true); err != nil && u.life.Err() == nil {
				u.o.Logger.Warn("the log of updates cannot be compacted", slog.Any("error", err))
				select { // not again at once
				case <-over:
					return true
				case <-u.life.Done():
					return false
				}
			}
		case <-u.life.Done():
			return false
		}
	}
}

// Shorten merges the log into pages. Where it cannot be, or with compact, it removes replaced versions from the log.
func (u *Log) Shorten(ctx context.Context, compact bool) error {
	u.merging.Lock()
	defer u.merging.Unlock()
	l := u.log.Load()
	if l == nil {
		return nil
	}
	var err error
	switch {
	case compact || !u.mayMerge():
		err = l.Compact(ctx)
	case u.table.merged:
		err = u.mergeFiles(ctx, l)
	default:
		err = u.mergeStore(ctx, l)
	}
	if err != nil {
		if ctx.Err() == nil {
			u.failed.Add(1)
		}
		return fmt.Errorf("cache: merging updates of table %s: %w", u.table.manifest.Name, err)
	}
	return nil
}

// mergeFiles merges the log into the page files of a directory.
func (u *Log) mergeFiles(ctx context.Context, l *delta.Log) error {
	g := u.table.begin()
	done, err := l.Merge(ctx, g.table.Stores()[0],
		func() (pages.Writer, error) { return pages.CreateFiles(u.table.files) },
		func() error { // from here on reads find the merged rows in the pages, or still in the log
			fresh, err := pages.Open(u.table.files, pages.FileOptions{})
			if err != nil {
				return err
			}
			return u.table.replace(fresh)
		}, nil)
	u.merged.Add(done.Bytes)
	return errors.Join(err, u.table.end(g))
}

// mergeStore merges the log into the only store of the table, a pages.Rewritable, and deletes the generation before when nothing reads it any more.
func (u *Log) mergeStore(ctx context.Context, l *delta.Log) error {
	g := u.table.begin()
	// An earlier merge failed, perhaps after its generation had become the current one. The log has its rows still.
	if len(u.written) > 0 {
		_, err := u.follow(ctx, g)
		if err = errors.Join(err, u.table.end(g)); err != nil {
			return err
		}
		g = u.table.begin()
	}
	from := g.table.Stores()[0].(pages.Rewritable)
	if l.Stats().Rows > 0 {
		if err := u.settle(ctx, from); err != nil {
			return errors.Join(err, u.table.end(g))
		}
	}
	u.dropOld(ctx, from) // what loaders left that have ended takes room
	var writes uint64
	done, err := l.Merge(ctx, from,
		func() (pages.Writer, error) {
			w, err := from.Rewriter(ctx)
			if err == nil {
				writes = w.Generation()
				u.written = append(u.written[max(0, len(u.written)+1-maxWritten):], writes)
			}
			return w, err
		},
		func() error { // rows may leave the log only if reads find them in the pages
			reads, err := u.follow(ctx, g)
			if err == nil && reads != writes {
				err = fmt.Errorf("generation %d was committed, and the current one is still %d", writes, reads)
			}
			return err
		}, nil)
	u.merged.Add(done.Bytes)
	if err = errors.Join(err, u.table.end(g)); err != nil || done.Rows == 0 {
		return err
	}
	select {
	case <-g.closed:
	case <-time.After(oldReads):
	case <-ctx.Done():
	}
	g = u.table.begin()
	u.dropOld(ctx, g.table.Stores()[0].(pages.Rewritable))
	return u.table.end(g)
}

// errNotBegun is wrapped by the error of a merge that has waited for the store, and has written nothing.
var errNotBegun = errors.New("the merge has not begun")

// settle waits until a store can take a generation. The error wraps errNotBegun.
func (u *Log) settle(ctx context.Context, s pages.Rewritable) error {
	u.waiting.Store(true)
	defer u.waiting.Store(false)
	if err := s.Settle(ctx); err != nil {
		return fmt.Errorf("%w: %w", errNotBegun, err)
	}
	return nil
}

// follow makes reads go from generation g on to the current one, if this process has written that, and returns the number of the generation that is read then. A
// merge that got no answer may have committed, or do so later, while the next one is under way: so any generation that this process has written may be the
// current one. It is an error if another process has written it: it need not have the updates of the log. REQUIRES: u.merging is held.
func (u *Log) follow(ctx context.Context, g *generation) (reads uint64, err error) {
	from, reads := g.table.Stores()[0].(pages.Rewritable), g.table.Manifest().Generation
	now, err := from.Current(ctx)
	if err != nil || now == reads {
		return reads, err
	}
	if slices.Contains(u.written, now) {
		store, err := from.Reopen(ctx)
		if err != nil {
			return reads, err
		}
		fresh, err := pages.OpenStores(ctx, store)
		if err != nil {
			return reads, err
		}
		if now = fresh.Manifest().Generation; slices.Contains(u.written, now) {
			u.written = nil // the others can no longer be committed: each was to replace the generation that was read until now
			return now, u.table.replace(fresh)
		}
		if err := fresh.Close(); err != nil {
			return reads, err
		}
	}
	return reads, fmt.Errorf("another process has written generation %d since generation %d was opened: open the table again", now, reads)
}

// dropOld deletes generations that nobody reads. What cannot be deleted now is deleted by the next merge, or by who packs the table.
func (u *Log) dropOld(ctx context.Context, store pages.Rewritable) {
	if err := store.DropOld(ctx); err != nil && ctx.Err() == nil {
		u.o.Logger.Warn("old generations of a table are not deleted yet", slog.String("table", u.table.manifest.Name), slog.Any("error", err))
	}
}
