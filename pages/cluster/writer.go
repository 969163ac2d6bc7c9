package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/tensorcache/tensorcache/pages"
)

// Writer loads a new generation of a table into a cluster. It implements pages.Writer. Until Commit returns, readers open the generation
// before. If the loader dies at any moment, what it wrote is deleted by the next DropOld after Options.Lease.
type Writer struct {
	control
	generation uint64
	token      string // of is; renew reads it beside changes of is
	is         state
	next       uint32
	over       bool   // committed or aborted
	replaces   []byte // the manifest that must still be the current one at Commit; nil: any
	lost       atomic.Bool
	stop       chan struct{}
	stopped    sync.WaitGroup
}

// NewWriter begins a new generation of a table, whose name must be given by the address or Options.Table.
func NewWriter(ctx context.Context, url string, o Options) (*Writer, error) {
	return newWriter(ctx, url, o, nil)
}

// newWriter is NewWriter. If waiting is not nil, the writer counts the slots that it waits for in it.
func newWriter(ctx context.Context, url string, o Options, waiting *atomic.Int64) (_ *Writer, err error) {
	o, err = o.withDefaults()
	if err != nil {
		return nil, err
	}
	if a, err := parse(url); err == nil && a.table == "" && o.Table == "" {
		return nil, errors.New("cluster: the address must end in /TABLE")
	}
	c, _, err := dial(ctx, url, o)
	if err != nil {
		return nil, err
	}
	if waiting != nil {
		c.waiting = waiting
	}
	w := &Writer{control: c, token: token(), stop: make(chan struct{})}
	w.is = state{is: loading, token: w.token}
	if err := w.begin(ctx); err != nil {
		c.close()
		return nil, fmt.Errorf("cluster: table %s: %w", w.table, err)
	}
	w.stopped.Go(w.renew)
	return w, nil
}

// begin takes a number that no generation had, and waits until the replicas know it: a replica that took its master's place without would give
// the number again.
func (w *Writer) begin(ctx context.Context) error {
	r, err := w.do(ctx, func() valkey.Completed { return w.client.B().Incr().Key(w.keys.last()).Build() })
	if err != nil {
		return err
	}
	n, err := r.AsInt64()
	if err != nil {
		return err
	}
	w.generation = uint64(n)
	if err := w.mark(ctx); err != nil {
		return err
	}
	_, err = w.do(ctx, func() valkey.Completed {
		return w.client.B().Hset().Key(w.generations()).FieldValue().FieldValue(strconv.FormatUint(w.generation, 10), w.is.String()).Build()
	})
	if err == nil {
		w.awaitReplicas(ctx, false, w.keys.last())
	}
	return err
}

// mark says that the loader lives.
func (w *Writer) mark(ctx context.Context) error {
	_, err := w.do(ctx, func() valkey.Completed {
		return w.client.B().Set().Key(w.loader(w.generation)).Value(w.token).PxMilliseconds(w.o.Lease.Milliseconds()).Build()
	})
	return err
}

func (w *Writer) renew() {
	marked := time.Now()
	for {
		select {
		case <-w.stop:
			return
		case <-time.After(w.o.Lease / 4):
		}
		if time.Since(marked) > w.o.Lease {
			// Others may have begun to delete the generation. Commit finds out; writing on would leave pages that nobody deletes.
			w.lost.Store(true)
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), w.o.Lease/4)
		now := time.Now()
		if err := w.mark(ctx); err != nil {
			w.o.Logger.Warn("cluster: a loader's mark could not be renewed and is tried again", slog.String("table", w.table), slog.Any("error", err))
		} else {
			marked = now
		}
		cancel()
	}
}

// Replaces has Commit fail unless this is the manifest of the generation that readers open then, and unless all replicas acknowledge the new one, failed
// ones too: for a generation that was made of it and of updates that are deleted elsewhere.
func (w *Writer) Replaces(m *pages.Manifest) (err error) {
	w.replaces, err = m.MarshalBinary()
	return err
}

// Generation implements pages.Writer.
func (w *Writer) Generation() uint64 { return w.generation }

const (
	// writtenAtOnce is the most bytes of pages that one pipeline writes, but for one page.
	writtenAtOnce = 4 << 20
	// announced is for how many pages at once the generation's state says that they may have been written.
	announced = 4096
)

// WritePages implements pages.Writer.
func (w *Writer) WritePages(ctx context.Context, first uint32, contents [][]byte) error {
	if err := w.usable(); err != nil {
		return err
	}
	if first != w.next {
		return fmt.Errorf("cluster: first page (%d) must be %d", first, w.next)
	}
	for len(contents) > 0 {
		n, bytes := 0, 0
		for n < len(contents) && (n == 0 || bytes+len(contents[n]) <= writtenAtOnce) {
			bytes += len(contents[n])
			n++
		}
		if end := w.next + uint32(n); end > w.is.pages {
			announce := w.is
			announce.pages = end + announced
			if err := w.become(ctx, announce, nil); err != nil {
				return err
			}
		}
		values := make(map[string]string, n)
		names := make([]string, n)
		for i := range n {
			names[i] = w.page(w.generation, w.next+uint32(i))
			// A copy: a command that is given up may still be sent later.
			values[names[i]] = string(contents[i])
		}
		if err := w.set(ctx, names, values); err != nil {
			return err
		}
		w.next += uint32(n)
		contents = contents[n:]
	}
	return nil
}

// set writes values.
func (w *Writer) set(ctx context.Context, names []string, values map[string]string) error {
	err := w.each(ctx, names, func(name string) valkey.Completed { return w.client.B().Set().Key(name).Value(values[name]).Build() })
	if ve, ok := errors.AsType[*valkey.ValkeyError](err); ok && strings.HasPrefix(ve.Error(), "OOM") {
		return fmt.Errorf("cluster: the memory of a node is full: %w", err)
	}
	return err
}

// become changes the generation's state. The error says so if somebody else has changed it.
func (w *Writer) become(ctx context.Context, to state, manifest []byte) error {
	var over []byte
	if manifest != nil {
		over = w.replaces
	}
	ok, err := w.swapOver(ctx, w.generation, w.is, to, manifest, over)
	if err != nil {
		return fmt.Errorf("cluster: table %s: %w", w.table, err)
	}
	if !ok {
		w.lost.Store(true)
		return w.usable()
	}
	w.is = to
	return nil
}

func (w *Writer) usable() error {
	switch {
	case w.over:
		return fmt.Errorf("cluster: table %s: generation %d was committed or given up", w.table, w.generation)
	case w.lost.Load():
		return fmt.Errorf("cluster: table %s: %w: its loader did not answer for %v", w.table, ErrDropped, w.o.Lease)
	}
	return nil
}

// Abort implements pages.Writer: it deletes what was written.
func (w *Writer) Abort() error {
	if w.over {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), controlTimeout)
	defer cancel()
	gone := w.is
	gone.is = dropping
	ok, err := w.swap(ctx, w.generation, w.is, gone, nil)
	if ok {
		err = w.erase(ctx, w.generation, gone)
	}
	w.finish()
	return err
}

// finish ends the loader's mark and its connections.
func (w *Writer) finish() {
	w.over = true
	close(w.stop)
	w.stopped.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	w.do(ctx, func() valkey.Completed { return w.client.B().Del().Key(w.loader(w.generation)).Build() }) //nolint:errcheck // it runs out by itself
	w.close()
}
