package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valkey-io/valkey-go"
)

// shard is the nodes that have the same pages, its master first.
type shard struct{ nodes []*node }

func (s *shard) master() *node { return s.nodes[0] }

// failed is the error for pages of a shard: what its nodes did, and the last error of one of them, if there was any.
func (s *shard) failed(did string, last error) error {
	var names []string
	for _, n := range s.nodes {
		names = append(names, n.addr)
	}
	err := fmt.Errorf("cluster: nodes %s %s", strings.Join(names, ", "), did)
	if last != nil {
		err = fmt.Errorf("%w: %w", err, last)
	}
	return err
}

// topology says which shard has which slot. It is immutable.
type topology struct {
	of     [slots]uint16 // 1 + index in shards; 0: nobody serves the slot
	shards []*shard
}

func (t *topology) shard(slot uint16) *shard {
	if i := t.of[slot]; i > 0 {
		return t.shards[i-1]
	}
	return nil
}

// network is the nodes of a cluster, or the only server.
type network struct {
	reading valkey.Client
	o       Options
	now     atomic.Pointer[topology]
	looked  atomic.Int64 // when refreshSometimes last fetched it
	looking atomic.Bool
	mu      struct { // held for moments
		sync.Mutex
		nodes    map[string]*node
		fetching *fetch    // nil: none is under way
		fetched  time.Time // when the last fetch ended, with fault
		fault    error
	}
}

// fetch is a fetch of the topology, which all wait for who need it meanwhile.
type fetch struct {
	done chan struct{}
	err  error // when done is closed
}

const (
	// refreshEvery is how often the topology is fetched at most.
	refreshEvery = 100 * time.Millisecond
	// refreshAfter is after how long reads have it fetched beside them, so that new replicas are found.
	refreshAfter = 5 * time.Second
	// forgetAfter is after how long a node that no topology names any more is forgotten: with it, that it failed, and its counts.
	forgetAfter = 10 * time.Minute
)

// refreshSometimes has the topology fetched if it is old. It does not wait.
func (n *network) refreshSometimes(ctx context.Context, tasks *sync.WaitGroup) {
	if time.Since(time.Unix(0, n.looked.Load())) < refreshAfter || !n.looking.CompareAndSwap(false, true) {
		return
	}
	tasks.Go(func() {
		defer n.looking.Store(false)
		n.refresh(ctx) //nolint:errcheck // the old one stays
		n.looked.Store(time.Now().UnixNano())
	})
}

// newNetwork finds the nodes.
func newNetwork(ctx context.Context, reading valkey.Client, o Options) (*network, error) {
	n := &network{reading: reading, o: o}
	n.mu.nodes = map[string]*node{}
	if reading.Mode() != valkey.ClientModeCluster {
		t := &topology{}
		for addr, c := range reading.Nodes() {
			t.shards = []*shard{{nodes: []*node{newNode(addr, c, o.Connections, o.Logger)}}}
		}
		for i := range t.of {
			t.of[i] = 1
		}
		n.now.Store(t)
		return n, nil
	}
	return n, n.refresh(ctx)
}

// refresh fetches the topology, unless that was done just now; whoever calls it meanwhile waits for the same fetch. The error of a fetch is also that
// of calls just after it.
func (n *network) refresh(ctx context.Context) error {
	if n.reading.Mode() != valkey.ClientModeCluster {
		return nil
	}
	n.mu.Lock()
	if n.mu.fetching == nil && time.Since(n.mu.fetched) < refreshEvery {
		defer n.mu.Unlock()
		return n.mu.fault
	}
	f := n.mu.fetching
	if f == nil {
		f = &fetch{done: make(chan struct{})}
		n.mu.fetching = f
		go n.fetch(context.WithoutCancel(ctx), f) // Options.Timeout bounds it; others may wait for it longer than ctx
	}
	n.mu.Unlock()
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fetch does a fetch.
func (n *network) fetch(ctx context.Context, f *fetch) {
	clients := n.reading.Nodes()
	t, err := n.ask(ctx, clients)
	n.mu.Lock()
	defer n.mu.Unlock()
	for addr, node := range n.mu.nodes { // a connection may have been replaced
		if c, ok := clients[addr]; ok {
			node.client.Store(&c)
		}
	}
	if err == nil {
		n.adopt(t, time.Now())
	}
	n.mu.fetching, n.mu.fetched, n.mu.fault = nil, time.Now(), err
	f.err = err
	close(f.done)
}

// ask returns the topology of the first node that has it.
func (n *network) ask(ctx context.Context, clients map[string]valkey.Client) (*topology, error) {
	ctx, cancel := context.WithTimeout(ctx, n.o.Timeout)
	defer cancel()
	type answer struct {
		t   *topology
		err error
	}
	answers := make(chan answer, len(clients))
	for addr, c := range clients {
		go func() {
			ranges, err := c.Do(ctx, c.B().ClusterSlots().Build()).ToArray()
			if err != nil {
				answers <- answer{err: &nodeError{addr, err}}
				return
			}
			t, err := n.parse(ranges, addr, clients)
			answers <- answer{t, err}
		}()
	}
	var errs []error
	for range clients {
		a := <-answers
		if a.err == nil {
			return a.t, nil
		}
		errs = append(errs, a.err)
	}
	return nil, fmt.Errorf("cluster: nodes are not known: %w", errors.Join(errs...))
}

// adopt makes a topology the present one. REQUIRES: n.mu held.
func (n *network) adopt(t *topology, now time.Time) {
	for _, s := range t.shards {
		for i, fresh := range s.nodes {
			if old, ok := n.mu.nodes[fresh.addr]; ok {
				s.nodes[i] = old
			} else {
				n.mu.nodes[fresh.addr] = fresh
			}
			s.nodes[i].named = now
		}
	}
	for addr, node := range n.mu.nodes {
		if now.Sub(node.named) > forgetAfter {
			delete(n.mu.nodes, addr)
		}
	}
	n.now.Store(t)
}

// parse reads the answer to CLUSTER SLOTS: for each range its first and last slot, and host, port and more of the master and replicas. An
// empty host is that of the node which answered.
func (n *network) parse(ranges []valkey.ValkeyMessage, from string, clients map[string]valkey.Client) (*topology, error) {
	t := &topology{}
	fresh := map[string]*node{}
	shards := map[string]uint16{}
	host, _, _ := net.SplitHostPort(from)
	for _, r := range ranges {
		v, err := r.ToArray()
		if err != nil || len(v) < 3 {
			return nil, unreadable(from, err)
		}
		first, err1 := v[0].AsInt64()
		last, err2 := v[1].AsInt64()
		if err := errors.Join(err1, err2); err != nil || first < 0 || last >= slots {
			return nil, unreadable(from, err)
		}
		s := &shard{}
		for _, m := range v[2:] {
			at, err := m.ToArray()
			if err != nil || len(at) < 2 {
				return nil, unreadable(from, err)
			}
			h, _ := at[0].ToString()
			port, err := at[1].AsInt64()
			if err != nil || h == "?" {
				continue
			}
			if h == "" {
				h = host
			}
			addr := net.JoinHostPort(h, strconv.FormatInt(port, 10))
			c, ok := clients[addr]
			if !ok {
				continue // the client does not know it yet
			}
			if fresh[addr] == nil {
				fresh[addr] = newNode(addr, c, n.o.Connections, n.o.Logger)
			}
			s.nodes = append(s.nodes, fresh[addr])
		}
		if len(s.nodes) == 0 {
			continue
		}
		name := ""
		for _, node := range s.nodes {
			name += node.addr + " "
		}
		if shards[name] == 0 {
			t.shards = append(t.shards, s)
			shards[name] = uint16(len(t.shards))
		}
		for slot := first; slot <= last; slot++ {
			t.of[slot] = shards[name]
		}
	}
	if len(t.shards) == 0 {
		return nil, fmt.Errorf("cluster: node %s serves no slots", from)
	}
	return t, nil
}

// unreadable is the error for an answer of another form, with the fault of reading it if there is one.
func unreadable(from string, fault error) error {
	return errors.Join(fmt.Errorf("cluster: node %s: its answer to CLUSTER SLOTS cannot be read", from), fault)
}

// pick returns the node of a shard that is expected to answer first, none of those that were tried. nil: none is left. Only the master, if
// master is set.
func (s *shard) pick(tried []*node, master bool) *node {
	var best *node
	least := 0.0
	nodes := s.nodes
	if master {
		nodes = nodes[:1]
	}
	for _, n := range nodes {
		if n.open() || slices.Contains(tried, n) {
			continue
		}
		if load := n.load(); best == nil || load < least {
			best, least = n, load
		}
	}
	return best
}
