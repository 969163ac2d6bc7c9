package clients

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/tensorcache/tensorcache/cache/internal/board"
	"github.com/tensorcache/tensorcache/internal/statefolder"
)

// ErrHeld is wrapped by errors of changes that a client holds back.
var ErrHeld = statefolder.ErrHeld

// runningBatch is a batch of a client, or a replay, that has not ended.
type runningBatch struct {
	client *Client
	lane   *board.Lane
	n      uint64
}

// Wait implements read.Readers.
func (w *Owner) Wait(ctx context.Context) error {
	if err := w.mapped(ctx, false); err != nil {
		return err
	}
	for _, b := range w.running() {
		if err := w.until(ctx, b.client, false, func() bool { return b.lane.Passed(b.n) }); err != nil {
			return err
		}
	}
	return nil
}

// running returns the batches of clients that have not ended.
func (w *Owner) running() (all []runningBatch) {
	w.mu.Lock()
	defer w.mu.Unlock() // also if what clients have written to their boards makes this panic
	for _, c := range w.mu.clients {
		if !c.live {
			continue
		}
		note := func(l *board.Lane) {
			if n := l.Running(); n != 0 {
				all = append(all, runningBatch{c, l, n})
			}
		}
		for i := range c.board.Shape().Lanes {
			note(c.board.Lane(i))
		}
		for d := range w.set.Devices {
			c.replaysLocked(d, func(p *board.Capture) { note(&p.Lane) })
		}
	}
	return all
}

// stall says that a client has held back a change for too long.
type stall struct {
	since time.Time
	over  func() bool // whether it holds the change back no more; nil: there is no stall
}

// Mapped implements read.Readers. It returns an error that wraps ErrHeld when a client has not mapped new memory for too long.
func (w *Owner) Mapped(ctx context.Context) error { return w.mapped(ctx, true) }

func (w *Owner) mapped(ctx context.Context, giveUp bool) error {
	generation := w.set.Generation()
	for _, c := range w.behind(generation) {
		if err := w.until(ctx, c, giveUp, func() bool { return c.board.Generation() >= generation }); err != nil {
			return err
		}
	}
	return nil
}

// behind tells clients of a generation of the layout, and returns those that read by an older one.
func (w *Owner) behind(generation uint64) (all []*Client) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.described != generation {
		w.layoutLocked() // also where nobody is told: it forgets memory that is about to be freed
	}
	for _, c := range w.mu.clients {
		if c.board.Left() {
			c.leaveLocked()
			continue
		}
		if c.told < generation {
			c.wake()
		}
		if c.live && c.board.Generation() < generation {
			all = append(all, c)
		}
	}
	return all
}

// until waits until a client has done something, or is gone. over is called under the lock, and not once the client is gone. With giveUp it returns
// an error that wraps ErrHeld when that takes too long.
func (w *Owner) until(ctx context.Context, c *Client, giveUp bool, over func() bool) error {
	begun := time.Now()
	for pause := time.Duration(0); ; pause = min(pause+poll/4, 20*poll) {
		ended, late := w.look(c, begun, over)
		if ended {
			return nil
		}
		if late && giveUp {
			if err := w.Held(); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.life:
			return errClosed
		case <-time.After(pause):
		}
	}
}

// look says whether a client has done what until waits for, and whether that has taken too long.
func (w *Owner) look(c *Client, begun time.Time, over func() bool) (ended, late bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.gone || c.board.Left() || over() {
		return true, false
	}
	if late = time.Since(begun) > w.o.StoppedAfter; late {
		w.stallLocked(c, stall{begun, over})
	}
	return false, late
}

// stallLocked notes that a client has held back a change for too long, and kills it if that is asked for.
func (w *Owner) stallLocked(c *Client, s stall) {
	if c.holdsLocked() == 0 {
		c.stall = s
		w.o.Log.Warn("client holds back changes", slog.String("client", c.name), slog.Duration("for", time.Since(s.since)))
	}
	if w.o.Evict && !c.killed {
		c.killed = true
		if err := c.process.Kill(); err != nil {
			w.o.Log.Error("client that holds back changes cannot be killed", slog.String("client", c.name), slog.Any("error", err))
		} else {
			w.o.Log.Warn("client killed, as it held back changes", slog.String("client", c.name))
		}
	}
}

// holdsLocked returns for how long a client has held back a change, 0 unless that is too long.
func (c *Client) holdsLocked() time.Duration {
	if c.stall.over != nil && (c.gone || c.board.Left() || c.stall.over()) {
		c.stall = stall{}
	}
	if c.stall.over == nil {
		return 0
	}
	return time.Since(c.stall.since)
}

// Held implements read.Readers.
func (w *Owner) Held() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.mu.clients {
		if d := c.holdsLocked(); d > 0 {
			return fmt.Errorf("%w: %s has been in a batch, or has not mapped new memory, for %v; it may be stopped", ErrHeld, c.name, d.Round(100*time.Millisecond))
		}
	}
	return nil
}
