package admission

import (
	"fmt"
	"iter"
	"slices"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/tensorcache/tensorcache/hashmap"
)

var _ = register(Spec{Name: "lru", Online: true, New: simple(NewLRU)})

// NewLRU returns the policy that ranks the content of golang-lru's LRU, with one entry for each row of mean slot bytes that
// fits: the last accessed rows, the latest first.
func NewLRU() Policy {
	return &recency{name: "lru", make: func(rows int) (keeper, error) {
		c, err := lru.New[uint64, struct{}](rows)
		return lruKeeper{c}, err
	}}
}

type lruKeeper struct{ *lru.Cache[uint64, struct{}] }

func (k lruKeeper) Add(key uint64, v struct{}) { k.Cache.Add(key, v) }

func (k lruKeeper) resized(rows int) (keeper, error) {
	k.Resize(rows)
	return k, nil
}

// keeper is one of golang-lru's caches.
type keeper interface {
	Get(uint64) (struct{}, bool)
	Add(uint64, struct{})
	Contains(uint64) bool
	// Keys returns the content, queue after queue, the oldest first in each.
	Keys() []uint64
	// resized returns the cache with another number of entries.
	resized(rows int) (keeper, error)
}

// recency is a policy that ranks the content of a keeper in the reverse order of its Keys.
type recency struct {
	name    string
	make    func(rows int) (keeper, error)
	problem Problem
	keeper  keeper
}

func (p *recency) Name() string { return p.name }

func (p *recency) Start(problem Problem) (err error) {
	p.problem = problem
	if p.keeper, err = p.make(p.entries(problem.Capacity)); err != nil {
		return fmt.Errorf("admission: %s: %w", p.name, err)
	}
	return nil
}

// entries returns the number of entries for a capacity, at least 2, the minimum of 2Q.
func (p *recency) entries(capacity int64) int { return int(max(2, p.problem.rowsIn(capacity))) }

func (p *recency) Observe(table int, rows []int64) {
	for _, r := range rows {
		key := hashmap.Key(table, r)
		if _, ok := p.keeper.Get(key); !ok {
			p.keeper.Add(key, struct{}{})
		}
	}
}

func (p *recency) Rank() iter.Seq[uint64] {
	keys := p.keeper.Keys()
	slices.Reverse(keys)
	return slices.Values(keys)
}

func (p *recency) Resize(capacity int64) {
	if k, err := p.keeper.resized(p.entries(capacity)); err == nil { // fails only for sizes below 2
		p.keeper = k
	}
}

func (p *recency) Close() { p.keeper = nil }
