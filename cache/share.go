package cache

import (
	"fmt"
	"sync"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/cache/internal/clients"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/sharing"
	"github.com/tensorcache/tensorcache/internal/wire"
)

func init() {
	sharing.Open = func(c any, o sharing.Options) (sharing.Owner, error) { return c.(*Cache).share(o) }
}

// shares is a cache's side towards processes that read its memory.
type shares struct {
	sync.Mutex
	owner *clients.Owner // nil until the first server
}

// share returns the owner's side of the cache. Package serve calls it.
func (c *Cache) share(o sharing.Options) (sharing.Owner, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	return c.owner.share(o)
}

func (c local) share(o sharing.Options) (sharing.Owner, error) {
	if !c.set.Shared {
		return nil, sharing.ErrNotShared
	}
	c.shares.Lock()
	defer c.shares.Unlock()
	if c.shares.owner == nil {
		owner, err := clients.New(c.set, clients.Options{Options: o, Log: c.watch.Log, Sampled: wire.Sampled(c.sampling), Misses: c.missed})
		if err != nil {
			return nil, err
		}
		c.shares.owner = owner
	} else {
		c.shares.owner.Configure(o)
	}
	return c.shares.owner, nil
}

// missed returns what is known of rows that a batch of a client has missed. It waits for calls of the policy.
func (c *Cache) missed(table int, rows []int64) (*wire.Misses, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.leave()
	if len(rows) > maxMissEvents {
		return nil, fmt.Errorf("%w: rows (%d) must be at most %d", ErrRows, len(rows), maxMissEvents)
	}
	t, err := c.tableFor(table, rows, false)
	if err != nil {
		return nil, err
	}
	stored := make([]int, len(rows))
	t.Tier.TryStoredBytes(rows, stored)
	known := &wire.Misses{}
	for i, w := range c.writer.Withdrawn.FindAll(table, rows, nil) {
		m := wire.Miss{Stored: stored[i], At: w.At, Age: w.Age}
		if w.By != nil {
			m.By = w.By.What
			if s := w.By.Span; s.IsSampled() {
				m.Trace, m.Span = s.TraceID().String(), s.SpanID().String()
			}
		}
		known.Rows = append(known.Rows, m)
	}
	// If the policy panics, there are no estimates, and Refresh returns the error.
	c.learner.Call(func(p admission.Policy) {
		if e, ok := p.(admission.Explainer); ok {
			for i, row := range rows {
				known.Rows[i].Estimate = wire.Estimate(e.Explain(hashmap.Key(table, row)))
			}
			known.Estimated = true
		}
	})
	return known, nil
}

// close ends sharing.
func (s *shares) close() {
	s.Lock()
	defer s.Unlock()
	if s.owner != nil {
		s.owner.Close()
	}
}

// clients describes the processes that read the cache's memory.
func (s *shares) clients() (all []ClientStats) {
	s.Lock()
	defer s.Unlock()
	if s.owner == nil {
		return nil
	}
	for _, d := range s.owner.Describe() {
		all = append(all, ClientStats{Name: d.Name, Gathers: d.Gathers, Lookups: d.Lookups, Hits: d.Hits, HoldsFor: d.HoldsFor})
	}
	return all
}
