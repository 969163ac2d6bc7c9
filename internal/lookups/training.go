// Package lookups says from training batches how the rows of a table will be looked up: which rows, and how often. Choosing codecs and dividing host memory
// among tables depend on it.
package lookups

import (
	"cmp"
	"iter"
	"math/rand/v2"
	"runtime"
	"slices"
	"sort"

	"github.com/tensorcache/tensorcache/codec/registry"
	"github.com/tensorcache/tensorcache/device/host"
)

// AheadLookups returns how many lookups of the training batches are read before the tables, which have this number of bytes, are loaded. Each takes 8
// bytes until the policy has learnt from it, and while draw runs about 50. With few of them, the rows of a large table are ranked worse than
// admission will rank them: of 30 M rows, 2 M lookups of 9 M promised 38 % of hits where there were 48 %.
func AheadLookups(bytes float64) int { return int(min(mostAhead, max(leastAhead, bytes/aheadShare))) }

const (
	leastAhead, mostAhead = 2 << 20, 8 << 20
	aheadShare            = 2048 // bytes of tables for a lookup
	// popularLookups are the fewest lookups of a table from which its popularity is told.
	popularLookups = 2048
)

// Batch is one batch of training.
type Batch struct {
	Table int
	Rows  []int64
}

// ReadAhead reads training batches until they end or have lookups rows. all yields them again, once, and then the rest; stop ends the
// reading, and has to be called.
func ReadAhead(t iter.Seq2[int, []int64], lookups int) (read []Batch, all iter.Seq2[int, []int64], stop func()) {
	next, stop := iter.Pull2(t)
	for lookups > 0 {
		table, rows, ok := next()
		if !ok {
			break
		}
		read = append(read, Batch{table, slices.Clone(rows)})
		lookups -= len(rows)
	}
	return read, func(yield func(int, []int64) bool) {
		for _, b := range read {
			if !yield(b.Table, b.Rows) {
				return
			}
		}
		for {
			table, rows, ok := next()
			if !ok || !yield(table, rows) {
				return
			}
		}
	}, stop
}

// Drawing bounds.
const (
	drawnBytes = 4 << 20 // of the rows that are drawn, unless leastDrawn take more
	mostDrawn  = 4096
	leastDrawn = 256
	drawnShare = 8 // at most one in drawnShare rows of a table is drawn, or smallDrawn rows
	smallDrawn = 64
	// One in unseenShare draws is a row that training did not look up.
	unseenShare = 8
	// levelDraws are the fewest draws whose lookups are made to agree with what was counted.
	levelDraws = 16
	// One in mostLater to leastLater of the batches, the last ones, say what later batches look up: as few as have laterLookups. The more rank
	// the rows, the nearer is that to what admission will know; the more count, the less is by chance.
	mostLater, leastLater = 4, 8
	laterLookups          = 4096
)

// draw draws rows of a table that stand for all of it, by how often the training batches look them up, and says how many later lookups
// they get; nil if it knows too few lookups. It counts the first batches, and what the last ones ask of the rows: counts of the
// same lookups would promise rows that were looked up by chance to be so again. Equal batches and seeds give equal draws.
func draw(batches []Batch, table int, rows int64, rowBytes int, seed uint64) []registry.Drawn {
	before, after := split(batches, table)
	if len(before)+len(after) < popularLookups || len(before) == 0 || len(after) == 0 {
		return nil
	}
	before, after = sorted(before, rows), sorted(after, rows)
	seen, asked := count(before, after)
	r := rand.New(rand.NewPCG(seed, 0x647261776e))
	n := min(max(drawnBytes/rowBytes, leastDrawn), mostDrawn, int(max(rows/drawnShare, smallDrawn)))
	drawn := drawSeen(seen, len(before), len(after), n, r)
	return append(drawn, drawUnseen(seen, rows, 1-float64(asked)/float64(len(after)), max(1, n/unseenShare), r)...)
}

// sortedParts is how many parts for each processor a long list is divided into to be sorted.
const sortedParts = 4

// sorted returns row numbers, which are below rows, in order. All processors sort long lists.
func sorted(list []int64, rows int64) []int64 {
	parts := int64(sortedParts * runtime.GOMAXPROCS(0))
	if len(list) < 1<<16 || rows < parts {
		slices.Sort(list)
		return list
	}
	part := func(row int64) int64 { return min(parts-1, max(0, row)/(rows/parts)) }
	ends := make([]int, parts+1) // first the lengths of the parts, then where each begins, and at last where it ends
	for _, row := range list {
		ends[part(row)+1]++
	}
	for i := range parts {
		ends[i+1] += ends[i]
	}
	to := make([]int64, len(list))
	for _, row := range list {
		at := &ends[part(row)]
		to[*at] = row
		*at++
	}
	host.Workers(0).For(int(parts), 1, func(first, end int) {
		for i := first; i < end; i++ {
			from := 0
			if i > 0 {
				from = ends[i-1]
			}
			slices.Sort(to[from:ends[i]])
		}
	})
	return to
}

// split returns a table's lookups in the first batches and in the last.
func split(batches []Batch, table int) (before, after []int64) {
	batches = slices.DeleteFunc(slices.Clone(batches), func(b Batch) bool { return b.Table != table })
	lookups := 0
	for _, b := range batches {
		lookups += len(b.Rows)
	}
	laterShare := min(max(mostLater, lookups/laterLookups), leastLater)
	if len(batches) == 1 { // in turns: batches may be sorted
		for i, row := range batches[0].Rows {
			if i%laterShare != 0 {
				before = append(before, row)
			} else {
				after = append(after, row)
			}
		}
		return before, after
	}
	for i, b := range batches {
		if i < len(batches)-max(1, len(batches)/laterShare) {
			before = append(before, b.Rows...)
		} else {
			after = append(after, b.Rows...)
		}
	}
	return before, after
}

// looked is a row that batches looked up, how often, and how often later ones did.
type looked struct {
	row           int64
	before, after int32
}

// count returns the rows of before, in order, and how many lookups of after ask for them. Both slices are sorted.
func count(before, after []int64) (seen []looked, asked int) {
	j := 0
	for i := 0; i < len(before); {
		l := looked{row: before[i]}
		for ; i < len(before) && before[i] == l.row; i++ {
			l.before++
		}
		for ; j < len(after) && after[j] < l.row; j++ {
		}
		for ; j < len(after) && after[j] == l.row; j++ {
			l.after++
		}
		asked += int(l.after)
		seen = append(seen, l)
	}
	return seen, asked
}

// drawSeen draws n rows, half by their lookups and half with equal chances, those that were looked up equally often in a random order. All are drawn if
// there are no more.
func drawSeen(seen []looked, lookups, later, n int, r *rand.Rand) (drawn []registry.Drawn) {
	order := byLookups(seen, r)
	take := func(l looked, rows float64) {
		drawn = append(drawn, registry.Drawn{Row: l.row, Rows: rows, Count: float64(l.before), Lookups: rows * float64(l.after) / float64(later)})
	}
	// Each draw takes the row at which the sum of the weights reaches the next step.
	sum, next := 0.0, r.Float64()
	from, fromDrawn := 0, 0
	for i, l := range order {
		weight := 0.5*float64(n)/float64(len(order)) + 0.5*float64(n)*float64(l.before)/float64(lookups)
		if len(order) <= n {
			weight = 1
		}
		if weight >= 1 { // it stands for itself
			take(l, 1)
		} else if sum += weight; sum > next {
			take(l, 1/weight)
			next++
		}
		// At the end of a level, rows that were looked up equally often, the draws are made to agree with what was counted.
		if last := i == len(order)-1; last || order[i+1].before != l.before && len(drawn)-fromDrawn >= levelDraws {
			agree(order[from:i+1], drawn[fromDrawn:], later)
			from, fromDrawn = i+1, len(drawn)
		}
	}
	return drawn
}

// byLookups returns the rows, those looked up most often first, and those looked up equally often in a random order.
func byLookups(seen []looked, r *rand.Rand) []looked {
	mixed := slices.Clone(seen)
	r.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
	slices.SortStableFunc(mixed, func(a, b looked) int { return cmp.Compare(b.before, a.before) })
	return mixed
}

// agree scales draws of the rows so that they stand for as many rows and as many later lookups as there are.
func agree(of []looked, drawn []registry.Drawn, later int) {
	rows, lookups, counted := 0.0, 0.0, 0.0
	for _, d := range drawn {
		rows, lookups = rows+d.Rows, lookups+d.Lookups
	}
	for _, l := range of {
		counted += float64(l.after) / float64(later)
	}
	for i := range drawn {
		d := &drawn[i]
		if lookups > 0 {
			d.Lookups *= counted / lookups
		} else {
			d.Lookups = counted * d.Rows / rows
		}
		d.Rows *= float64(len(of)) / rows
	}
}

// drawUnseen draws n of the rows that were not looked up, which together get a share of the later lookups.
func drawUnseen(seen []looked, rows int64, lookups float64, n int, r *rand.Rand) (drawn []registry.Drawn) {
	unseen := rows - int64(len(seen))
	if unseen <= 0 {
		return nil
	}
	n = int(min(int64(n), unseen))
	for i := range n {
		from, to := int64(i)*unseen/int64(n), int64(i+1)*unseen/int64(n)
		row := from + r.Int64N(to-from) // among the rows that are not in seen
		row += int64(sort.Search(len(seen), func(i int) bool { return seen[i].row-int64(i) > row }))
		drawn = append(drawn, registry.Drawn{Row: row, Rows: float64(unseen) / float64(n), Lookups: lookups / float64(n)})
	}
	return drawn
}
