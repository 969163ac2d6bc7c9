package admission

import (
	"fmt"
	"iter"
	"runtime"

	"github.com/dgraph-io/ristretto/v2"

	"github.com/tensorcache/tensorcache/hashmap"
)

// NewTinyLFU returns the policy that feeds the training batches through a ristretto cache (TinyLFU admission, sampled
// LFU eviction), cost being slot bytes, and offers what is resident in the end, then what it refused or evicted.
//
// It is not reproducible: ristretto seeds its sketch at random and drops accesses when it is busy.
func NewTinyLFU() Policy { return &tinyLFU{} }

type tinyLFU struct {
	problem Problem
	lfu     *ristretto.Cache[uint64, struct{}]
	counts  counts
	gets    int
	sets    int
}

// ristretto counts accesses in the background and drops what it cannot keep up with: fed at full speed it loses nine in
// ten, and its hit rate on the default workload varies from 23 to 31 %. Waiting for it this often loses a quarter and
// gives a steady 34 %, for half as much time again.
const (
	setsPerWait  = 128
	getsPerYield = 64 // its buffer of accesses
)

func (p *tinyLFU) Name() string { return "tinylfu" }

func (p *tinyLFU) Start(problem Problem) error {
	rows := int64(0)
	for _, n := range problem.Rows {
		rows += n
	}
	lfu, err := ristretto.NewCache(&ristretto.Config[uint64, struct{}]{
		NumCounters:        max(64, min(10*rows, 1<<30)), // ten a row is what ristretto advises
		MaxCost:            max(1, problem.Capacity),
		BufferItems:        getsPerYield,
		IgnoreInternalCost: true,
	})
	if err != nil {
		return fmt.Errorf("admission: tinylfu: %w", err)
	}
	p.problem, p.lfu, p.counts = problem, lfu, newCounts(problem)
	return nil
}

func (p *tinyLFU) Observe(table int, rows []int64) {
	p.counts.observe(table, rows)
	for _, r := range rows {
		key := hashmap.Key(table, r)
		if p.gets++; p.gets%getsPerYield == 0 {
			runtime.Gosched()
		}
		if _, ok := p.lfu.Get(key); ok {
			continue
		}
		p.lfu.Set(key, struct{}{}, int64(p.problem.SlotBytes(key)))
		if p.sets++; p.sets%setsPerWait == 0 {
			p.lfu.Wait()
		}
	}
}

// Rank puts residents before the others, and either by how often they were seen.
func (p *tinyLFU) Rank() iter.Seq[uint64] {
	p.lfu.Wait()
	const resident = 1 << 33 // above any count
	return scores(p.counts.each(func(key uint64, n float64) float64 {
		if _, ok := p.lfu.Get(key); ok {
			n += resident
		}
		return n
	}))
}

func (p *tinyLFU) Close() {
	if p.lfu != nil {
		p.lfu.Close()
		p.lfu = nil
	}
}

func (p *tinyLFU) Resize(capacity int64) {
	p.problem.Capacity = capacity
	if p.lfu != nil {
		p.lfu.UpdateMaxCost(max(1, capacity))
	}
}
