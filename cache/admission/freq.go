package admission

import (
	"iter"
	"math"
	"math/bits"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/numa"
)

var _ = register(Spec{Name: "freq", Online: true, New: simple(NewFrequency)})

// NewFrequency returns the policy that ranks rows by their recent access frequency, times the time that a hit saves, per byte of
// device memory.
//
// A table tracks the rows whose hits save the most time exactly, three times as many as fit in the slabs. A count-min sketch counts
// the other rows. A row of the sketch moves to the table when it saves more than the row of its bucket that saves least. Every tracked
// row has four counts that age at different speeds, the horizons, from nearly LRU to nearly LFU. The slowest horizon ranks
// at first. When another would have hit significantly more rows since the last Rank, it takes over. If that is a faster
// one, the workload has changed, and its counts replace those of the slower ones. So the policy uses the whole past of a
// stable workload, and only the accesses after a change. Rows that fit at the last ranking are ranked as if they had been
// accessed a tenth more often, which reduces the rows that refreshes write.
//
// Host memory: 144 bytes for each row that fits (capacity ÷ mean slot bytes), at least 3.2 MB, and at most 144 bytes for each row of the
// tables. With Problem.Memory it takes no more than that, but for the 3.2 MB: then it tracks fewer rows, 48 bytes each. Rank takes another 1.5 MB, from 170,000 rows that fit on 1.5 MB for each processor. Observe takes constant time an access; Rank
// and Resize take time linear in the memory. Equal accesses give equal rankings, however they are batched. The size of a row is requested
// when it might become tracked, and not again while it is.
func NewFrequency() Policy { return &frequency{} }

const (
	// perRow is the number of tracked rows for each that fits. With 2 the default workload loses 0.1 points of hit rate if it
	// is ranked once, after training, and 0.14 if one access in sixteen is sampled. With 6 it gains as much, for twice the
	// memory.
	perRow = 3
	// leastTracked is the least number of tracked rows. With 2048 the Mooncake trace loses 0.4 points of hit rate.
	leastTracked = 1 << 16
	// loyalty multiplies the score of rows that fit at the last ranking. Without it, refreshes of the default workload write
	// 2.8 % of the cache instead of 1.2 %, at the same hit rate. With 1.2 cora loses 0.3 points.
	loyalty = 1.1
	// keep is the horizon whose counts, times values, decide which rows are tracked. With the next faster one the default workload loses 0.7
	// points.
	keep = 2
	// sketchPeriod is the number of accesses to untracked rows, per entry of the table, after which the sketch's counts are
	// halved. With 16 the drifting workload loses 0.4 points. With 1 the default workload, one access in sixteen sampled,
	// loses 0.25.
	sketchPeriod = 4
)

type frequency struct {
	problem  Problem
	capacity int64
	buckets  []freqBucket
	sketch   sketch
	ageing   ageing
	contest  contest
	unaged   float64           // accesses since the last step of ageing
	period   float64           // accesses after which the sketch is halved
	promoted [horizons]float32 // factor from a count of the sketch to one of each horizon
	victim   float64           // lowest score that fit at the last Rank, in accesses
	order    []uint64          // the last ranking: keys, so that nothing is looked up while it is read
	mapped   [3]*numa.Memory   // of buckets, sketch and order
	taken    atomic.Int64      // bytes of these
	sorter   sorter            // of accesses by shard
}

// Tables of at least shardedBuckets buckets are divided into shards, ranges of hashes with as many buckets and a part of the sketch each. An
// access changes nothing but its shard, so that a long Observe works on all processors, with the same result as on one.
const (
	shardedBuckets = 1 << 16
	shardBits      = 6
	tableShards    = 1 << shardBits
)

// shardOf returns the shard of a hash in a table that is divided.
func shardOf(hash uint64) uint8 { return uint8(hash >> (64 - shardBits)) }

// sketchOf returns the part of the sketch that counts a hash.
func (f *frequency) sketchOf(hash uint64) *sketchShard {
	if len(f.sketch.shards) == 1 {
		return &f.sketch.shards[0]
	}
	return &f.sketch.shards[shardOf(hash)]
}

// freqBucket tracks keys of one range of hashes.
type freqBucket struct {
	keys   [freqWays]uint64
	counts [freqWays][horizons]float32 // sums of the weights of accesses
	info   [freqWays]freqInfo
	value  [freqWays]float32 // nanoseconds that a hit saves, per byte of device memory
}

const (
	freqWays = 8
	// trackedBytes is what a tracked row takes: a place in a bucket, one in the last ranking, and an eighth of a block of the sketch.
	trackedBytes = int64(unsafe.Sizeof(freqBucket{})/freqWays + 8 + unsafe.Sizeof(sketchBlock{})/freqWays)
	noKey        = math.MaxUint64 // marks an empty place
)

// freqInfo holds the size of a tracked row and the results of the last Rank:
//
//	[31:6]  slot bytes
//	[5]     the row was tracked at the last Rank
//	[4]     the row fit at the last Rank
//	[3:0]   the row would have fit if horizon 0 … 3 had ranked
type freqInfo uint32

const (
	fitted    freqInfo = 1 << horizons
	fitsMask           = 1<<(horizons+1) - 1
	known     freqInfo = 1 << (horizons + 1)
	slotShift          = horizons + 2
	maxSlot            = 1<<(32-slotShift) - 1
)

func (i freqInfo) slot() int64 { return int64(i >> slotShift) }

func (f *frequency) Name() string { return "freq" }

func (f *frequency) Start(p Problem) error {
	f.problem = p
	f.ageing = newAgeing()
	f.contest.active = horizons - 1
	f.Resize(p.Capacity)
	return nil
}

// Resize changes the size of the table to suit the capacity. If a bucket of the new table is too small for its rows, the most
// frequent ones stay.
func (f *frequency) Resize(capacity int64) {
	f.capacity = capacity
	rows := float64(f.problem.rowsIn(capacity))
	f.ageing.resize(rows)
	tracked := perRow * rows
	if f.problem.Memory > 0 {
		tracked = min(tracked, float64(f.problem.Memory/trackedBytes))
	}
	entries := min(max(leastTracked, tracked), perRow*float64(f.problem.rows())+freqWays, math.MaxUint32)
	defer func() {
		for k := range horizons {
			f.promoted[k] = f.ageing.recent(k, f.period)
		}
	}()
	n := int(entries / freqWays)
	if have := len(f.buckets); have > 0 && n < have+have/4 && n > have-have/4 {
		return // the sketch keeps its period
	}
	f.period = sketchPeriod * entries
	shards := 1
	if n >= shardedBuckets {
		shards = tableShards
		n -= n % tableShards // a bucket lies in one shard
	}
	old, memory := f.buckets, f.mapped
	defer freeAll(&memory)
	f.order, f.mapped[2] = nil, nil
	f.buckets, f.mapped[0] = numa.Make[freqBucket](int64(n))
	parts := 1
	if n >= shardedBuckets {
		parts = runtime.GOMAXPROCS(0)
	}
	concurrently(parts, func(part int) { // each page is first written here, which takes the system longest
		of := f.buckets[shardStart(part, parts, n):shardStart(part+1, parts, n)]
		for i := range of {
			for w := range freqWays {
				of[i].keys[w] = noKey
			}
		}
	})
	f.sketch, f.mapped[1] = newSketch(n, shards, uint64(f.period))
	f.taken.Store(int64(n) * freqWays * trackedBytes)
	for i := range old {
		for w, key := range old[i].keys {
			if key == noKey {
				continue
			}
			b := f.bucket(hashmap.Hash(key))
			if at, least := b.least(); old[i].counts[w][keep]*old[i].value[w] > least {
				b.keys[at], b.counts[at], b.info[at], b.value[at] = key, old[i].counts[w], old[i].info[w], old[i].value[w]
			}
		}
	}
}

// MemoryBytes implements Sizer.
func (f *frequency) MemoryBytes() int64 { return f.taken.Load() }

// bucket returns the bucket of a key's hash. Buckets are in the order of hashes.
func (f *frequency) bucket(hash uint64) *freqBucket {
	i, _ := bits.Mul64(hash, uint64(len(f.buckets)))
	return &f.buckets[i]
}

// find returns the place of a tracked key, or -1.
func (b *freqBucket) find(key uint64) int {
	for i, k := range b.keys {
		if k == key {
			return i
		}
	}
	return -1
}

// least returns the place of the key that saves least and its count times its value, or an empty place and -1.
func (b *freqBucket) least() (at int, score float32) {
	score = math.MaxFloat32
	for i, k := range b.keys {
		if k == noKey {
			return i, -1
		}
		if s := b.counts[i][keep] * b.value[i]; s < score {
			at, score = i, s
		}
	}
	return at, score
}

func (f *frequency) Observe(table int, rows []int64) { f.ObserveWeighted(table, rows, 1) }

// ObserveWeighted implements Weigher.
func (f *frequency) ObserveWeighted(table int, rows []int64, weight float64) {
	weight = max(1, weight)
	for len(rows) > 0 {
		n := min(len(rows), parallelRows)
		if len(f.sketch.shards) == 1 || n < serialRows || weight != 1 || f.unaged != math.Trunc(f.unaged) || runtime.GOMAXPROCS(0) == 1 {
			n = min(n, int(math.Ceil((weighStep-f.unaged)/weight)))
			f.observeStep(table, rows[:n], weight)
		} else {
			n = f.observeSharded(table, rows[:n])
		}
		rows = rows[n:]
	}
}

// passed counts accesses and ages the counts by the steps that are complete.
func (f *frequency) passed(accesses float64) (divided bool) {
	for f.unaged += accesses; f.unaged >= weighStep; f.unaged -= weighStep {
		for k, divide := range f.ageing.step() {
			if divide {
				f.scale(k, k, 1.0/maxWeight)
				divided = true
			}
		}
	}
	return divided
}

// observeStep counts accesses of one step, each of which stands for weight accesses.
func (f *frequency) observeStep(table int, rows []int64, weight float64) {
	var hashes [weighStep]uint64
	// These loads have no dependencies, so that several buckets are fetched from memory at a time.
	touched := uint64(0)
	for i, r := range rows {
		hashes[i] = hashmap.Hash(hashmap.Key(table, r))
		touched |= f.bucket(hashes[i]).keys[0]
	}
	f.touch(touched)
	for i, r := range rows {
		f.observe(hashmap.Key(table, r), hashes[i], float32(weight), &f.ageing.weight, &f.contest.votes)
	}
	f.passed(float64(len(rows)) * weight)
}

// touch keeps the compiler from removing the loads that it depends on.
//
//go:noinline
func (f *frequency) touch(uint64) {}

// observe counts an access that stands for n, with the weights of its step. votes are those of the contest, or of a goroutine.
func (f *frequency) observe(key, hash uint64, n float32, weight *[horizons]float32, votes *[1 << horizons]tally) {
	b := f.bucket(hash)
	if i := b.find(key); i >= 0 {
		for k := range horizons {
			b.counts[i][k] += n * weight[k]
		}
		votes[b.info[i]&(1<<horizons-1)].add(tally{float64(n), float64(n) * float64(n)})
		return
	}
	s := f.sketchOf(hash)
	past := float32(s.add(hash, uint32(n+0.5)))
	i, least := b.least()
	count := (n + past*f.promoted[keep]) * weight[keep]
	if count*s.most <= least { // without its size, which is slow to find out
		return
	}
	value := f.value(key)
	s.most = max(s.most, value)
	if count*value <= least {
		return
	}
	if b.keys[i] != noKey {
		s.raise(hashmap.Hash(b.keys[i]), b.counts[i][keep]/weight[keep])
	}
	b.keys[i], b.info[i], b.value[i] = key, f.size(key), value
	for k := range horizons {
		b.counts[i][k] = (n + past*f.promoted[k]) * weight[k]
	}
}

// scale sets all counts of horizon k to those of horizon from, times factor.
func (f *frequency) scale(k, from int, factor float32) {
	for i := range f.buckets {
		for w := range freqWays {
			c := &f.buckets[i].counts[w]
			c[k] = c[from] * factor
		}
	}
}

// freqBins sorts rows by score, to within 0.8 %: a bin holds the scores with the same upper 16 bits of their float32.
type freqBins struct {
	// bytes holds the slot bytes of the rows in each bin: by the score of each horizon, and, last, by the ranking score.
	bytes [horizons + 1][1 << 15]int64
	rows  [1 << 15]uint32
}

// bin returns the bin of a score, which is not negative.
func bin(score float32) uint32 { return math.Float32bits(score) >> 16 }

// cut returns the highest bin of index k that does not fit as a whole, or 0 if all fit, and the bytes left for its rows.
func cut(parts []rankPart, k int, capacity int64) (at uint32, left int64) {
	for at = 1<<15 - 1; at > 0; at-- {
		sum := int64(0)
		for _, p := range parts {
			sum += p.bins.bytes[k][at]
		}
		if sum > capacity {
			break
		}
		capacity -= sum
	}
	return at, capacity
}

// score returns the ranking score of an entry: its value times its weighted accesses of the active horizon.
func (f *frequency) score(b *freqBucket, i int) float32 {
	score := b.counts[i][f.contest.active] * b.value[i]
	if b.info[i]&fitted != 0 {
		score *= loyalty
	}
	return score
}

// size returns a freqInfo with the slot bytes of a row.
func (f *frequency) size(key uint64) freqInfo {
	return freqInfo(min(max(1, f.problem.SlotBytes(key)), maxSlot)) << slotShift
}

// value returns the value of a row.
func (f *frequency) value(key uint64) float32 { return float32(f.problem.savedPerByte(key)) }

func (f *frequency) Rank() iter.Seq[uint64] {
	if was := f.contest.active; f.contest.decide() && f.contest.active < was {
		now := f.contest.active
		for k := now + 1; k < horizons; k++ { // the counts of slower horizons are outdated
			f.scale(k, now, float32(f.ageing.exact[k]/f.ageing.exact[now]))
		}
	}
	parts, memory := f.rankParts()
	defer memory.Free()
	concurrently(len(parts), func(i int) { f.measure(&parts[i]) })
	var cuts [horizons + 1]uint32
	var left [horizons + 1]int64
	for k := range cuts {
		cuts[k], left[k] = cut(parts, k, f.capacity)
	}
	f.victim = float64(math.Float32frombits(cuts[horizons]<<16)) / f.ageing.exact[f.contest.active]
	f.divide(parts, &cuts, left)
	// From here on, bins.rows holds the position in order of the next row of each bin.
	next := uint32(0)
	for at := len(parts[0].bins.rows) - 1; at >= 0; at-- {
		for _, p := range parts {
			next, p.bins.rows[at] = next+p.bins.rows[at], next
		}
	}
	if f.order == nil {
		f.order, f.mapped[2] = numa.Make[uint64](int64(len(f.buckets) * freqWays))
	}
	f.order = f.order[:next]
	concurrently(len(parts), func(i int) { f.sort(&parts[i], &cuts) })
	return func(yield func(uint64) bool) {
		for _, key := range f.order {
			if !yield(key) {
				return
			}
		}
	}
}

// Explain implements Explainer, by the counts of the active horizon.
func (f *frequency) Explain(key uint64) Estimate {
	hash, k := hashmap.Hash(key), f.contest.active
	e := Estimate{Victim: f.victim}
	b := f.bucket(hash)
	i := b.find(key)
	if i < 0 {
		e.Frequency = float64(f.sketchOf(hash).estimate(hash)) * float64(f.promoted[k])
		if e.Frequency > 0 { // size is the slowest step
			e.Score, e.Rejected = e.Frequency*float64(f.value(key)), true
		}
		return e
	}
	e.Frequency = float64(b.counts[i][k]) / f.ageing.exact[k]
	e.Score = float64(f.score(b, i)) / f.ageing.exact[k]
	e.Rejected = b.info[i]&(known|fitted) == known
	return e
}

func (f *frequency) Close() {
	freeAll(&f.mapped)
	f.buckets, f.sketch, f.order, f.problem = nil, sketch{}, nil, Problem{}
	f.taken.Store(0)
}

func freeAll(memory *[3]*numa.Memory) {
	for _, m := range memory {
		m.Free()
	}
}
