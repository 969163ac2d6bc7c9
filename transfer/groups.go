package transfer

import (
	"math/bits"
	"slices"

	"github.com/tensorcache/tensorcache/slab"
)

// rankWords is the words of ranked.rows for which ranked.before has one.
const rankWords = 8

// ranked is a set of rows that says how many of them are before one.
type ranked struct {
	rows   bitset
	before []uint32 // how many rows are before each rankWords words of rows
}

// rank counts the rows once all are set.
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

// at returns how many rows of the set are before one of them, -1 for a row that is not in the set.
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

// groups are the rows of an in-place tier that are equal to others: a group for each content. Every row has its own place; what equal rows share is a slot
// in slabs. A row that is written leaves its group. A nil groups has none.
type groups struct {
	ranked          // rows that were in a group when the tier was loaded
	group  []uint32 // the group of each of these, in the order of rows; 0 once it has left
	sizes  []uint32 // rows in each group; group 0 is none
}

// of returns the group of a row, 0 if it has none, and the number of rows in it.
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

// leave takes a row from its group, if it has one, and returns how many rows stay there.
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

// grouped are groups that were found: the rows in them, and the first row of each group, from group 1 on. Without groups it is zero.
type grouped struct {
	*groups
	n  int64
	of []int64
}

// groups makes groups of the rows that were found. Unless more than least rows need no slot of their own, they are those of frequent contents.
func (a *alike) groups(least int64) (found grouped) {
	if !a.on.Load() {
		return a.frequent
	}
	first, g := ranked{rows: newBitset(a.t.rows)}, &groups{sizes: []uint32{0}} // first: the row of each entry that others are equal to
	for _, entry := range a.search.slots {
		if entry&equalFound != 0 {
			first.rows.set(rowOf(entry))
		}
	}
	entries := make([]uint32, first.rank()) // of these rows, in their order
	g.rows = slices.Clone(first.rows)
	for part, p := range a.parts {
		for _, f := range p.found {
			g.rows.set(int64(part)*a.rows + int64(f.row))
		}
	}
	n, of := g.rank(), []int64(nil)
	if n == 0 {
		return found
	}
	// Groups are numbered in the order of their first rows, so that the numbers do not depend on which goroutine came first. From here on an entry is the number of
	// its group.
	for i, entry := range a.search.slots {
		if entry&equalFound != 0 {
			entries[first.at(rowOf(entry))] = uint32(i)
			a.search.slots[i] = 0
		}
	}
	g.group = make([]uint32, 0, n)
	next, part, i := 0, 0, 0
	for w, word := range g.rows {
		for ; word != 0; word &= word - 1 {
			bit := bits.TrailingZeros64(word)
			var entry uint32
			if first.rows[w]>>bit&1 != 0 {
				entry = entries[next]
				next++
			} else {
				for i == len(a.parts[part].found) {
					part, i = part+1, 0
				}
				entry = a.parts[part].found[i].entry
				i++
			}
			number := a.search.slots[entry]
			if number == 0 {
				number = uint64(len(g.sizes))
				a.search.slots[entry] = number
				g.sizes, of = append(g.sizes, 0), append(of, int64(w)<<6+int64(bit))
			}
			g.group = append(g.group, uint32(number))
			g.sizes[number]++
		}
	}
	g.sizes = slices.Clip(g.sizes)
	if found = (grouped{g, n, of}); n-int64(len(entries)) <= least {
		found = found.frequent(a.t.rows)
	}
	return found
}

// group notes the groups of the rows that were found, once rows are encoded, unless they are so few that sharing their slots does not pay.
func (t *Tier) group(workers interruptible, a *alike) error {
	found := a.groups((t.rows - 1) / groupedShare)
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
