package transfer

import (
	"context"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/tensorcache/tensorcache/device"
	"github.com/tensorcache/tensorcache/device/host"
	"github.com/tensorcache/tensorcache/slab"
)

const (
	// ranked.before has one count for each rankWords words of ranked.rows.
	rankWords = 8
	// setGrain is how many words of a set, or entries of the search, a goroutine takes at a time.
	setGrain = 1 << 12
)

// ranked is a set of rows that can say how many of them come before a given one.
type ranked struct {
	rows   bitset
	before []uint32 // number of rows in the set before every rankWords words
}

// rank prepares at and returns the number of rows. REQUIRES: all rows are set.
func (r *ranked) rank() (n int64) {
	r.before = make([]uint32, (len(r.rows)+rankWords-1)/rankWords)
	for w, word := range r.rows {
		if w%rankWords == 0 {
			r.before[w/rankWords] = uint32(n)
		}
		n += int64(bits.OnesCount64(word))
	}
	return n
}

// at returns how many rows of the set come before one of them, or -1 for a row that is not in the set.
func (r *ranked) at(row int64) int64 {
	if row>>6 >= int64(len(r.rows)) || !r.rows.has(row) {
		return -1
	}
	word := row >> 6
	n := int64(r.before[word/rankWords])
	for _, w := range r.rows[word&^(rankWords-1) : word] {
		n += int64(bits.OnesCount64(w))
	}
	return n + int64(bits.OnesCount64(r.rows[word]&(1<<(row&63)-1)))
}

// groups are the rows of an in-place tier that are equal to others: one group for each content. Each row keeps its
// own place in the tier. Equal rows share a slot in slabs. A row that is written leaves its group. A nil groups is
// empty.
type groups struct {
	ranked          // rows that were in a group when the tier was loaded
	group  []uint32 // the group of each of these rows, in order; 0 once the row has left
	sizes  []uint32 // rows in each group; group 0 is not used
}

// of returns the group of a row, 0 if it has none, and the number of rows in the group.
func (g *groups) of(row int64) (id uint32, rows int64) {
	if g == nil {
		return 0, 0
	}
	if at := g.at(row); at >= 0 {
		id = g.group[at]
		return id, int64(g.sizes[id])
	}
	return 0, 0
}

// leave removes a row from its group, if it has one. It returns how many rows remain in the group.
func (g *groups) leave(row int64) (left int64, ok bool) {
	if g == nil {
		return 0, false
	}
	at := g.at(row)
	if at < 0 || g.group[at] == 0 {
		return 0, false
	}
	id := g.group[at]
	g.group[at] = 0
	g.sizes[id]--
	return int64(g.sizes[id]), true
}

// memory returns the bytes that groups take.
func (g *groups) memory() int64 {
	if g == nil {
		return 0
	}
	return int64(8*len(g.rows) + 4*(len(g.before)+len(g.group)+len(g.sizes)))
}

// grouped are groups that were found: how many rows they have, and the first row of each group, from group 1 on. The
// zero value has no groups.
type grouped struct {
	*groups
	n  int64
	of []int64
}

// groups makes groups of the rows that the search has found. If at most least rows would need no slot of their own,
// only groups of frequent contents are returned. The search cannot be used afterwards.
func (a *duplicates) groups(workers device.Workers, least int64) (found grouped) {
	if !a.on.Load() {
		return a.frequent
	}
	slots, g := a.search.slots, &groups{ranked: ranked{rows: newBitset(a.t.rows)}}
	// each calls f for the entries whose rows others were found equal to.
	each := func(f func(i int, row int64)) {
		workers.For(len(slots), setGrain, func(from, to int) {
			for i := from; i < to; i++ {
				if x := slots[i]; x&equalFound != 0 {
					f(i, rowOf(x))
				}
			}
		})
	}
	// eachFound calls f for the rows that were found equal to an entry's row, in ascending order within each part.
	eachFound := func(f func(row int64, entry uint32, part int)) {
		workers.For(len(a.parts), 1, func(from, to int) {
			for part := from; part < to; part++ {
				for _, r := range a.parts[part].found {
					f(int64(part)*a.rows+int64(r.row), r.entry, part)
				}
			}
		})
	}
	// Groups are numbered in the order of their first rows. So the numbers do not depend on which goroutine came
	// first. Each entry is changed to name the first row of its group.
	each(func(_ int, row int64) { g.rows.setShared(row) })
	type moved struct {
		row   int64
		entry uint32
	}
	later := make([][]moved, len(a.parts)) // rows that entries named before
	eachFound(func(row int64, entry uint32, part int) {
		g.rows.setShared(row)
		for {
			x := atomic.LoadUint64(&slots[entry])
			if rowOf(x) <= row {
				return
			}
			if atomic.CompareAndSwapUint64(&slots[entry], x, equalFound|uint64(row+1)) {
				later[part] = append(later[part], moved{rowOf(x), entry})
				return
			}
		}
	})
	n := g.rank()
	if n == 0 {
		return found
	}
	first := ranked{rows: newBitset(a.t.rows)}
	each(func(_ int, row int64) { first.rows.setShared(row) })
	of := make([]int64, first.rank())
	// From here on an entry holds the number of its group.
	g.group = make([]uint32, n)
	each(func(i int, row int64) {
		number := first.at(row) + 1
		of[number-1], g.group[g.at(row)], slots[i] = row, uint32(number), uint64(number)
	})
	eachFound(func(row int64, entry uint32, _ int) { g.group[g.at(row)] = uint32(slots[entry]) })
	workers.For(len(later), 1, func(from, to int) {
		for part := from; part < to; part++ {
			for _, m := range later[part] {
				g.group[g.at(m.row)] = uint32(slots[m.entry])
			}
		}
	})
	g.sizes = make([]uint32, len(of)+1)
	for _, number := range g.group {
		g.sizes[number]++
	}
	if found = (grouped{g, n, of}); n-int64(len(of)) <= least {
		found = found.frequent(a.t.rows)
	}
	return found
}

// Groups numbers the places and groups of rows that share slots, from len(sizes) on: it sets numbers[row] to one number
// for all rows of one place or group, and appends to sizes how many rows that has. It leaves other rows' numbers
// unchanged. It works on all processors. REQUIRES: no Write or Repack runs.
func (t *Tier) Groups(ctx context.Context, numbers, sizes []uint32) []uint32 {
	workers, first := interruptible{host.Workers(0), ctx}, uint32(len(sizes))
	if t.mode == InPlace && t.groups != nil {
		g := t.groups
		workers.For(len(g.rows), setGrain, func(from, to int) {
			at := g.before[from/rankWords] // setGrain is a multiple of rankWords
			for w := from; w < to; w++ {
				for word := g.rows[w]; word != 0; word &= word - 1 {
					if id := g.group[at]; id != 0 {
						numbers[w<<6+bits.TrailingZeros64(word)] = first + id - 1
					}
					at++
				}
			}
		})
		return append(sizes, g.sizes[1:]...)
	}
	if t.mode == Packed && t.several != nil {
		locations := t.locations()
		eachRow(workers, t.several, func(row int64) { numbers[row] = first + uint32(t.sharers.number(locations[row])) })
		sizes = slices.Grow(sizes, len(t.sharers.rows))
		for _, rows := range t.sharers.rows {
			sizes = append(sizes, uint32(rows))
		}
	}
	return sizes
}

// GroupPlace returns the place that Shared names for the rows of a place or group that Groups has numbered. n is 0 for
// the first one of the tier. REQUIRES: no Write or Repack runs.
func (t *Tier) GroupPlace(n uint32) Place {
	if t.mode == InPlace {
		return Place(n + 1)
	}
	return t.placeAt(t.sharers.offsets[n])
}

// group makes the rows that were found the tier's groups. If they are too few for sharing to pay, only frequent
// contents become groups. REQUIRES: the rows are encoded.
func (t *Tier) group(workers interruptible, a *duplicates) error {
	found := a.groups(workers.Workers, (t.rows-1)/groupedShare)
	g, of := found.groups, found.of
	if g == nil {
		return workers.ctx.Err()
	}
	lengths := make([]int32, len(of))
	workers.For(len(of), packGrain, func(from, to int) {
		for i := from; i < to; i++ {
			if stored, _, err := t.Stored(of[i]); err == nil {
				lengths[i] = int32(slab.SlotBytes(len(stored)))
			}
		}
	})
	if err := workers.ctx.Err(); err != nil {
		return err
	}
	t.groups, t.total.EqualRows = g, found.n
	for i, length := range lengths {
		bytes, rows := int64(length), int64(g.sizes[i+1])
		t.sharing.Add(rows, bytes)
		t.sharedBytes += bytes
		t.total.SlotBytes -= bytes * (rows - 1)
	}
	t.shares.Store(true)
	return nil
}
