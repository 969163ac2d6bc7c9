package admission

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/hashmap"
)

const (
	// serialRows is the number of rows below which an Observe is not worth goroutines.
	serialRows = 1 << 14
	// parallelRows bounds the rows that are sorted by shard at a time: 17 bytes each.
	parallelRows = 1 << 18
	// touchRows is the number of buckets that a goroutine fetches from memory at a time.
	touchRows = 32
)

// sortedAccess is one access of a batch.
type sortedAccess struct {
	row  int64
	step uint32 // of weighStep accesses since the first of the batch
}

// sorter sorts the accesses of a batch by shard.
type sorter struct {
	shards  []uint8 // of each access of the batch
	sorted  []sortedAccess
	weights [][horizons]float32   // by step
	starts  [][tableShards]uint32 // of each part of the batch: how many accesses to a shard, then where its next goes
	ends    [tableShards]uint32
}

// observeSharded counts the accesses of rows up to the first after which counts are divided, and returns how many these are. Goroutines take
// parts of the batch and sort them by shard, in the order of access. Then they take shards.
func (f *frequency) observeSharded(table int, rows []int64) int {
	s := &f.sorter
	first := int(f.unaged) // accesses of the first step that have been counted
	s.weights = append(s.weights[:0], f.ageing.weight)
	ahead, divided := f.ageing, false
	for at := weighStep - first; at < len(rows); at += weighStep {
		for _, d := range ahead.step() {
			divided = divided || d
		}
		if divided { // the step that divides is passed below
			rows = rows[:at]
			break
		}
		s.weights = append(s.weights, ahead.weight)
	}
	workers := runtime.GOMAXPROCS(0)
	part := (len(rows) + workers - 1) / workers
	if cap(s.sorted) < len(rows) {
		s.sorted, s.shards = make([]sortedAccess, parallelRows), make([]uint8, parallelRows)
	}
	if len(s.starts) < workers {
		s.starts = make([][tableShards]uint32, workers)
	}
	partOf := func(w int) (from, to int) { return min(w*part, len(rows)), min((w+1)*part, len(rows)) }
	concurrently(workers, func(w int) {
		starts := &s.starts[w]
		clear(starts[:])
		from, to := partOf(w)
		for i, r := range rows[from:to] {
			shard := shardOf(hashmap.Hash(hashmap.Key(table, r)))
			s.shards[from+i] = shard
			starts[shard]++
		}
	})
	at := uint32(0)
	for shard := range tableShards {
		for w := range workers {
			at, s.starts[w][shard] = at+s.starts[w][shard], at
		}
		s.ends[shard] = at
	}
	concurrently(workers, func(w int) {
		starts := &s.starts[w]
		from, to := partOf(w)
		for i, r := range rows[from:to] {
			shard := s.shards[from+i]
			s.sorted[starts[shard]] = sortedAccess{r, uint32((first + from + i) / weighStep)}
			starts[shard]++
		}
	})
	var next atomic.Int64
	var mu sync.Mutex // guards the contest's votes
	concurrently(workers, func(int) {
		var votes [1 << horizons]tally
		for shard := int(next.Add(1)) - 1; shard < tableShards; shard = int(next.Add(1)) - 1 {
			from := uint32(0)
			if shard > 0 {
				from = s.ends[shard-1]
			}
			f.observeShard(table, s.sorted[from:s.ends[shard]], &votes)
		}
		mu.Lock()
		defer mu.Unlock()
		for i, n := range votes { // whole numbers: their order does not matter
			f.contest.votes[i].add(n)
		}
	})
	for left, n := len(rows), weighStep-first; left > 0; n = weighStep {
		n = min(n, left)
		f.passed(float64(n))
		left -= n
	}
	return len(rows)
}

// observeShard counts the accesses to one shard.
func (f *frequency) observeShard(table int, all []sortedAccess, votes *[1 << horizons]tally) {
	var hashes [touchRows]uint64
	for len(all) > 0 {
		n := min(len(all), touchRows)
		touched := uint64(0)
		for i, a := range all[:n] {
			hashes[i] = hashmap.Hash(hashmap.Key(table, a.row))
			touched |= f.bucket(hashes[i]).keys[0]
		}
		f.touch(touched)
		for i, a := range all[:n] {
			f.observe(hashmap.Key(table, a.row), hashes[i], 1, &f.sorter.weights[a.step], votes)
		}
		all = all[n:]
	}
}

// concurrently calls do(0) to do(n-1) at the same time.
func concurrently(n int, do func(i int)) {
	var wg sync.WaitGroup
	for i := 1; i < n; i++ {
		wg.Go(func() { do(i) })
	}
	do(0)
	wg.Wait()
}
