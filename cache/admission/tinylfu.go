package admission

import (
	"cmp"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/ristretto/v2"
	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/tensorcache/tensorcache/hashmap"
)

var _ = register(Spec{Name: "tinylfu", Online: true, New: simple(NewTinyLFU)})

// NewTinyLFU returns the policy that passes the accesses to a ristretto cache (TinyLFU admission, sampled LFU eviction) whose
// costs are slot bytes. It ranks the rows that this cache holds, by the time that their hits save per slot byte, and then the rows that it rejected or
// evicted, the latest first, at most as many as fit in the slabs. Rows whose Set ristretto dropped are not ranked.
//
// Rankings are not reproducible: ristretto seeds its sketch at random and drops accesses when it is busy. While the cache serves, a
// goroutine passes the accesses on, so that no call waits for ristretto. Accesses are dropped while it has 16 calls of Observe to do.
func NewTinyLFU() Policy { return &tinyLFU{} }

type tinyLFU struct {
	problem Problem
	lfu     *ristretto.Cache[uint64, *resident]
	gets    int
	sets    int
	held    []ranked       // content of lfu at the last Rank, best first
	index   map[uint64]int // place in held of each key; nil until it is needed
	// queue has the accesses for the goroutine of Serve, which closes done; nil before Serve.
	queue chan []access
	done  chan struct{}

	mu struct {
		sync.Mutex
		refused *lru.Cache[uint64, struct{}] // rejected and evicted rows
	}
}

// access is an access to a row, the bytes of its slot, and the nanoseconds that a hit saves per slot byte.
type access struct {
	key   uint64
	slot  int64
	value float64
}

// resident is the value of a row in lfu.
type resident struct {
	access
	hits atomic.Int64
}

// ranked is a resident as of a Rank.
type ranked struct {
	access
	hits int64
}

func (r ranked) score() float64 { return float64(r.hits) * r.value }

// ristretto counts accesses in the background and drops what it cannot keep up with: fed at full speed it loses nine in
// ten, and its hit rate on the default workload varies by 8 points. Waiting for it this often loses a quarter and gives a
// steady one, for half as much time again (docs/notebook/admission.md).
const (
	setsPerWait  = 128
	getsPerYield = 64 // its buffer of accesses
	queued       = 16 // calls of Observe whose accesses wait for it while the cache serves
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
	if p.queue != nil && len(p.queue) == cap(p.queue) {
		return
	}
	all := make([]access, len(rows))
	for i, r := range rows {
		key := hashmap.Key(table, r)
		all[i] = access{key, int64(p.problem.SlotBytes(key)), p.problem.savedPerByte(key)}
	}
	if p.queue == nil {
		p.observe(all)
	} else {
		p.queue <- all // the only sender, so there is still room
	}
}

// observe passes accesses to lfu, and waits for it.
func (p *tinyLFU) observe(all []access) {
	for _, a := range all {
		if p.gets++; p.gets%getsPerYield == 0 {
			runtime.Gosched()
		}
		if row, ok := p.lfu.Get(a.key); ok {
			row.hits.Add(1)
			continue
		}
		row := &resident{access: a}
		row.hits.Store(1)
		p.lfu.Set(a.key, row, a.slot)
		if p.sets++; p.sets%setsPerWait == 0 {
			p.lfu.Wait()
		}
	}
}

// Serve implements Server.
func (p *tinyLFU) Serve() {
	p.queue, p.done = make(chan []access, queued), make(chan struct{})
	go func() {
		defer close(p.done)
		for all := range p.queue {
			p.observe(all)
		}
	}()
}

func (p *tinyLFU) Rank() iter.Seq[uint64] {
	if p.queue == nil {
		p.lfu.Wait()
	}
	p.held, p.index = nil, nil
	p.lfu.IterValues(func(row *resident) bool {
		p.held = append(p.held, ranked{row.access, row.hits.Load()})
		return false
	})
	slices.SortFunc(p.held, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.score(), a.score()), cmp.Compare(hashmap.Hash(a.key), hashmap.Hash(b.key)))
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
			if _, held := p.find(key); !held && !yield(key) {
				return
			}
		}
	}
}

// find returns a row that was held at the last Rank. A lookup in lfu itself would count as an access.
func (p *tinyLFU) find(key uint64) (ranked, bool) {
	if p.index == nil {
		p.index = make(map[uint64]int, len(p.held))
		for i, row := range p.held {
			p.index[row.key] = i
		}
	}
	if i, ok := p.index[key]; ok {
		return p.held[i], true
	}
	return ranked{}, false
}

// Explain implements Explainer, by the hits in ristretto as of the last Rank. Rows that were not held have no frequency.
func (p *tinyLFU) Explain(key uint64) Estimate {
	e := Estimate{}
	if n := len(p.held); n > 0 {
		e.Victim = p.held[n-1].score()
	}
	if row, ok := p.find(key); ok {
		e.Frequency, e.Score = float64(row.hits), row.score()
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
	if p.queue != nil {
		for len(p.queue) > 0 {
			select {
			case <-p.queue:
			default:
			}
		}
		close(p.queue)
		<-p.done
		p.queue = nil
	}
	if p.lfu != nil {
		p.lfu.Close()
		p.lfu, p.held, p.index = nil, nil, nil
	}
}
