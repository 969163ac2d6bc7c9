package transfer

import (
	"bytes"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/tensorcache/tensorcache/internal/numa"
	"github.com/tensorcache/tensorcache/slab"
)

const (
	// Of a table in place, equal rows are looked for if at least one of groupedShare rows of a sample is like another. If it is one of
	// groupedShare of all rows, what was found is kept.
	groupedShare = 64
	// groupedRow is the least bytes of rows of which equal ones are looked for: the location words of shorter ones take about what a slot takes.
	groupedRow = 64
	// groupedSample is the most rows of the sample.
	groupedSample = 1 << 14
	// groupedBytes is the bytes of the table for which one row can be found to be like an earlier one. That bounds the memory of groups to
	// 1/20 of the table and a bit a row.
	groupedBytes = 256
	// groupedPart is the bytes of rows that are hashed before they are looked up: they are in the processor's caches still.
	groupedPart = 4 << 20
	// rankWords is the words of groups.rows for which groups.before has one.
	rankWords = 8
)

// groups are the rows of an in-place tier that are equal to others: a group for each content. Every row has its own place; what equal rows share is a slot
// in slabs. A row that is written leaves its group. A nil groups has none.
type groups struct {
	rows   bitset   // that were in a group when the tier was loaded
	before []uint32 // how many of these are before each rankWords words of rows
	group  []uint32 // the group of each of these, in the order of rows; 0 once it has left
	sizes  []uint32 // rows in each group; group 0 is none
}

// at returns where the group of a row is noted, -1 if it never had one.
func (g *groups) at(row int64) int64 {
	if g == nil || row>>6 >= int64(len(g.rows)) || !g.rows.has(row) {
		return -1
	}
	word := row >> 6
	n := int64(g.before[word/rankWords])
	for _, w := range g.rows[word&^(rankWords-1) : word] {
		n += int64(bits.OnesCount64(w))
	}
	return n + int64(bits.OnesCount64(g.rows[word]&(1<<(row&63)-1)))
}

// of returns the group of a row, 0 if it has none, and the number of rows in it.
func (g *groups) of(row int64) (id uint32, rows int64) {
	if at := g.at(row); at >= 0 {
		id = g.group[at]
		return id, int64(g.sizes[id])
	}
	return 0, 0
}

// leave takes a row from its group, if it has one, and returns how many rows stay there.
func (g *groups) leave(row int64) (left int64, ok bool) {
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

// groupParts is how many goroutines look rows up at once. Each has a part of the slots of equalSearch, and the rows whose hashes lie there.
const groupParts = 8

// findGroups finds equal rows of an in-place tier whose rows are encoded, if a sample of its rows says that there are enough of them, as far as
// equalSearch finds them.
func (t *Tier) findGroups(workers interruptible, sample []int64) error {
	if t.rowBytes < groupedRow || !t.repeats(workers, sample) {
		return workers.ctx.Err()
	}
	search, most := t.newEqualSearch(t.total.RawBytes), min(t.rows, t.total.RawBytes/groupedBytes)
	g := &groups{rows: newBitset(t.rows), sizes: []uint32{0}}
	ids, memory := numa.Make[uint32](int64(len(search.slots))) // the group of the row in each slot
	of, more := numa.Make[uint32](most)                        // that of each row that was found, in order; takes pages only as far as it is written
	of = of[:0]
	defer func() { search.memory.Free(); memory.Free(); more.Free() }()
	lengths := make([]int32, len(search.hashes))
	found := make([]foundRow, len(search.hashes))
	copies := newBitset(t.rows)
	var first []int64 // row of each group, from group 1 on
	slots, saved := int64(0), int64(0)
	part := min(int64(len(search.hashes)), max(packGrain, groupedPart/t.host.Stride))
	for from := int64(0); from < t.rows && int64(len(of)) < most; from += part {
		n := int(min(part, t.rows-from))
		workers.For(n, packGrain, func(begin, end int) {
			for i := begin; i < end; i++ {
				search.hashes[i], lengths[i] = t.hash(from + int64(i))
			}
		})
		workers.For(groupParts, 1, func(part, _ int) { t.lookUp(&search, part, from, lengths[:n], found) })
		if err := workers.ctx.Err(); err != nil {
			return err
		}
		for i, f := range found[:n] {
			if f.earlier < 0 || int64(len(of)) == most {
				continue
			}
			bytes := int64(slab.SlotBytes(int(lengths[i])))
			if ids[f.slot] == 0 {
				first, g.sizes = append(first, f.earlier), append(g.sizes, 1)
				ids[f.slot] = uint32(len(first))
				g.rows.set(f.earlier)
				slots += bytes
			}
			saved += bytes
			g.rows.set(from + int64(i))
			copies.set(from + int64(i))
			of = append(of, ids[f.slot])
			g.sizes[ids[f.slot]]++
		}
	}
	n := int64(len(first) + len(of))
	if n == 0 || n*groupedShare < t.rows {
		return nil
	}
	g.before, g.group = make([]uint32, (len(g.rows)+rankWords-1)/rankWords), make([]uint32, n)
	at, next := 0, 0
	for w, word := range g.rows {
		if w%rankWords == 0 {
			g.before[w/rankWords] = uint32(at)
		}
		for ; word != 0; word &= word - 1 {
			if copies.has(int64(w)<<6 + int64(bits.TrailingZeros64(word))) {
				g.group[at] = of[next]
				next++
			}
			at++
		}
	}
	for i, row := range first {
		g.group[g.at(row)] = uint32(i + 1)
	}
	g.sizes = slices.Clip(g.sizes)
	t.groups, t.total.EqualRows, t.sharedBytes = g, n, slots
	t.total.SlotBytes -= saved
	t.shares.Store(true)
	return nil
}

// foundRow is an earlier row that a row is equal to, -1 if there is none, and its slot.
type foundRow struct {
	earlier int64
	slot    uint64
}

// lookUp looks up those rows from row from on, of the given stored lengths, whose hashes are in a part of the slots.
func (t *Tier) lookUp(search *equalSearch, part int, from int64, lengths []int32, found []foundRow) {
	mask, shift := uint64(len(search.slots)-1), max(1, bits.Len64(uint64(len(search.slots)))-1-bits.Len(groupParts-1)) // both slots of a row are in one part
	var group [equalGroup]int
	look := func(rows []int) {
		sum := uint64(0)
		for _, i := range rows { // these loads have no dependencies
			sum += search.slots[search.hashes[i]&mask]
		}
		touch(sum)
		for _, i := range rows {
			row := from + int64(i)
			stored, compressed := t.host.Stored(row)
			stored = stored[:lengths[i]]
			earlier, slot, ok := search.find(row, search.hashes[i], func(earlier int64) bool {
				other, too := t.host.Stored(earlier)
				return compressed == too && bytes.Equal(stored, other[:len(stored)]) // a row's bytes say how many they are
			})
			if !ok {
				earlier = -1
			}
			found[i] = foundRow{earlier, slot}
		}
	}
	n := 0
	for i, length := range lengths {
		if int(search.hashes[i]&mask>>shift) != part {
			continue
		}
		if length < 0 { // it does not read back
			found[i].earlier = -1
			continue
		}
		if group[n] = i; n+1 < len(group) {
			n++
			continue
		}
		look(group[:])
		n = 0
	}
	look(group[:n])
}

// hash returns the hash of a row's stored bytes, and their length, -1 for a row that does not read back.
func (t *Tier) hash(row int64) (hash uint64, length int32) {
	stored, _, err := t.Stored(row)
	if err != nil {
		return uint64(row), -1
	}
	return xxhash.Sum64(stored), int32(len(stored))
}

// repeats says whether it pays to look for equal rows, by a sample: of its rows, one of groupedShare is like the row behind it, or so many are like another row of
// the sample as there would be if one of groupedShare of the table had a single equal row anywhere.
func (t *Tier) repeats(workers interruptible, sample []int64) bool {
	step := len(sample)/groupedSample + 1
	n := len(sample) / step
	hashes := make([]uint64, n)
	var next, equal atomic.Int64
	workers.For(n, packGrain, func(from, to int) {
		for i := from; i < to; i++ {
			row := sample[i*step]
			hashes[i], _ = t.hash(row)
			if row+1 < t.rows {
				if h, _ := t.hash(row + 1); h == hashes[i] {
					next.Add(1)
				}
			}
		}
	})
	slices.Sort(hashes)
	for i, h := range hashes {
		if i > 0 && h == hashes[i-1] || i+1 < n && h == hashes[i+1] {
			equal.Add(1)
		}
	}
	found := float64(equal.Load())
	return next.Load()*groupedShare >= int64(n) || found >= 2 && found*groupedShare*float64(t.rows) >= float64(n)*float64(n)
}
