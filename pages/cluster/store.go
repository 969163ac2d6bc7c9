package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/valkey-io/valkey-go"
	"go.opentelemetry.io/otel/metric"

	"github.com/tensorcache/tensorcache/pages"
)

var (
	// ErrMissing is wrapped by errors for pages and parts that the cluster does not have.
	ErrMissing = errors.New("missing in the cluster")
	// ErrNoTable is wrapped by errors for tables that the cluster does not have.
	ErrNoTable = errors.New("no such table")
	// ErrDropped is wrapped by errors of stores whose generation was dropped because their lease ran out.
	ErrDropped = errors.New("the generation was dropped")
	// ErrClosed is returned by a store that was closed.
	ErrClosed = errors.New("cluster: store is closed")
)

// Store reads one generation of a table from a cluster. It implements pages.Store and is safe for concurrent use.
type Store struct {
	o        Options
	url      string
	name     string
	control  control
	net      *network
	manifest *pages.Manifest
	lease    *lease
	life     context.Context // ends with Close
	end      context.CancelFunc
	metrics  metric.Registration
	attempts sync.WaitGroup // requests under way, also those that nobody waits for any more
	counts   struct{ requests, hedges, retries, failed atomic.Int64 }
	mu       struct {
		sync.RWMutex // held for reading by calls that are under way
		closed       bool
	}
}

// Open opens the current generation of a table. The address is redis://HOST:PORT[,HOST:PORT…][/TABLE], or the same with rediss for TLS; one
// node of a cluster is enough, as it knows the others. The cluster keeps the generation until the store is closed, or its process has not
// answered for Options.Lease.
func Open(ctx context.Context, url string, o Options) (_ *Store, err error) {
	o, err = o.withDefaults()
	if err != nil {
		return nil, err
	}
	c, name, err := dial(ctx, url, o)
	if err != nil {
		return nil, err
	}
	s := &Store{o: o, url: url, name: "cluster " + name, control: c}
	s.life, s.end = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			s.end()
			c.close()
		}
	}()
	if s.net, err = newNetwork(ctx, c.reading, o); err != nil {
		return nil, err
	}
	if s.manifest, s.lease, err = c.open(ctx); err != nil {
		return nil, err
	}
	if err := s.measure(o.MeterProvider); err != nil {
		return nil, errors.Join(err, s.lease.end())
	}
	return s, nil
}

// dial connects, and finds out the name of the table unless it is given.
func dial(ctx context.Context, url string, o Options) (c control, name string, err error) {
	a, err := parse(url)
	if err != nil {
		return c, "", err
	}
	if o.Table != "" {
		if err := checkName(o.Table); err != nil {
			return c, "", err
		}
		if a.table != "" && o.Table != a.table {
			return c, "", fmt.Errorf("cluster: table (%s) of the address must be %s", a.table, o.Table)
		}
	}
	c = control{keys: keys{cmp.Or(o.Table, a.table)}, o: o, waiting: new(atomic.Int64)}
	if c.client, c.reading, err = connect(a, o); err != nil {
		return c, "", err
	}
	if c.table == "" {
		if c.table, err = c.only(ctx); err != nil {
			c.close()
			return c, "", err
		}
	}
	return c, strings.Join(a.nodes, ","), nil
}

// only returns the name of the only table.
func (c control) only(ctx context.Context) (string, error) {
	r, err := c.do(ctx, func() valkey.Completed { return c.client.B().Smembers().Key(tablesKey).Build() })
	if err != nil {
		return "", fmt.Errorf("cluster: tables: %w", err)
	}
	names, err := r.AsStrSlice()
	switch {
	case err != nil:
		return "", fmt.Errorf("cluster: tables: %w", err)
	case len(names) == 0:
		return "", fmt.Errorf("cluster: %w: there is none", ErrNoTable)
	case len(names) > 1:
		return "", fmt.Errorf("cluster: the address must end in /TABLE, one of %s", strings.Join(names, ", "))
	}
	return names[0], nil
}

// Name implements pages.Store.
func (s *Store) Name() string { return s.name }

// Manifest implements pages.Store.
func (s *Store) Manifest() *pages.Manifest { return s.manifest }

// Part implements pages.Store.
func (s *Store) Part(ctx context.Context, p pages.Part) ([]byte, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.mu.closed {
		return nil, ErrClosed
	}
	size := s.manifest.Parts[p].Bytes
	b := make([]byte, 0, min(size, 1<<30))
	for first := 0; first < chunks(size); first += chunksAtOnce {
		var names []string
		for chunk := first; chunk < min(first+chunksAtOnce, chunks(size)); chunk++ {
			names = append(names, s.control.part(s.manifest.Generation, p, chunk))
		}
		texts, err := s.control.get(ctx, names)
		if err != nil {
			return nil, fmt.Errorf("%v of table %s: %w", p, s.manifest.Name, s.lost(err))
		}
		for _, text := range texts {
			b = append(b, text...)
		}
	}
	return b, s.manifest.Check(p, b)
}

// chunksAtOnce is how many chunks of a part are read or written by one pipeline.
const chunksAtOnce = 8

// mayHedge reports whether one more request may be sent a second time: that is for few slow ones, not for a cluster that is slow as a whole.
func (s *Store) mayHedge() bool {
	return s.counts.hedges.Load() < 16+s.counts.requests.Load()/10
}

// lost adds to an error that the generation is gone, if it is.
func (s *Store) lost(err error) error {
	if s.lease.lost.Load() {
		return fmt.Errorf("%w (its reader did not renew its lease for %v): %w", ErrDropped, s.o.Lease, err)
	}
	return err
}

// Close gives the lease back. Reads that are under way fail.
func (s *Store) Close() error {
	s.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return nil
	}
	s.mu.closed = true
	s.attempts.Wait()
	err := errors.Join(s.metrics.Unregister(), s.lease.end())
	s.control.close()
	return err
}
