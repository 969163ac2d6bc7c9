package admission

import (
	"cmp"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync"

	"github.com/dgraph-io/ristretto/v2"
	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/tensorcache/tensorcache/hashmap"
)

var _ = register(Spec{Name: "tinylfu", Online: true, New: simple(NewTinyLFU)})

// NewTinyLFU returns the policy that passes the accesses to a ristretto cache (TinyLFU admission, sampled LFU eviction) whose
// costs are slot bytes. It ranks the rows that this cache holds, by hits per slot byte, and then the rows that it rejected or
// evicted, the latest first, at most as many as fit in the slabs. Rows whose Set ristretto dropped are not ranked.
//
// Rankings are not reproducible: ristretto seeds its sketch at random and drops accesses when it is busy.
func NewTinyLFU() Policy { return &tinyLFU{} }

type tinyLFU struct {
	problem Problem
	lfu     *ristretto.Cache[uint64, *resident]
	gets    int
	sets    int
	held    []*resident          // content of lfu at the last Rank, best first
	index   map[uint64]*resident // held by key; nil until it is needed

	mu struct {
		sync.Mutex
		refused *lru.Cache[uint64, struct{}] // rejected and evicted rows
	}
}

// resident is the value of a row in lfu.
type resident struct {
	key  uint64
	slot int64 // bytes
	hits int64
}

// ristretto counts accesses in the background and drops what it cannot keep up with: fed at full speed it loses nine in
// ten, and its hit rate on the default workload varies by 8 points. Waiting for it this often loses a quarter and gives a
// steady one, for half as much time again (docs/notebook/admission.md).
const (
	setsPerWait  = 128
	getsPerYield = 64 // its buffer of accesses
)

// countersPerRow is the number of counters for each row that fits, as ristretto advises. It also sets how fast counts age. Ten
// counters for every row of the tables, which is 19 times as many on the default workload, lose 3 points of hit rate on the
// drifting workload and 3.6 on the Mooncake trace, and gain 2 on reddit.
const countersPerRow = 10

func (p *tinyLFU) Name() string { return "tinylfu" }

func (p *tinyLFU) Start(problem Problem) (err error) {
	p.problem = problem
	rows := problem.rowsIn(problem.Capacity)
	if p.mu.refused, err = lru.New[uint64, struct{}](int(rows)); err != nil {
		return fmt.Errorf("admission: tinylfu: %w", err)
	}
	refuse := func(item *ristretto.Item[*resident]) {
		p.mu.Lock()
		p.mu.refused.Add(item.Key, struct{}{}) // ristretto's hash of an integer is the integer
		p.mu.Unlock()
	}
	p.lfu, err = ristretto.NewCache(&ristretto.Config[uint64, *resident]{
		NumCounters:        max(64, countersPerRow*rows),
		MaxCost:            max(1, problem.Capacity),
		BufferItems:        getsPerYield,
		IgnoreInternalCost: true,
		OnReject:           refuse,
		OnEvict:            refuse,
	})
	if err != nil {
		return fmt.Errorf("admission: tinylfu: %w", err)
	}
	return nil
}

func (p *tinyLFU) Observe(table int, rows []int64) {
	for _, r := range rows {
		key := hashmap.Key(table, r)
		if p.gets++; p.gets%getsPerYield == 0 {
			runtime.Gosched()
		}
		if row, ok := p.lfu.Get(key); ok {
			row.hits++
			continue
		}
		row := &resident{key: key, slot: int64(p.problem.SlotBytes(key)), hits: 1}
		p.lfu.Set(key, row, row.slot)
		if p.sets++; p.sets%setsPerWait == 0 {
			p.lfu.Wait()
		}
	}
}

func (p *tinyLFU) Rank() iter.Seq[uint64] {
	p.lfu.Wait()
	p.held, p.index = nil, nil
	p.lfu.IterValues(func(row *resident) bool {
		p.held = append(p.held, row)
		return false
	})
	slices.SortFunc(p.held, func(a, b *resident) int {
		if c := cmp.Compare(b.hits*a.slot, a.hits*b.slot); c != 0 {
			return c
		}
		return cmp.Compare(hashmap.Hash(a.key), hashmap.Hash(b.key))
	})
	return func(yield func(uint64) bool) {
		for _, row := range p.held {
			if !yield(row.key) {
				return
			}
		}
		p.mu.Lock()
		refused := p.mu.refused.Keys()
		p.mu.Unlock()
		for _, key := range slices.Backward(refused) {
			if p.find(key) == nil && !yield(key) {
				return
			}
		}
	}
}

// find returns a row that was held at the last Rank, or nil. A lookup in lfu itself would count as an access.
func (p *tinyLFU) find(key uint64) *resident {
	if p.index == nil {
		p.index = make(map[uint64]*resident, len(p.held))
		for _, row := range p.held {
			p.index[row.key] = row
		}
	}
	return p.index[key]
}

// Explain implements Explainer, by the hits in ristretto as of the last Rank. Rows that were not held have no frequency.
func (p *tinyLFU) Explain(key uint64) Estimate {
	score := func(row *resident) float64 { return float64(row.hits) / float64(row.slot) }
	e := Estimate{}
	if n := len(p.held); n > 0 {
		e.Victim = score(p.held[n-1])
	}
	if row := p.find(key); row != nil {
		e.Frequency, e.Score = float64(row.hits), score(row)
		return e
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	e.Rejected = p.mu.refused.Contains(key)
	return e
}

func (p *tinyLFU) Resize(capacity int64) {
	p.lfu.UpdateMaxCost(max(1, capacity))
	p.mu.Lock()
	p.mu.refused.Resize(int(p.problem.rowsIn(capacity)))
	p.mu.Unlock()
}

func (p *tinyLFU) Close() {
	if p.lfu != nil {
		p.lfu.Close()
		p.lfu, p.held, p.index = nil, nil, nil
	}
}
