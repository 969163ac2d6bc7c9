package change

import (
	"errors"
	"iter"
	"math/bits"

	"github.com/tensorcache/tensorcache/cache/admission"
	"github.com/tensorcache/tensorcache/cache/internal/place"
	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/hashmap"
	"github.com/tensorcache/tensorcache/slab"
)

// plan is what a cycle is to do.
type plan struct {
	// newcomers are the rows to admit and the cached rows to copy, best first. fewer are the cached rows to remove from some of their
	// slabs. surplus are the cached rows that the policy ranks too low to stay, best first. ranked has the rows that are cached and ranked, and others. Cached
	// rows that are not in ranked are worth less than those in surplus.
	newcomers, fewer []wanted
	surplus          []uint64
	ranked           []read.Bitset
	// groups are the groups of equal rows with rows that are to be cached: bits of the slabs that their slots are planned for. admits counts the newcomers that
	// no slab has.
	groups map[place.Group]uint8
	admits int64
}

// wanted is a row, the bytes that it takes in a slab, and bits of slabs: those that it is to be in, and those where it needs a new slot.
type wanted struct {
	key            uint64
	bytes          int32
	slabs, missing uint8
}

// ranking is the policy's ranking: blocks of rankedKeys keys, the last one shorter. The memory serves one cycle after the other.
type ranking struct {
	blocks [][]uint64
	// The words of one block's rows in the index, and which of the rows need no plan.
	words []slab.Location
	done  []bool
}

const rankedKeys = 1 << 16

// add adds the next best row.
func (r *ranking) add(key uint64) {
	last := len(r.blocks) - 1
	if last < 0 || len(r.blocks[last]) == rankedKeys {
		if last++; last < cap(r.blocks) {
			r.blocks = r.blocks[:last+1] // as an earlier cycle left it
		} else {
			r.blocks = append(r.blocks, nil)
		}
		if last > 0 && r.blocks[last] == nil { // the first one grows to what small tables need
			r.blocks[last] = make([]uint64, 0, rankedKeys)
		}
		r.blocks[last] = r.blocks[last][:0]
	}
	r.blocks[last] = append(r.blocks[last], key)
}

// release gives memory back that is cheap to allocate again.
func (r *ranking) release() {
	if len(r.blocks) <= 1 {
		*r = ranking{}
	}
}

// find finds the rows of a block in the index, and adds them to ranked. If the slabs are full, rows that are not cached, and whose row bits say that they are
// rejected, need no plan. Nearly all of this is waiting for memory, so all processors do it.
func (r *ranking) find(m *hashmap.Map, tables []*read.Table, ranked []read.Bitset, keys []uint64, full bool) {
	if len(r.words) < len(keys) {
		r.words, r.done = make([]slab.Location, len(keys)), make([]bool, len(keys))
	}
	host.Workers(0).For(len(keys), 2048, func(from, to int) {
		words, done := r.words[from:to], r.done[from:to]
		m.FindAll(keys[from:to], words)
		for i, key := range keys[from:to] {
			table, row := hashmap.SplitKey(key)
			if table >= len(tables) {
				done[i] = true
				continue
			}
			now, _ := tables[table].Cacheable()
			done[i] = row >= now || full && !words[i].Valid() && tables[table].Rejected.HasShared(row) ||
				!ranked[table].AddOnce(row)
		}
	})
}

// rank asks the policy for its ranking. The policy is busy until rank returns, but learns on while a plan is made of the ranking.
func (w *Writer) rank() (*ranking, error) {
	r := &w.cycle.ranking
	r.blocks = r.blocks[:0]
	limit := w.limits()
	err := w.learner.Call(func(policy admission.Policy) {
		if len(w.set.Devices) > 1 && place.DecideAt(w.Counts.Cycles.Load()+1) {
			w.store.Hot.Decide(w.store, policy, limit)
		}
		for key := range policy.Rank() {
			r.add(key)
		}
	})
	return r, err
}

// plan makes a plan from a ranking.
func (w *Writer) plan(r *ranking) (*plan, error) { return w.planOf(r, w.o.MaxBytes) }

// planOf makes a plan to write at most so many bytes.
func (w *Writer) planOf(r *ranking, most int64) (*plan, error) {
	b := planner{w: w, most: most, p: &plan{groups: map[place.Group]uint8{}}, used: make([]int64, len(w.set.Devices)), hot: w.store.Hot.Bytes.Load()}
	b.limit = w.limits()
	for _, t := range w.set.Tables {
		_, most := t.Cacheable()
		b.p.ranked = append(b.p.ranked, read.NewBitset(most))
	}
	var failed error
	for _, keys := range r.blocks {
		r.find(w.mu.index.m, w.set.Tables, b.p.ranked, keys, b.full())
		for i, key := range keys {
			if !r.done[i] {
				b.add(key, r.words[i])
			}
		}
		failed = errors.Join(failed, inParts(w, nil, b.rejected, w.mu.index.reject))
		b.rejected = b.rejected[:0]
	}
	return b.p, failed
}

// planner makes a plan row by row, the best first.
type planner struct {
	w           *Writer
	p           *plan
	limit, used []int64  // bytes of each slab
	hot         int64    // bytes of rows that are copied to every slab
	bytes, most int64    // to be written, and how many there may be
	ranked      int64    // bytes of all rows so far
	entries     int64    // rows to be cached so far
	rejected    []uint64 // rows that do not fit and whose row bit does not say so
}

// fits returns the bits of those slabs of targets that have room for n bytes. Rows that are equal to the row are planned for the slabs of shared: there it
// takes a map slot alone.
func (b *planner) fits(targets uint8, n int, shared uint8) (slabs uint8) {
	for i := range place.SlabsOf(targets) {
		if shared>>i&1 != 0 && b.entries < b.w.mostEntries() || shared>>i&1 == 0 && b.used[i]+int64(n) <= b.limit[i] {
			slabs |= 1 << i
		}
	}
	return slabs
}

// mostEntries is how many rows the maps are made for.
func (w *Writer) mostEntries() int64 {
	return int64(hashmap.Load * float64(w.store.Space.Load().Layout.Slots()))
}

// full says whether no slab has room for any row.
func (b *planner) full() bool {
	smallest := int(b.w.store.Space.Load().Smallest)
	return b.fits(1<<len(b.used)-1, smallest, 0) == 0
}

// add plans for a row, whose word in the index is l.
func (b *planner) add(key uint64, l slab.Location) {
	w, p := b.w, b.p
	table, row := hashmap.SplitKey(key)
	t := w.set.Tables[table]
	now := w.mu.index.cachedAt(key, l)
	cached := now.Valid()
	group, _, equal := w.store.SharedSlots.Of(now.First)
	if !cached {
		group, _, equal = w.store.GroupOf(key)
	}
	var shared, there uint8
	if equal {
		shared, there = p.groups[group], w.store.SharedSlots.Slabs(group)
	}
	targets := w.store.Targets(key, b.ranked < b.hot, now)
	n := int(w.store.Space.Load().Smallest)
	if cached {
		n = w.store.SlotBytes(key, now.First)
	} else if b.fits(targets, n, shared) != 0 { // if no slab has room, its length is not read: that would be a cache miss for nothing
		var err error
		if n, err = t.Tier.SlotBytes(row); err != nil {
			return // a corrupt row is for Gather to report
		}
	}
	if shared == 0 {
		b.ranked += int64(n)
	}
	if b.ranked > b.hot { // it may be the last one to be copied, or not
		targets = w.store.Targets(key, false, now)
	}
	into := b.fits(targets, n, shared)
	for i := range place.SlabsOf(into &^ shared) {
		b.used[i] += int64(n)
	}
	if into != 0 {
		b.entries++
	}
	if equal && into != 0 {
		p.groups[group] = shared | into
	}
	have := now.Slabs()
	if into != 0 && into&^have != 0 {
		missing := into &^ (have | shared | there)
		if b.bytes += int64(n * bits.OnesCount8(missing)); b.bytes <= b.most {
			p.newcomers = append(p.newcomers, wanted{key, int32(n), into, missing})
			if !cached {
				p.admits++
			}
		}
	}
	switch {
	case into != 0 && have&^into != 0:
		p.fewer = append(p.fewer, wanted{key, int32(n), into, 0})
	case into == 0 && cached:
		p.surplus = append(p.surplus, key)
	case into == 0 && !t.Rejected.HasShared(row):
		b.rejected = append(b.rejected, key)
	}
}

// hasSlot reports whether a row has a slot in a device's slab.
func (w *Writer) hasSlot(key uint64, device int) bool {
	return w.mu.index.cached(key).Slabs()>>device&1 != 0
}

// victims yields the cached rows of one device that may be evicted, those worth least first. Those whose slot is to stay, because equal rows are ranked high,
// are among them only if all is true.
func (w *Writer) victims(p *plan, device int, all bool) iter.Seq[uint64] {
	stays := func(key uint64) bool {
		if all || len(p.groups) == 0 {
			return false
		}
		l, _ := w.mu.index.cached(key).In(device)
		g, _, shared := w.store.SharedSlots.Of(l)
		return shared && p.groups[g]>>device&1 != 0
	}
	return func(yield func(uint64) bool) {
		for key := range w.mu.index.m.All() {
			table, row := hashmap.SplitKey(key)
			if !p.ranked[table].Has(row) && w.hasSlot(key, device) && !stays(key) && !yield(key) {
				return
			}
		}
		for i := len(p.surplus) - 1; i >= 0; i-- {
			if w.hasSlot(p.surplus[i], device) && !stays(p.surplus[i]) && !yield(p.surplus[i]) {
				return
			}
		}
	}
}

// crowd returns rows to evict because the maps, rather than the slabs, have no room for the newcomers: where equal rows share slots.
func (w *Writer) crowd(p *plan) (keys []uint64) {
	if !w.store.SharedSlots.Any() {
		return nil
	}
	over := p.admits - w.mostEntries()
	for _, t := range w.set.Tables {
		over += t.Counts.Cached.Load()
	}
	over = min(over, int64(w.o.MaxChurn*float64(w.mostEntries())))
	for i := range w.set.Devices {
		for key := range w.victims(p, i, true) {
			if over <= int64(len(keys)) {
				return keys
			}
			if bits.TrailingZeros8(w.mu.index.cached(key).Slabs()) == i { // else another device has it, too
				keys = append(keys, key)
			}
		}
	}
	return keys
}
