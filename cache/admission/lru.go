package admission

import (
	"fmt"
	"iter"
	"slices"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/tensorcache/tensorcache/hashmap"
)

var _ = register(Spec{Name: "lru", Online: true, New: simple(NewLRU)})

// NewLRU returns the policy that offers what golang-lru's LRU holds with a place for every row of mean slot bytes that
// fits: the rows accessed last, the latest first.
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

// keeper is a cache of golang-lru.
type keeper interface {
	Get(uint64) (struct{}, bool)
	Add(uint64, struct{})
	Contains(uint64) bool
	// Keys lists queue after queue, each from the oldest on.
	Keys() []uint64
	// resized returns it with another number of places.
	resized(rows int) (keeper, error)
}

// recency is a policy that offers what a keeper holds, in the reverse order of its Keys.
type recency struct {
	name    string
	make    func(rows int) (keeper, error)
	problem Problem
	keeper  keeper
}

func (p *recency) Name() string { return p.name }

func (p *recency) Start(problem Problem) (err error) {
	p.problem = problem
	if p.keeper, err = p.make(p.places(problem.Capacity)); err != nil {
		return fmt.Errorf("admission: %s: %w", p.name, err)
	}
	return nil
}

// places is at least 2, 2Q's minimum.
func (p *recency) places(capacity int64) int { return int(max(2, p.problem.rowsIn(capacity))) }

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
	if k, err := p.keeper.resized(p.places(capacity)); err == nil { // an error is for sizes below 2 only
		p.keeper = k
	}
}

func (p *recency) Close() { p.keeper = nil }
