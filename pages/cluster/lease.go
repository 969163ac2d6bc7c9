package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/tensorcache/tensorcache/pages"
)

// lease has the cluster keep a generation for a reader. A goroutine renews it.
type lease struct {
	control
	generation uint64
	reader     string
	lost       atomic.Bool // the generation is not kept any more
	stop       chan struct{}
	stopped    sync.WaitGroup
}

// open returns the current generation's manifest and a lease of it.
func (c control) open(ctx context.Context) (*pages.Manifest, *lease, error) {
	for wait := firstWait; ; wait = longer(wait) {
		m, err := c.current(ctx)
		if err != nil {
			return nil, nil, err
		}
		host, _ := os.Hostname()
		l := &lease{control: c, generation: m.Generation, reader: fmt.Sprintf("%s:%d:%s", host, os.Getpid(), token()), stop: make(chan struct{})}
		kept, err := l.take(ctx)
		if err != nil {
			return nil, nil, fmt.Errorf("cluster: table %s: lease: %w", c.table, err)
		}
		if kept {
			l.stopped.Go(func() { l.renew() })
			return m, l, nil
		}
		// A newer generation took its place meanwhile.
		if err := l.give(ctx); err != nil {
			return nil, nil, err
		}
		if !sleep(ctx, wait) {
			return nil, nil, ctx.Err()
		}
	}
}

// current returns the manifest of the current generation.
func (c control) current(ctx context.Context) (*pages.Manifest, error) {
	r, err := c.do(ctx, func() valkey.Completed { return c.client.B().Get().Key(c.manifest()).Build() })
	if valkey.IsValkeyNil(err) {
		return nil, fmt.Errorf("cluster: table %s: %w", c.table, ErrNoTable)
	}
	if err != nil {
		return nil, fmt.Errorf("cluster: table %s: %w", c.table, err)
	}
	b, err := r.AsBytes()
	if err != nil {
		return nil, fmt.Errorf("cluster: table %s: %w", c.table, err)
	}
	m := new(pages.Manifest)
	if err := m.UnmarshalBinary(b); err != nil {
		return nil, fmt.Errorf("cluster: table %s: %w", c.table, err)
	}
	if m.Name != c.table {
		return nil, fmt.Errorf("cluster: table %s: its manifest is of another table (%q)", c.table, m.Name)
	}
	return m, nil
}

// take writes the lease and then looks whether the generation is still there: see the package comment.
func (l *lease) take(ctx context.Context) (kept bool, err error) {
	_, err = l.do(ctx, func() valkey.Completed {
		return l.client.B().Set().Key(l.key()).Value("1").PxMilliseconds(l.o.Lease.Milliseconds()).Build()
	})
	if err == nil {
		_, err = l.do(ctx, func() valkey.Completed {
			return l.client.B().Sadd().Key(l.leases(l.generation)).Member(l.reader).Build()
		})
	}
	if err != nil {
		return false, err
	}
	s, found, err := l.state(ctx, l.generation)
	return found && s.is == ready, err
}

func (l *lease) key() string { return l.lease(l.generation, l.reader) }

// give deletes the lease.
func (l *lease) give(ctx context.Context) error {
	_, err := l.do(ctx, func() valkey.Completed { return l.client.B().Del().Key(l.key()).Build() })
	_, err2 := l.do(ctx, func() valkey.Completed {
		return l.client.B().Srem().Key(l.leases(l.generation)).Member(l.reader).Build()
	})
	return errors.Join(err, err2)
}

// renew takes the lease again and again.
func (l *lease) renew() {
	for {
		select {
		case <-l.stop:
			return
		case <-time.After(l.o.Lease / 4):
		}
		ctx, cancel := context.WithTimeout(context.Background(), l.o.Lease/4)
		s, found, err := l.state(ctx, l.generation)
		held := found && s.is == ready
		if err == nil && found && s.is == dropping { // it may yet be kept, for the lease: only a generation that is gone is lost
			held, err = l.alive(ctx)
		}
		if err == nil && held {
			_, err = l.take(ctx)
		} else if err == nil {
			l.lost.Store(true)
			l.o.Logger.Error("cluster: the generation that is read was dropped, as its lease had run out", slog.String("table", l.table), slog.Uint64("generation", l.generation))
			cancel()
			return
		}
		cancel()
		if err != nil {
			l.o.Logger.Warn("cluster: a lease could not be renewed and is tried again", slog.String("table", l.table), slog.Any("error", err))
		}
	}
}

// alive reports whether the lease is still there.
func (l *lease) alive(ctx context.Context) (bool, error) {
	r, err := l.do(ctx, func() valkey.Completed { return l.client.B().Exists().Key(l.key()).Build() })
	if err != nil {
		return false, err
	}
	n, err := r.AsInt64()
	return n == 1, err
}

// end stops renewing and deletes the lease.
func (l *lease) end() error {
	close(l.stop)
	l.stopped.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := l.give(ctx); err != nil {
		return fmt.Errorf("cluster: table %s: the lease of generation %s ends after %v only: %w", l.table, strconv.FormatUint(l.generation, 10), l.o.Lease, err)
	}
	return nil
}
