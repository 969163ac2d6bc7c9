package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tensorcache/tensorcache/pages"
)

var _, _ pages.Rewritable = (*Store)(nil), (*Local)(nil)

// options are those of the store, with the table's name: the address may lack it.
func (s *Store) options() Options {
	o := s.o
	o.Table = s.manifest.Name
	return o
}

// Rewriter implements pages.Rewritable. Its Commit returns an error if not all replicas have acknowledged the generation: the one before would be back if one
// of them took its master's place.
func (s *Store) Rewriter(ctx context.Context) (pages.Writer, error) {
	current, err := s.control.current(ctx)
	if err != nil {
		return nil, err
	}
	if current.Generation != s.manifest.Generation {
		return nil, fmt.Errorf("cluster: table %s: generation %d, which is read, is not the current one: %w (%d)", s.manifest.Name, s.manifest.Generation, errReplaced, current.Generation)
	}
	w, err := newWriter(ctx, s.url, s.options(), s.control.waiting)
	if err != nil {
		return nil, err
	}
	if err := w.Replaces(s.manifest); err != nil {
		return nil, errors.Join(err, w.Abort())
	}
	return w, nil
}

// Settle implements pages.Rewritable. It waits a minute at most for slots on their way between masters.
func (s *Store) Settle(ctx context.Context) error {
	return s.control.settleUntil(ctx, time.Now().Add(s.o.settleWait))
}

// Current implements pages.Rewritable.
func (s *Store) Current(ctx context.Context) (uint64, error) {
	m, err := s.control.current(ctx)
	if err != nil {
		return 0, err
	}
	return m.Generation, nil
}

// Reopen implements pages.Rewritable.
func (s *Store) Reopen(ctx context.Context) (pages.Store, error) {
	fresh, err := Open(ctx, s.url, s.options())
	if err != nil {
		return nil, err
	}
	return fresh, nil
}

// DropOld implements pages.Rewritable.
func (s *Store) DropOld(ctx context.Context) error {
	_, err := s.control.dropOld(ctx)
	return err
}

// rewritable returns the store behind, if it can be rewritten.
func (l *Local) rewritable() (pages.Rewritable, error) {
	r, ok := l.Store.(pages.Rewritable)
	if !ok {
		return nil, fmt.Errorf("cluster: pages of table %s in %s cannot be rewritten", l.Manifest().Name, l.Store.Name())
	}
	return r, nil
}

// Rewriter implements pages.Rewritable, if the store behind does.
func (l *Local) Rewriter(ctx context.Context) (pages.Writer, error) {
	r, err := l.rewritable()
	if err != nil {
		return nil, err
	}
	return r.Rewriter(ctx)
}

// Settle implements pages.Rewritable, if the store behind does.
func (l *Local) Settle(ctx context.Context) error {
	r, err := l.rewritable()
	if err != nil {
		return err
	}
	return r.Settle(ctx)
}

// Current implements pages.Rewritable, if the store behind does.
func (l *Local) Current(ctx context.Context) (uint64, error) {
	r, err := l.rewritable()
	if err != nil {
		return 0, err
	}
	return r.Current(ctx)
}

// DropOld implements pages.Rewritable, if the store behind does.
func (l *Local) DropOld(ctx context.Context) error {
	r, err := l.rewritable()
	if err != nil {
		return err
	}
	return r.DropOld(ctx)
}

// Reopen implements pages.Rewritable, if the store behind does. The folder is the new store's from then on, and emptied, unless its generation is this
// one: this store reads all pages from the store behind. If the folder cannot be used, the new store does without.
func (l *Local) Reopen(ctx context.Context) (pages.Store, error) {
	r, err := l.rewritable()
	if err != nil {
		return nil, err
	}
	fresh, err := r.Reopen(ctx)
	if err != nil {
		return nil, err
	}
	if err = l.leave(); err == nil {
		var local *Local
		if local, err = newLocal(fresh, l.folder, l.bytes, l.log); err == nil {
			return local, nil
		}
	}
	l.log.Error("cluster: pages are no longer kept on this machine", slog.String("table", l.Manifest().Name), slog.String("folder", l.folder), slog.Any("error", err))
	return fresh, nil
}

// leave gives the folder up: nothing is written there or read any more, but for reads that have begun, whose checksums tell what others write meanwhile.
func (l *Local) leave() error {
	l.life.RLock()
	defer l.life.RUnlock()
	if l.life.closed {
		return ErrClosed
	}
	if l.left.Swap(true) {
		return nil
	}
	l.mu.Lock()
	l.mu.gone = true
	l.mu.Unlock()
	limit := time.After(localEnd)
	idle := make(chan struct{})
	select { // a buffer's place in the queue
	case memory := <-l.fresh:
		l.writing <- freshPage{memory: memory, reached: idle}
	case <-limit:
		return errLocalWrites
	}
	select {
	case <-idle:
		return l.files.release()
	case <-limit:
		return errLocalWrites
	}
}

// errLocalWrites says that the drive of a local page cache does not take pages any more.
var errLocalWrites = errors.New("writes that are under way do not end")
