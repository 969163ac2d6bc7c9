package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
	"github.com/valkey-io/valkey-go"
)

const (
	// breakAfter failures in a row, a node is not asked for breakFor. Then one request finds out whether it answers again.
	breakAfter = 3
	breakFor   = 2 * time.Second
	// nodeMemory is how much of a node's usual time a request replaces by its own.
	nodeMemory = 1.0 / 8
)

// node is one server that pages are read from.
type node struct {
	addr    string
	client  atomic.Pointer[valkey.Client]
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]
	// slots has room for the requests that are under way.
	slots    chan struct{}
	inflight atomic.Int64
	usual    atomic.Uint64 // seconds of a request, a moving average, as math.Float64bits
	counts   struct{ requests, failures, pages, bytes atomic.Int64 }
	named    time.Time // when a topology last named it; guarded by network.mu
}

func newNode(addr string, client valkey.Client, connections int, log *slog.Logger) *node {
	n := &node{addr: addr, slots: make(chan struct{}, connections)}
	n.client.Store(&client)
	n.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name: addr, Timeout: breakFor,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= breakAfter },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			switch {
			case to == gobreaker.StateOpen && from == gobreaker.StateClosed:
				log.Warn("cluster: a node does not answer and is left alone for a while", slog.String("node", addr), slog.Duration("for", breakFor))
			case to == gobreaker.StateClosed:
				log.Info("cluster: a node answers again", slog.String("node", addr))
			}
		},
	})
	return n
}

// begin waits for room for one more request and reports whether the node may be asked. Whoever gets true calls end.
func (n *node) begin(ctx context.Context, given <-chan struct{}) (end func(error), err error) {
	n.inflight.Add(1)
	select {
	case n.slots <- struct{}{}:
	case <-given:
		n.inflight.Add(-1)
		return nil, nil
	case <-ctx.Done():
		n.inflight.Add(-1)
		return nil, ctx.Err()
	}
	report, err := n.breaker.Allow()
	if err != nil {
		<-n.slots
		n.inflight.Add(-1)
		return nil, err
	}
	n.counts.requests.Add(1)
	begin := time.Now()
	return func(err error) {
		n.took(time.Since(begin), err)
		report(err)
		<-n.slots
		n.inflight.Add(-1)
	}, nil
}

// took notes how long a request took.
func (n *node) took(d time.Duration, err error) {
	if err != nil {
		n.counts.failures.Add(1)
	}
	for {
		old := n.usual.Load()
		mean := math.Float64frombits(old)
		if mean == 0 {
			mean = d.Seconds()
		}
		if n.usual.CompareAndSwap(old, math.Float64bits(mean+(d.Seconds()-mean)*nodeMemory)) {
			return
		}
	}
}

// usually returns how long a request takes.
func (n *node) usually() time.Duration {
	return time.Duration(math.Float64frombits(n.usual.Load()) * float64(time.Second))
}

// load is the time that a further request is expected to take.
func (n *node) load() float64 {
	return float64(n.inflight.Load()+1) * max(math.Float64frombits(n.usual.Load()), 1e-5)
}

func (n *node) open() bool { return n.breaker.State() == gobreaker.StateOpen }

// nodeError says which node an error is of.
type nodeError struct {
	addr string
	err  error
}

func (e *nodeError) Error() string { return fmt.Sprintf("node %s: %v", e.addr, e.err) }
func (e *nodeError) Unwrap() error { return e.err }

// randomPart returns 0 to d.
func randomPart(d time.Duration) time.Duration { return rand.N(d + 1) }
