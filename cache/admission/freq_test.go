package admission

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/internal/race"
)

func frequencyOf(t testing.TB, p Problem) *frequency { return start(t, NewFrequency(), p).(*frequency) }

// TestFrequency_Model compares rankings with exact sums of aged accesses while all rows are tracked and the slowest
// horizon ranks: they agree within 1.5 % (the width of a bin, and rounding), loyalty counted.
func TestFrequency_Model(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := rapid.Int64Range(1, 60).Draw(t, "rows")
		stored := map[uint64]int{}
		for row := range rows {
			stored[key(0, row)] = rapid.IntRange(1, 300).Draw(t, "stored")
		}
		p := problem([]int64{rows}, stored)
		p.Capacity = rapid.Int64Range(0, 8000).Draw(t, "capacity")
		f := NewFrequency().(*frequency)
		if err := f.Start(p); err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		shared := map[*freqBucket]int{}
		for row := range rows {
			b := f.bucket(hashmap.Hash(key(0, row)))
			if shared[b]++; shared[b] > freqWays {
				t.Skip("not all rows are tracked")
			}
		}
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		halfLife := halfLives[horizons-1] * max(float64(p.rowsIn(p.Capacity)), weighStep/4)
		sums, weight := make([]float64, rows), 1.0
		inCache := map[uint64]bool{}
		accesses := 0
		for range rapid.IntRange(1, 4).Draw(t, "cycles") {
			// Long enough for weights to be divided at all horizons but the slowest.
			for range rapid.IntRange(0, 60_000).Draw(t, "accesses") {
				row := int64(float64(rows) * math.Pow(r.Float64(), 3))
				f.Observe(0, []int64{row})
				sums[row] += weight
				if accesses++; accesses%weighStep == 0 {
					weight *= math.Exp2(weighStep / halfLife)
				}
			}
			score := func(k uint64) float64 {
				_, row := hashmap.SplitKey(k)
				s := sums[row] * float64(f.value(k))
				if inCache[k] {
					s *= loyalty
				}
				return s
			}
			keys := slices.Collect(f.Rank())
			if f.contest.active != horizons-1 {
				return // another horizon ranks now
			}
			seen := 0
			for _, s := range sums {
				if s > 0 {
					seen++
				}
			}
			if len(keys) != seen {
				t.Fatalf("%d rows are ranked, %d were accessed", len(keys), seen)
			}
			for i := range len(keys) - 1 {
				if a, b := score(keys[i]), score(keys[i+1]); a < b*0.985 {
					t.Fatalf("score %g (%#x) comes before %g (%#x)", a, keys[i], b, keys[i+1])
				}
			}
			clear(inCache)
			room := p.Capacity
			for _, k := range keys {
				b := f.bucket(hashmap.Hash(k))
				if b.info[b.find(k)]&fitted != 0 {
					inCache[k] = true
					room -= int64(p.SlotBytes(k))
				}
			}
			if room < 0 {
				t.Fatalf("what fits takes %d of %d bytes", p.Capacity-room, p.Capacity)
			}
		}
	})
}

// zipf draws rows of a table, renamed by shift.
func zipf(r *rand.Rand, rows uint64, shift int64) func() int64 {
	z := rand.NewZipf(r, 1.1, 10, rows-1)
	return func() int64 { return (int64(z.Uint64()*0x9e3779b97f4a7c15%rows) + shift) % int64(rows) }
}

// TestFrequency_FollowsDrift: the hot set changes abruptly, and within four refreshes of four accesses for each row that fits
// most of what the new one deserves is offered first. Without the contest of horizons it takes ten times as long.
func TestFrequency_FollowsDrift(t *testing.T) {
	skipUnderRaceDetector(t)
	const rows, fits = 100_003, 2000
	p := problem([]int64{rows}, nil)
	p.Capacity = fits * 112
	f := frequencyOf(t, p)
	r := rand.New(rand.NewPCG(1, 2))
	share := func(draw func() int64) float64 { // of accesses that the offered rows would get
		offered := map[int64]bool{}
		for k := range f.Rank() {
			_, row := hashmap.SplitKey(k)
			if offered[row] = true; len(offered) == fits {
				break
			}
		}
		hits := 0
		for range 50_000 {
			if offered[draw()] {
				hits++
			}
		}
		return float64(hits) / 50_000
	}
	observe := func(draw func() int64) {
		batch := make([]int64, 4*fits)
		for i := range batch {
			batch[i] = draw()
		}
		f.Observe(0, batch)
	}
	settled := 0.0
	for phase := range int64(4) {
		draw := zipf(r, rows, phase*31_337)
		if phase > 0 {
			if lost := share(draw); lost > 0.7*settled {
				t.Fatalf("phase %d: %.3f of the accesses hit without learning, %.3f before: no drift", phase, lost, settled)
			}
		}
		for range 4 {
			observe(draw)
			share(draw)
		}
		soon := share(draw)
		for range 40 {
			observe(draw)
			share(draw)
		}
		settled = share(draw)
		t.Logf("phase %d: %.3f after four refreshes, %.3f after more", phase, soon, settled)
		if soon < 0.93*settled {
			t.Errorf("phase %d: %.3f of the accesses hit after four refreshes, %.3f later", phase, soon, settled)
		}
	}
}

// TestFrequency_Loyalty: rows in the cache stay until another is clearly worth more.
func TestFrequency_Loyalty(t *testing.T) {
	p := problem([]int64{2}, nil)
	p.Capacity = 112 // one row
	f := frequencyOf(t, p)
	first := func() uint64 { return rank(t, f)[0] }
	f.Observe(0, slices.Concat(slices.Repeat([]int64{0, 1}, 100), repeat(0, 2)))
	if first() != key(0, 0) {
		t.Fatal("the more frequent row does not come first")
	}
	f.Observe(0, repeat(1, 6))
	if first() != key(0, 0) {
		t.Error("a row that is 5 % more frequent displaces the one that is cached")
	}
	f.Observe(0, repeat(1, 20))
	if first() != key(0, 1) {
		t.Error("a row that is 25 % more frequent does not displace the one that is cached")
	}
}

// TestFrequency_Untracked: rows that do not get into the table at once do when they keep coming.
func TestFrequency_Untracked(t *testing.T) {
	race.SkipSequential(t)
	const rows = 2_000_000
	p := problem([]int64{rows}, nil)
	p.Capacity = 1000 * 112
	f := frequencyOf(t, p)
	r := rand.New(rand.NewPCG(1, 2))
	hot := make([]int64, 500)
	for i := range hot {
		hot[i] = r.Int64N(rows)
	}
	for range 40 {
		f.Observe(0, hot)
		for range 20_000 {
			f.Observe(0, []int64{r.Int64N(rows)})
		}
	}
	if int64(len(f.buckets)*freqWays) > rows/10 {
		t.Fatalf("%d entries: the test is void", len(f.buckets)*freqWays)
	}
	found := map[uint64]bool{}
	for _, k := range rank(t, f)[:600] {
		found[k] = true
	}
	missing := 0
	for _, row := range hot {
		if !found[key(0, row)] {
			missing++
		}
	}
	if missing > 5 {
		t.Errorf("%d of 500 hot rows are not among the first 600", missing)
	}
}

// skipUnderRaceDetector is for tests of one goroutine that are long under the race detector.
func skipUnderRaceDetector(t *testing.T) {
	t.Helper()
	if race.Enabled {
		t.Skip("the race detector is slow")
	}
}

// memory is the bytes that the policy holds.
func (f *frequency) memory() int64 {
	return int64(len(f.buckets))*int64(unsafe.Sizeof(freqBucket{})) + int64(len(f.sketch.blocks))*int64(unsafe.Sizeof(sketchBlock{})) +
		int64(cap(f.order))*8 + int64(unsafe.Sizeof(freqBins{})) + int64(unsafe.Sizeof(*f))
}

// TestFrequency_Memory checks what NewFrequency's comment says, with everything tracked that there is room for.
func TestFrequency_Memory(t *testing.T) {
	skipUnderRaceDetector(t)
	for _, c := range []struct{ rows, fits int64 }{{1 << 40, 1}, {1 << 40, 50_000}, {1 << 56 / 3, 200_000}, {200_000, 200_000}, {1000, 10}, {1, 1}} {
		p := Problem{Rows: []int64{c.rows, c.rows}, Capacity: c.fits * 64,
			SlotBytes: func(uint64) int { return 64 }, StoredBytes: func(uint64) int { return 60 }}
		f := frequencyOf(t, p)
		r := rand.New(rand.NewPCG(1, 2))
		rows := make([]int64, 1_000_000)
		for i := range rows {
			rows[i] = r.Int64N(c.rows)
		}
		f.Observe(0, rows)
		f.Observe(1, rows)
		rank(t, f)
		limit := min(max(132*c.fits, 2_900_000), 132*2*c.rows+1000) + 1_600_000
		if got := f.memory(); got > limit+limit/10 {
			t.Errorf("%d rows, %d fit: %d bytes, want at most %d", 2*c.rows, c.fits, got, limit)
		}
	}
}

// TestFrequency_MemoryBound: with Problem.Memory the policy takes no more, says what it takes, and still ranks the rows that are used most first.
func TestFrequency_MemoryBound(t *testing.T) {
	race.SkipSequential(t)
	const rows, memory = 2_000_000, 5_000_000
	p := Problem{Rows: []int64{rows}, Capacity: rows / 2 * 16, Memory: memory, SlotBytes: func(uint64) int { return 16 }, StoredBytes: func(uint64) int { return 16 }}
	f := frequencyOf(t, p)
	r := rand.New(rand.NewPCG(1, 2))
	all := make([]int64, 1_000_000)
	for i := range all {
		if all[i] = r.Int64N(rows); i%4 == 0 {
			all[i] = int64(i / 4 % 100)
		}
	}
	f.Observe(0, all)
	ranking := rank(t, f)
	if got := f.memory() - int64(unsafe.Sizeof(freqBins{})); got > memory+memory/10 || got < memory/2 {
		t.Errorf("%d bytes are held, want up to %d", got, memory)
	}
	if got, said := f.memory()-int64(unsafe.Sizeof(freqBins{})), f.MemoryBytes(); said < got*9/10 || said > got*11/10 {
		t.Errorf("%d bytes are held, and %d are said to be", got, said)
	}
	for i, key := range ranking[:100] {
		if key >= 100 {
			t.Fatalf("key %d is at place %d", key, i)
		}
	}
	f.Resize(rows * 16) // more would fit
	if said := f.MemoryBytes(); said > memory {
		t.Errorf("%d bytes after Resize", said)
	}
}

// TestFrequency_Resize: what is known survives, and the table's size follows.
func TestFrequency_Resize(t *testing.T) {
	race.SkipSequential(t)
	const rows = 400_000
	p := problem([]int64{rows}, nil)
	p.Capacity = 100_000 * 112
	f := frequencyOf(t, p)
	for row := range int64(rows) {
		if row < 1000 {
			f.Observe(0, repeat(row, 20+int(row)))
		}
		f.Observe(0, []int64{row})
	}
	before, size := rank(t, f)[:1000], f.memory()
	p.Capacity *= 2
	f.Resize(p.Capacity)
	grown := rank(t, f)
	if f.memory() < size*3/2 {
		t.Errorf("%d bytes after doubling the cache, %d before", f.memory(), size)
	}
	f.Resize(p.Capacity / 10)
	if f.memory() > size/2 {
		t.Errorf("%d bytes after a fifth of the cache is left, %d before", f.memory(), size)
	}
	for what, now := range map[string][]uint64{"larger": grown[:1000], "smaller": rank(t, f)[:1000]} {
		slices.Sort(before)
		slices.Sort(now)
		if !slices.Equal(before, now) {
			t.Errorf("the first 1000 rows changed when the cache became %s", what)
		}
	}
	for _, capacity := range []int64{0, 1, -5, math.MaxInt64} {
		f.Resize(capacity)
		f.Observe(0, []int64{1, 2, 3})
		rank(t, f)
	}
}

// TestFrequency_SameOnAllProcessors: however many goroutines count, in batches of whatever length, the state is the same, also across divisions
// of the counts, changes of the table's size and rankings.
func TestFrequency_SameOnAllProcessors(t *testing.T) {
	const rows, fits = 4_000_000, 200_000
	draw := zipf(rand.New(rand.NewPCG(1, 2)), rows, 0)
	trace := make([]int64, 1_500_000)
	for i := range trace {
		trace[i] = int64(hashmap.Hash(uint64(draw())) % rows)
	}
	run := func(processors int) *frequency {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
		p := problem([]int64{rows}, nil)
		p.Capacity = fits * 112
		f := frequencyOf(t, p)
		if len(f.sketch.shards) != tableShards {
			t.Fatalf("%d buckets are in %d shards", len(f.buckets), len(f.sketch.shards))
		}
		f.ageing.exact[0], f.ageing.exact[1] = maxWeight*0.9, maxWeight*0.99 // both are divided soon
		r := rand.New(rand.NewPCG(3, 4))
		for i, left := 0, trace; len(left) > 0; i++ {
			n := min(len(left), []int{r.IntN(300), 20_000 + r.IntN(300_000), 16_384}[i%3])
			f.Observe(0, left[:n])
			left = left[n:]
			if i == 4 {
				f.Rank()
			}
			if i == 7 {
				f.Resize(2 * p.Capacity)
			}
		}
		return f
	}
	want, two, five := run(1), run(2), run(5)
	for _, f := range []*frequency{two, five} {
		if !slices.Equal(f.buckets, want.buckets) || !slices.Equal(f.sketch.blocks, want.sketch.blocks) || f.contest != want.contest || f.ageing != want.ageing {
			t.Error("the state differs")
		}
	}
	ranking := slices.Collect(want.Rank())
	if !slices.Equal(slices.Collect(two.Rank()), ranking) || !slices.Equal(slices.Collect(five.Rank()), ranking) {
		t.Error("the ranking differs")
	}
	if want.ageing.exact[0] > maxWeight/2 {
		t.Error("no counts were divided")
	}
}

// TestFrequency_PromotedByTheSketchsPeriod: what a count of the sketch is worth in a horizon depends on how long the sketch counts, also after a
// change of capacity that leaves the sketch as it is.
func TestFrequency_PromotedByTheSketchsPeriod(t *testing.T) {
	p := problem([]int64{10_000_000}, nil)
	p.Capacity = 100_000 * 112
	f := frequencyOf(t, p)
	sketch := &f.sketch.blocks[0]
	f.Resize(p.Capacity + p.Capacity/8)
	if &f.sketch.blocks[0] != sketch {
		t.Fatal("another sketch")
	}
	period := float64(f.sketch.shards[0].period) * float64(len(f.sketch.shards))
	for k := range horizons {
		if want := f.ageing.recent(k, period); math.Abs(float64(f.promoted[k]-want)) > 1e-4*float64(want) {
			t.Errorf("horizon %d: a count of the sketch is worth %g, want %g", k, f.promoted[k], want)
		}
	}
}

func TestFrequency_Explain(t *testing.T) {
	p := problem([]int64{100}, map[uint64]int{key(0, 50): 17})
	p.Capacity = 10 * 112
	f := frequencyOf(t, p)
	if e := f.Explain(key(0, 1)); e != (Estimate{}) {
		t.Errorf("before all: %+v", e)
	}
	for n := range 60 { // row 59 once, row 0 sixty times, evenly
		for row := range int64(60 - n) {
			f.Observe(0, []int64{row})
		}
	}
	if e := f.Explain(key(0, 1)); e.Rejected || e.Victim != 0 || e.Frequency > 59 || e.Frequency < 45 { // old accesses count in part
		t.Errorf("before the first Rank: %+v", e)
	}
	keys := rank(t, f)
	for i, k := range keys {
		_, row := hashmap.SplitKey(k)
		e := f.Explain(k)
		if fits := i < 10; e.Rejected == fits || fits && e.Score < e.Victim || !fits && e.Score > e.Victim*1.02 {
			t.Errorf("place %d: %+v", i, e)
		}
		if want := e.Frequency * p.savedPerByte(k); i >= 10 && row != 50 && math.Abs(e.Score-want) > 0.01*want { // the first 10 get a bonus
			t.Errorf("place %d: %+v, want score %g", i, e, want)
		}
	}
	if e, other := f.Explain(key(0, 50)), f.Explain(key(0, 51)); e.Score/e.Frequency < 3*other.Score/other.Frequency {
		t.Errorf("a row of 17 bytes, whose misses take as long as those of 100: %+v, other rows %+v", e, other)
	}
	if e := f.Explain(key(0, 99)); e.Rejected || e.Frequency != 0 || e.Score != 0 || e.Victim == 0 {
		t.Errorf("a row nobody asked for: %+v", e)
	}
}

// TestFrequency_Weighted: an access that stands for several counts as they do, for tracked rows, for others, and for ageing.
func TestFrequency_Weighted(t *testing.T) {
	const rows, weight = 5000, 8
	p := problem([]int64{rows}, nil)
	p.Capacity = 500 * 112
	one, all := frequencyOf(t, p), frequencyOf(t, p)
	r := rand.New(rand.NewPCG(1, 2))
	draw := zipf(r, rows, 0)
	for range 20_000 {
		row := draw()
		one.ObserveWeighted(0, []int64{row}, weight)
		for range weight {
			all.Observe(0, []int64{row})
		}
	}
	rank(t, one)
	rank(t, all)
	differing := 0 // few: where buckets are full, the order of accesses matters
	for row := range int64(rows) {
		a, b := one.Explain(key(0, row)).Frequency, all.Explain(key(0, row)).Frequency
		if math.Abs(a-b) > 0.01*b+0.5 {
			differing++
		}
	}
	if differing > rows/500 {
		t.Errorf("accesses of weight %d give %d of %d rows another frequency than as many of weight 1", weight, differing, rows)
	}
	// Ageing has steps of 64 accesses, whatever they weigh.
	if a, b := one.ageing.exact, all.ageing.exact; a != b {
		t.Errorf("weights of new accesses %v and %v", a, b)
	}
}

// TestContest_Weights: accesses that stand for eight are no more evidence than as many that stand for one.
func TestContest_Weights(t *testing.T) {
	for _, weight := range []float64{1, 8} {
		for _, x := range []struct {
			lead int // of 100 accesses
			wins bool
		}{{36, false}, {44, true}} { // 4 standard deviations are 40
			c := contest{active: 3}
			for range 50 + x.lead/2 {
				c.votes[1<<0].add(tally{weight, weight * weight})
			}
			for range 50 - x.lead/2 {
				c.votes[1<<3].add(tally{weight, weight * weight})
			}
			if c.decide() != x.wins {
				t.Errorf("%d votes of weight %g ahead: wins is %v", x.lead, weight, !x.wins)
			}
		}
	}
}

// TestContest_Decide: a horizon takes over when it is significantly ahead, the one most ahead, whatever was before.
func TestContest_Decide(t *testing.T) {
	c := contest{active: 3}
	only := func(k int) int { return 1 << k }
	vote := func(k int, n float64) bool {
		c.votes[only(k)].add(tally{n, n})
		return c.decide()
	}
	c.votes[0b1111], c.votes[0] = tally{1e6, 1e6}, tally{1e6, 1e6} // these say nothing
	if c.decide() {
		t.Error("switched without evidence")
	}
	if vote(3, 1e6) || vote(1, 15) { // a long time ago 3 was far ahead of 1; 15 in a row are 3.9 deviations
		t.Error("switched on weak evidence")
	}
	c.votes[only(0)] = tally{3, 3}
	if !vote(1, 2) || c.active != 1 {
		t.Errorf("17 to 0 do not convince: %+v", c)
	}
	if c.won != ([horizons]tally{}) || c.lost != c.won || c.decide() {
		t.Errorf("old evidence stays: %+v", c)
	}
	if c.votes[only(1)] = (tally{1000, 1000}); vote(2, 1100) || !vote(2, 200) || c.active != 2 {
		t.Errorf("1300 to 1000 do not convince, or 1100 to 1000 do: %+v", c)
	}
}

// TestSketch_NeverTooLow: up to the halving, estimates are at least the counts, and mostly equal where there is room.
func TestSketch_NeverTooLow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole, _ := newSketch(rapid.IntRange(1, 200).Draw(t, "blocks"), 1, math.MaxUint64)
		s := &whole.shards[0]
		keys := rapid.IntRange(1, 300).Draw(t, "keys")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		counts := make([]uint32, keys)
		for range rapid.IntRange(0, 5000).Draw(t, "adds") {
			k := r.IntN(keys) * r.IntN(keys) / keys
			counts[k]++
			if got := s.add(hashmap.Hash(uint64(k)), 1) + 1; got < min(counts[k], 255) {
				t.Fatalf("key %d: estimate %d after %d accesses", k, got, counts[k])
			}
		}
		wrong := 0
		for k, n := range counts {
			got := s.estimate(hashmap.Hash(uint64(k)))
			if got < min(n, 255) {
				t.Fatalf("key %d: estimate %d after %d accesses", k, got, n)
			}
			if got > n {
				wrong++
			}
		}
		if len(s.blocks) >= keys && wrong > keys/20+2 {
			t.Fatalf("%d of %d estimates are too high in a sketch of a block a key", wrong, keys)
		}
		s.halve()
		for k, n := range counts {
			if got := s.estimate(hashmap.Hash(uint64(k))); got < min(n, 255)/2 {
				t.Fatalf("key %d: estimate %d after %d accesses and a halving", k, got, n)
			}
		}
	})
}

func TestSketch_Halves(t *testing.T) {
	whole, _ := newSketch(4, 1, 10)
	s := &whole.shards[0]
	for range 10 {
		s.add(1, 1)
	}
	if n := s.estimate(1); n != 5 {
		t.Errorf("estimate %d after 10 accesses and a halving, want 5", n)
	}
	s.raise(1, 7.9)
	s.raise(1, 3)
	if n := s.estimate(1); n != 7 {
		t.Errorf("estimate %d after raising it to 7.9, want 7", n)
	}
	s.raise(2, 1e9)
	if n := s.estimate(2); n != 255 {
		t.Errorf("estimate %d, want the most there is", n)
	}
}

// BenchmarkObserve is what a sampled access costs, Ranks at every four accesses for each row that fits included.
func BenchmarkObserve(b *testing.B) {
	for _, name := range []string{"freq", "lru", "tinylfu"} {
		for _, fits := range []int64{25_000, 1_000_000} {
			if name != "freq" && fits > 25_000 {
				continue // takes minutes
			}
			b.Run(fmt.Sprintf("policy=%s/fits=%d", name, fits), func(b *testing.B) {
				p, rows := observed(b, name, fits)
				b.ReportAllocs()
				b.ResetTimer()
				for i := 0; i < b.N; i += len(rows) / 4 {
					at := i % len(rows)
					p.Observe(0, rows[at:at+len(rows)/4])
					p.Rank()
				}
				b.ReportMetric(float64(b.N)/1e6/b.Elapsed().Seconds(), "M/s")
			})
		}
	}
}

// BenchmarkRank is what a refresh costs.
func BenchmarkRank(b *testing.B) {
	for _, fits := range []int64{25_000, 1_000_000} {
		b.Run(fmt.Sprintf("policy=freq/fits=%d", fits), func(b *testing.B) {
			p, rows := observed(b, "freq", fits)
			for i := range b.N {
				b.StopTimer()
				p.Observe(0, rows[i%16*int(fits):][:fits])
				b.StartTimer()
				p.Rank()
			}
			b.ReportMetric(b.Elapsed().Seconds()*1e9/float64(b.N)/float64(fits), "ns/row-that-fits")
		})
	}
}

// observed returns a policy that is warm and 16 accesses for each row that fits, a twentieth of the table.
func observed(b testing.TB, name string, fits int64) (Policy, []int64) {
	p, err := newPolicy(name, Inputs{})
	if err != nil {
		b.Fatal(err)
	}
	problem := problem([]int64{20 * fits}, nil)
	problem.SlotBytes, problem.StoredBytes = func(uint64) int { return 400 }, func(uint64) int { return 390 }
	problem.Capacity = fits * 400
	start(b, p, problem)
	draw := zipf(rand.New(rand.NewPCG(1, 2)), uint64(20*fits), 0)
	rows := make([]int64, 16*fits)
	for i := range rows {
		rows[i] = draw()
	}
	p.Observe(0, rows)
	return p, rows
}

// TestFrequency_Speed wants a small part of what BenchmarkObserve shows (27 M/s), so that a busy machine does not fail it.
func TestFrequency_Speed(t *testing.T) {
	skipUnderRaceDetector(t)
	p, rows := observed(t, "freq", 25_000)
	best := time.Duration(math.MaxInt64)
	for range 5 {
		began := time.Now()
		p.Observe(0, rows)
		best = min(best, time.Since(began))
	}
	if rate := float64(len(rows)) / best.Seconds(); rate < 1e6 {
		t.Errorf("%.2f M accesses/s, want at least 1", rate/1e6)
	}
	if n := testing.AllocsPerRun(3, func() { p.Observe(0, rows) }); n != 0 {
		t.Errorf("Observe allocates %g times", n)
	}
}

// TestFrequency_TiesByHash: rows of equal score come in the order of their hashes, as static policies have it.
func TestFrequency_TiesByHash(t *testing.T) {
	f := frequencyOf(t, problem([]int64{1000}, nil))
	rows := make([]int64, 60)
	for i := range rows {
		rows[i] = int64(i * 16)
	}
	f.Observe(0, rows)
	byBucket := func(a, b uint64) int {
		n := uint64(len(f.buckets))
		return cmp.Compare(hashmap.Hash(a)>>1/(1<<63/n), hashmap.Hash(b)>>1/(1<<63/n))
	}
	if keys := rank(t, f); len(keys) != 60 || !slices.IsSortedFunc(keys, byBucket) {
		t.Errorf("got %#x", keys)
	}
}
