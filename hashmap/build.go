package hashmap

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/internal/numa"
)

// Build replaces the map's content by the entries. Equal sets of entries give equal bytes, whatever their order. Each bucket
// takes the first four, by hash, of the entries whose home it is. The others are placed in rounds. In a round, each pending
// entry follows hints from its home bucket, in the map as the round found it, to a bucket with a free slot or to one
// without a hint for its group, for which it chooses a hint as Insert does. If several entries claim a bucket's free slot,
// or its hints, the first by hash wins. An entry that does not win all its claims stays pending. Build returns the entries
// that find no slot within MaxProbe hops; their rows are not cached. No reader may run. Keys must be distinct and not
// reserved.
func (m *Map) Build(entries []Entry) (rejected []Entry, err error) {
	return m.BuildContext(context.Background(), entries)
}

// BuildContext is Build that ends early, with the context's error, once that has ended. The map's content is undefined then.
func (m *Map) BuildContext(ctx context.Context, entries []Entry) (rejected []Entry, err error) {
	m.Clear()
	for _, e := range entries {
		if !isKey(e.Key) {
			return nil, fmt.Errorf("hashmap: key (%#x) is reserved", e.Key)
		}
	}
	sorted, memory := numa.Make[hashed](int64(len(entries)))
	defer memory.Free()
	sortByHash(ctx, sorted, entries)
	pending := sorted[:0] // what is behind it is still to come
	home, taken := ^uint32(0), 0
	for i, e := range sorted {
		if i%buildPart == 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
		}
		if i > 0 && e.Key == sorted[i-1].Key {
			table, row := SplitKey(e.Key)
			return nil, fmt.Errorf("hashmap: key (table %d row %d) must not be given twice", table, row)
		}
		if h := m.layout.home(e.hash); h != home {
			home, taken = h, 0
		}
		if taken == BucketSlots {
			pending = append(pending, e)
			continue
		}
		m.bucket(home).put(taken, e.Entry)
		taken++
	}
	return m.buildRounds(ctx, pending)
}

// buildPart is the number of entries that are placed between two looks at the context.
const buildPart = 1 << 16

type hashed struct {
	hash uint64
	Entry
}

// sortRanges is the number of ranges of hashes into which entries are divided before each range is sorted. A range of ten million entries fits
// a processor's cache.
const sortRanges = 1 << 11

// sortByHash sets sorted, which is as long as entries, to the entries in the order of their hashes. All processors sort. No range is sorted
// once the context has ended.
func sortByHash(ctx context.Context, sorted []hashed, entries []Entry) {
	workers := runtime.GOMAXPROCS(0)
	if len(entries) < 8*sortRanges {
		workers = 1
	}
	part := (len(entries) + workers - 1) / workers
	rangeOf := func(hash uint64) uint64 { return hash / (math.MaxUint64/sortRanges + 1) }
	// Where the next entry of each range goes, by part of the entries.
	next := make([][sortRanges]uint32, workers)
	concurrently := func(do func(worker int)) {
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() { do(w) })
		}
		wg.Wait()
	}
	entriesOf := func(w int) []Entry { return entries[min(w*part, len(entries)):min((w+1)*part, len(entries))] }
	concurrently(func(w int) {
		for _, e := range entriesOf(w) {
			next[w][rangeOf(Hash(e.Key))]++
		}
	})
	var ends [sortRanges]uint32
	at := uint32(0)
	for r := range sortRanges {
		for w := range next {
			at, next[w][r] = at+next[w][r], at
		}
		ends[r] = at
	}
	concurrently(func(w int) {
		for _, e := range entriesOf(w) {
			hash := Hash(e.Key)
			r := rangeOf(hash)
			sorted[next[w][r]] = hashed{hash, e}
			next[w][r]++
		}
	})
	var taken atomic.Int64
	concurrently(func(int) {
		for r := taken.Add(1) - 1; r < sortRanges && ctx.Err() == nil; r = taken.Add(1) - 1 {
			from := uint32(0)
			if r > 0 {
				from = ends[r-1]
			}
			slices.SortFunc(sorted[from:ends[r]], func(a, b hashed) int { return cmp.Compare(a.hash, b.hash) })
		}
	})
}

// step holds the claims of an entry in a round.
type step struct {
	at       probe
	hint     uint32 // to be set in the probe's bucket, or noHint
	hasSlot  bool
	slotFrom uint32 // the bucket of the slot
}

// buildRounds places the pending entries, sorted by hash, and returns those that do not fit.
func (m *Map) buildRounds(ctx context.Context, pending []hashed) (rejected []Entry, err error) {
	if len(pending) == 0 {
		return nil, ctx.Err()
	}
	// claims holds the first entry, by hash, that claims something of a bucket in a round: a hint of a full bucket, a slot
	// of another.
	type claim struct{ round, entry uint32 }
	claims := make([]claim, m.layout.Buckets)
	steps := make([]step, len(pending))
	for round := uint32(1); len(pending) > 0; round++ {
		first := func(bucket uint32, i int) {
			if claims[bucket].round != round {
				claims[bucket] = claim{round, uint32(i)}
			}
		}
		kept := 0
		for i, e := range pending {
			if i%buildPart == 0 {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
			}
			s, ok := m.buildStep(e.hash)
			if !ok {
				rejected = append(rejected, e.Entry)
				continue
			}
			if s.hint != noHint {
				first(s.at.bucket, kept)
			}
			if s.hasSlot {
				first(s.slotFrom, kept)
			}
			pending[kept], steps[kept] = e, s
			kept++
		}
		left := pending[:0]
		for i, e := range pending[:kept] {
			s, own := steps[i], claim{round, uint32(i)}
			won := (s.hint == noHint || claims[s.at.bucket] == own) && (!s.hasSlot || claims[s.slotFrom] == own)
			if won && s.hint != noHint {
				word, _ := s.at.hintAt()
				b := m.bucket(s.at.bucket)
				b[word] = s.at.withHint(b[word], s.hint)
			}
			if won && s.hasSlot {
				b := m.bucket(s.slotFrom)
				b.put(b.taken(), e.Entry)
			} else {
				left = append(left, e)
			}
		}
		pending = left
	}
	return rejected, nil
}

// buildStep returns the claims of the entry with this hash, or false if MaxProbe hops reach no free slot.
func (m *Map) buildStep(hash uint64) (s step, ok bool) {
	p := m.layout.probe(hash)
	word, _ := p.hintAt()
	for {
		hint := p.hint(m.bucket(p.bucket)[word])
		if p.hops == MaxProbe {
			return s, false
		}
		if hint == noHint {
			s = step{at: p}
			s.hint, s.hasSlot = m.choose(&p)
			s.slotFrom = p.next(s.hint)
			return s, true
		}
		if to := p.next(hint); m.bucket(to).taken() < BucketSlots {
			return step{at: p, hint: noHint, hasSlot: true, slotFrom: to}, true
		}
		p.follow(hint)
	}
}

// put stores an entry in a slot. Only Build uses it.
func (b *bucket) put(slot int, e Entry) {
	b[2*slot], b[2*slot+1] = e.Key|hintBits, uint64(e.Location)
}

// taken returns the number of slots in use, which during Build are the first ones.
func (b *bucket) taken() int {
	n := 0
	for n < BucketSlots && b[2*n] != EmptyKey {
		n++
	}
	return n
}
