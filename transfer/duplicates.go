package transfer

import (
	"bytes"
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/zeebo/xxh3"
)

const (
	// groupedShare sets when equal rows of an in-place table share slots. They are looked for if at least one of
	// groupedShare rows of a sample is equal to another. They are kept if at least one of groupedShare rows then needs
	// no slot of its own. With fewer it does not pay: a cache that holds few rows seldom holds both rows of a pair,
	// and sharing takes work at every change.
	groupedShare = 3
	// groupedRow is the least length, in bytes, of rows among which equal ones are looked for. With shorter rows,
	// groupedBytes allows too few to be found.
	groupedRow = 128
	// groupedSample is the most rows of the sample.
	groupedSample = 1 << 14
	// groupedBytes bounds how many rows of a part can be found equal to others: one for each groupedBytes bytes of it.
	// This bounds the memory of groups to 1/20 of the table and a bit a row.
	groupedBytes = 256
	// While a table is read, one of probedShare rows is probed: the first ones of each part. Their hashes are compared
	// with the latest probeSlots others.
	probedShare = 128
	probeSlots  = 1 << 14
	// searchedBytes is how many bytes of rows are read at a time when rows are searched as they are read. After longer
	// reads, the first rows would have left the processor's caches.
	searchedBytes = 256 << 10
)

// duplicates is the search for equal rows of an in-place tier, which become groups. Rows are compared before they are
// encoded; equal rows are encoded equally. Once probes have shown enough equal rows, the goroutines that read the
// parts also search them, while the rows are in the processor's caches. Otherwise a sample decides when all rows have
// been read.
type duplicates struct {
	t                *Tier
	rows             int64 // of each part
	parts            []searched
	probe            []uint64 // hashes of probed rows; a hash's place is its remainder by probeSlots
	probed, repeated atomic.Int64
	on               atomic.Bool // search all parts
	start            sync.Once   // creates search once
	search           equalSearch
	frequent         grouped // rows of frequent contents, if the parts were not searched
}

// searched is what was found in one part.
type searched struct {
	done  bool       // all of its rows were searched
	found []foundRow // rows that are equal to another row, in ascending order
}

// foundRow is a row, counted from the first one of its part, and the search entry of the row that it is equal to.
type foundRow struct{ row, entry uint32 }

func (t *Tier) newDuplicates() *duplicates {
	rows := int64(t.partRows())
	return &duplicates{t: t, rows: rows, parts: make([]searched, (t.rows+rows-1)/rows), probe: make([]uint64, probeSlots)}
}

func (a *duplicates) free() { a.search.memory.Free() }

// end returns the number of the row behind a part.
func (a *duplicates) end(part int) int64 { return min(a.t.rows, int64(part+1)*a.rows) }

// row returns the bytes of a row.
func (a *duplicates) row(row int64) []byte {
	return a.t.host.Mem.Bytes()[row*a.t.host.Stride:][:a.t.rowBytes]
}

// step returns how many rows are to be read before read is called for them. If parts are searched, these rows fit a
// processor's own cache. Otherwise they are the whole part.
func (a *duplicates) step() int64 {
	if a.on.Load() {
		return max(1, searchedBytes/int64(a.t.rowBytes))
	}
	return a.rows
}

// read probes or searches rows of a part that have just been read. The rows before them must have been passed to it.
// Other goroutines may call it for other parts.
func (a *duplicates) read(part int, from, end int64) {
	if a.t.rowBytes < groupedRow {
		return
	}
	if !a.on.Load() && a.probes(from, end) {
		a.on.Store(true)
	}
	if a.on.Load() {
		a.look(part, from, end)
	}
}

// probes probes the first of the given rows. It says whether enough of all rows probed so far are equal to others.
func (a *duplicates) probes(from, end int64) bool {
	n := (end - from + probedShare - 1) / probedShare
	repeated := int64(0)
	for row := from; row < from+n; row++ {
		hash := xxh3.Hash(a.row(row))
		at := &a.probe[hash%probeSlots]
		if atomic.LoadUint64(at) == hash {
			repeated++
			continue
		}
		atomic.StoreUint64(at, hash)
	}
	repeated = a.repeated.Add(repeated)
	return repeated > 1 && repeated*groupedShare >= a.probed.Add(n)
}

// look searches rows of a part. The rows before them must have been searched.
func (a *duplicates) look(part int, from, end int64) {
	a.start.Do(func() { a.search = newEqualSearch(a.t.rows*int64(a.t.rowBytes), a.t.rows) })
	mem, stride, rowBytes := a.t.host.Mem.Bytes(), a.t.host.Stride, a.t.rowBytes
	begin, behind := int64(part)*a.rows, a.end(part)
	p, most := &a.parts[part], int(min(behind-begin, max(1, (behind-begin)*int64(rowBytes)/groupedBytes)))
	p.done = end == behind
	var hashes [equalGroup]uint64
	for ; from < end && len(p.found) < most; from += equalGroup {
		group := hashes[:min(equalGroup, end-from)]
		for i := range group {
			group[i] = xxh3.Hash(mem[(from+int64(i))*stride:][:rowBytes])
		}
		a.search.fetch(group)
		first := byte(0)
		for _, hash := range group { // as fetch does for entries, this loads the rows that may be equal
			if other := a.search.peek(hash); other >= 0 {
				first += mem[other*stride]
			}
		}
		touch(uint64(first))
		for i, hash := range group {
			row := from + int64(i)
			if len(p.found) == most || a.t.lacksTail(row, rowBytes) { // a row with lacksTail may not be encoded as its equals are
				break
			}
			of := mem[row*stride:][:rowBytes]
			_, entry, ok := a.search.find(row, hash, func(other int64) bool { return bytes.Equal(of, mem[other*stride:][:rowBytes]) })
			if ok {
				if p.found == nil {
					p.found = make([]foundRow, 0, most)
				}
				p.found = append(p.found, foundRow{uint32(row - begin), uint32(entry)})
			}
		}
	}
}

// finish is called when all rows have been read. If there are enough equal rows, it searches the parts that were not
// searched. Otherwise it looks for rows of frequent contents, of which the sample has examples.
func (a *duplicates) finish(workers interruptible, sample []int64) error {
	var examples []int64
	if !a.on.Load() {
		repeats, frequent := a.repeats(workers, sample)
		a.on.Store(repeats)
		examples = frequent
	}
	switch {
	case !a.on.Load() && len(examples) > 0:
		a.frequent = a.findFrequent(workers, examples)
	case a.on.Load():
		inBackground(func() {
			workers.For(len(a.parts), 1, func(from, to int) {
				for part := from; part < to; part++ {
					if !a.parts[part].done {
						a.look(part, int64(part)*a.rows, a.end(part))
					}
				}
			})
		}).Wait()
	}
	return workers.ctx.Err()
}

// repeats says, from a sample, whether it pays to look for all equal rows. frequent gets one row of each content that
// may be frequent. The sampled rows of such contents are left out. Of the others, one of groupedShare must be equal
// to the row behind it. Or as many must be equal to another sampled row as if one of groupedShare rows of the table
// had a single equal row anywhere.
func (a *duplicates) repeats(workers interruptible, sample []int64) (all bool, frequent []int64) {
	step := len(sample)/groupedSample + 1
	n := len(sample) / step
	rows := make([]sampledRow, n)
	workers.For(n, packGrain, func(from, to int) {
		for i := from; i < to; i++ {
			row := sample[i*step]
			rows[i] = sampledRow{hash: xxh3.Hash(a.row(row)), row: row}
			rows[i].next = row+1 < a.t.rows && xxh3.Hash(a.row(row+1)) == rows[i].hash
		}
	})
	slices.SortFunc(rows, func(a, b sampledRow) int { return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.row, b.row)) })
	// The rows whose contents are not frequent. Of these, how many are equal to the row behind them, and how many to
	// another row of the sample.
	others, next, equal := n, 0, 0
	for from, to := 0, 0; from < n; from = to {
		for to = from; to < n && rows[to].hash == rows[from].hash; to++ {
		}
		if count := to - from; 2*count >= frequentLeast && 2*count*frequentShare >= n {
			frequent = append(frequent, rows[from].row)
			others -= count
			continue
		} else if count > 1 {
			equal += count
		}
		for _, r := range rows[from:to] {
			if r.next {
				next++
			}
		}
	}
	table := float64(a.t.rows) * float64(others) / float64(max(1, n)) // such rows in the table
	all = a.t.rowBytes >= groupedRow && (next > 0 && next*groupedShare >= others || equal >= 2 && float64(equal)*groupedShare*table >= float64(others)*float64(others))
	return all, frequent
}
