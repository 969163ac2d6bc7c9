package cluster

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/tensorcache/tensorcache/internal/redistest"
)

// TestNetwork_RefreshesDoNotQueue: while no node answers, requests that need the topology wait for one fetch, not one after the other.
func TestNetwork_RefreshesDoNotQueue(t *testing.T) {
	t.Parallel()
	c := redistest.Start(t, redistest.Options{NodeTimeout: 30 * time.Second})
	load(t, c.URL(), "x", rowsOf(100, 3), Options{})
	const timeout, callers = 400 * time.Millisecond, 300
	s, _ := openTable(t, c.URL(), Options{Table: "x", Timeout: timeout, Logger: quiet(t)})
	for _, n := range c.Nodes {
		n.Pause()
	}
	defer func() {
		for _, n := range c.Nodes {
			n.Resume()
		}
	}()
	time.Sleep(2 * refreshEvery) // a topology that was fetched just now is not fetched again
	begin := time.Now()
	var waiting sync.WaitGroup
	for range callers {
		waiting.Go(func() {
			if err := s.net.refresh(context.Background()); err == nil {
				t.Error("the topology was fetched from nodes that are paused")
			}
		})
	}
	waiting.Add(1)
	go func() { // the context of one ends sooner
		defer waiting.Done()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		for !errors.Is(s.net.refresh(ctx), context.DeadlineExceeded) {
			if time.Since(begin) > patience {
				t.Error("a refresh does not end with its context")
				return
			}
		}
	}()
	waiting.Wait()
	if took := time.Since(begin); took > patience {
		t.Errorf("%d refreshes of at most %v took %v", callers, timeout, took)
	}
}

// TestNetwork_ForgetsNodes: a node that left the cluster is forgotten after a while, and not before.
func TestNetwork_ForgetsNodes(t *testing.T) {
	n := &network{}
	n.mu.nodes = map[string]*node{}
	now := time.Now()
	adopt := func(after time.Duration, addrs ...string) {
		s := &shard{}
		for _, addr := range addrs {
			s.nodes = append(s.nodes, newNode(addr, nil, 1, slog.Default()))
		}
		n.adopt(&topology{shards: []*shard{s}}, now.Add(after))
	}
	adopt(0, "a:1", "b:1")
	a := n.mu.nodes["a:1"]
	adopt(time.Minute, "b:1")
	adopt(2*time.Minute, "a:1", "b:1")
	if n.mu.nodes["a:1"] != a || n.now.Load().shards[0].nodes[0] != a {
		t.Error("a node that was away for a minute is another one")
	}
	adopt(3*time.Minute, "b:1")
	adopt(3*time.Minute+forgetAfter, "b:1", "c:1")
	if len(n.mu.nodes) != 2 || n.mu.nodes["a:1"] != nil {
		t.Errorf("%d nodes are known, want b and c", len(n.mu.nodes))
	}
}
