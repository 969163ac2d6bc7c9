package admission

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/tinylfu"
)

var _ = register(Spec{Name: "tinylfu", Online: true, New: simple(NewTinyLFU)})

// NewTinyLFU returns the policy that passes the accesses to a cache with ristretto's policy (TinyLFU admission, sampled LFU
// eviction) whose costs are slot bytes. It ranks the rows that this cache holds, by the time that their hits save per byte of device memory,
// and then the rows that it rejected or evicted, the latest first, at most as many as fit in the slabs.
func NewTinyLFU() Policy { return &tinyLFU{} }

type tinyLFU struct {
	problem Problem
	lfu     *tinylfu.Cache
	refused *lru.Cache[uint64, struct{}] // rejected and evicted rows
	held    []heldRow                    // content of lfu at the last Rank, best first
}

// heldRow is a row that lfu holds, and the time that its hits save per byte of device memory.
type heldRow struct {
	key   uint64
	score float64
}

func (p *tinyLFU) Name() string { return "tinylfu" }

func (p *tinyLFU) Start(problem Problem) (err error) {
	p.problem = problem
	rows := problem.rowsIn(problem.Capacity)
	if p.refused, err = lru.New[uint64, struct{}](int(rows)); err != nil {
		return fmt.Errorf("admission: tinylfu: %w", err)
	}
	p.lfu = tinylfu.New(problem.Capacity, rows, 1, func(key uint64) { p.refused.Add(key, struct{}{}) })
	return nil
}

func (p *tinyLFU) Observe(table int, rows []int64) {
	for _, r := range rows {
		key := hashmap.Key(table, r)
		p.lfu.Access(key, int64(p.problem.SlotBytes(key)))
	}
}

func (p *tinyLFU) Rank() iter.Seq[uint64] {
	p.held = p.held[:0]
	for _, row := range p.lfu.Entries() {
		p.held = append(p.held, heldRow{row.Key, p.score(row)})
	}
	slices.SortFunc(p.held, func(a, b heldRow) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(hashmap.Hash(a.key), hashmap.Hash(b.key)))
	})
	return func(yield func(uint64) bool) {
		for _, row := range p.held {
			if !yield(row.key) {
				return
			}
		}
		for _, key := range slices.Backward(p.refused.Keys()) {
			if _, held := p.lfu.Entry(key); !held && !yield(key) {
				return
			}
		}
	}
}

// Explain implements Explainer, by the hits of rows that are held. Others have no frequency.
func (p *tinyLFU) Explain(key uint64) Estimate {
	e := Estimate{}
	if n := len(p.held); n > 0 {
		e.Victim = p.held[n-1].score
	}
	if row, ok := p.lfu.Entry(key); ok {
		e.Frequency, e.Score = float64(row.Hits), p.score(row)
		return e
	}
	e.Rejected = p.refused.Contains(key)
	return e
}

// score returns the nanoseconds that the hits of a row save, per byte of device memory.
func (p *tinyLFU) score(row tinylfu.Entry) float64 {
	return float64(row.Hits) * p.problem.savedPerByte(row.Key)
}

func (p *tinyLFU) Resize(capacity int64) {
	p.lfu.Resize(capacity)
	p.refused.Resize(int(p.problem.rowsIn(capacity)))
}

func (p *tinyLFU) Close() { p.lfu, p.refused, p.held = nil, nil, nil }
