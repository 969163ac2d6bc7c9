package buddy

import (
	"math"
	"slices"
)

const (
	// MostParts is the most parts of a choice: fewer than MaxRanges, so that Retarget finds numbers for others.
	MostParts = 12
	// The border of two parts is that of two blocks. A table has up to mostBlocks blocks of at least leastBlock local numbers: fewer say little of a class of rows.
	mostBlocks, leastBlock = 64, 64
	// Up to mostTargets targets are tried for a part, from the shortest stored length to the longest.
	mostTargets = 64
)

// Limits bound the parts of a choice.
type Limits struct {
	// Bytes is the most bytes of slots on a device.
	Bytes int64
	// Overflow is the largest share of the rows of a part, 0 to 1, that may have overflow.
	Overflow float64
	// Parts is the most parts, 1 to MostParts; 0: MostParts. Each beyond the first must save one in so many of what one part takes, in bytes or in time:
	// that bounds them, and outweighs that batches of several ranges look up each row's target.
	Parts int
}

// ChooseParts chooses the targets of a table, by part. l.Target is not looked at. stored are the lengths of
// its first rows, 1 to l.RowBytes; the others, up to l.Rows, are taken for rows like these. One target is what Histogram.Choose returns. There are several if that saves
// enough, or if no single one fits. If nothing fits, ok is false, and the choice is the one that takes least.
func ChooseParts(l Layout, stored []int32, lim Limits, t Times) (c Choice, ok bool) {
	local, h := l.LocalRows(0), histogramOf(l, stored)
	target, parts := MaxTarget(l.RowBytes), lim.Parts
	if parts == 0 {
		parts = MostParts
	}
	if local > 0 {
		target = int(min(int64(target), lim.Bytes/local))
	}
	one, fits := h.Choose(target, lim.Overflow, t)
	if !fits {
		one = h.Of(h.Least(lim.Overflow).Target, t)
	}
	one.Parts = []Part{{To: local, Target: one.Target}}
	if parts == 1 {
		return one, fits
	}
	b := newBlocks(l, stored, lim.Overflow, t)
	if b == nil {
		return one, fits
	}
	b.parts = parts
	cuts, ok := b.choose(lim.Bytes)
	several := b.exact(l, stored, cuts, t)
	bytes, longer, worth := float64(several.SlotsBytes()), float64(one.SlotsBytes()), 1/float64(parts)
	switch {
	case !fits && (ok || bytes < longer):
		return several, ok
	case ok && (several.Seconds <= (1-worth)*one.Seconds || several.Seconds <= slower*one.Seconds && bytes <= (1-worth)*longer):
		return several, true
	}
	return one, fits
}

// ChooseOne returns what a target amounts to that all rows of a table have: see ChooseParts. It is at most MaxTarget.
func ChooseOne(l Layout, stored []int32, target int, t Times) Choice {
	c := histogramOf(l, stored).Of(min(target, MaxTarget(l.RowBytes)), t)
	c.Parts = []Part{{To: l.LocalRows(0), Target: c.Target}}
	return c
}

// histogramOf returns the histogram of a table's rows. Of a table without rows, those to come are raw: there is nothing to train a codec on.
func histogramOf(l Layout, stored []int32) *Histogram {
	h := NewHistogram(l.RowBytes)
	for _, n := range stored {
		h.Add(int(n), 1)
	}
	if len(stored) == 0 {
		h.Add(l.RowBytes, 1)
	}
	return h
}

// blocks are sums over the first blocks of neighbouring rows of a table: what is between two borders is the difference of two sums.
type blocks struct {
	from    []int64     // the local number where each block begins, and the end
	targets []int       // ascending; the last one holds every row
	rows    []float64   // of the first blocks
	over    [][]float64 // over[i][k] counts the rows of the first i blocks that are longer than target k
	seconds [][]float64 // and their time
	share   float64
	hit     float64 // seconds of a row without overflow
	parts   int     // that there may be
}

// newBlocks returns nil for a table that is too short for several parts.
func newBlocks(l Layout, stored []int32, share float64, t Times) *blocks {
	devices := l.Devices
	loaded, local := (len(stored)+devices-1)/devices, l.LocalRows(0)
	each := max(leastBlock, (loaded+mostBlocks-1)/mostBlocks)
	n := loaded / each // the last one is longer
	if n < 2 {
		return nil
	}
	shortest, longest := slices.Min(stored), slices.Max(stored)
	first, last := steps16(int(shortest)), steps16(int(longest))
	step := max(1, (last-first+mostTargets-2)/(mostTargets-1))
	b := &blocks{share: share, hit: t.Hit}
	for at := first; at < last; at += step {
		b.targets = append(b.targets, at*MinTarget)
	}
	b.targets = append(b.targets, last*MinTarget)
	counts := make([][]float64, n, n+1)
	for i := range counts {
		counts[i] = make([]float64, len(b.targets))
		b.from = append(b.from, int64(i*each))
		end := (i + 1) * each * devices
		if i == n-1 {
			end = len(stored)
		}
		for _, n := range stored[i*each*devices : end] {
			counts[i][(steps16(int(n))-first+step-1)/step]++
		}
	}
	b.from = append(b.from, int64(loaded))
	if more := local - int64(loaded); more > 0 { // rows to come
		tail := make([]float64, len(b.targets))
		for _, of := range counts {
			for k, n := range of {
				tail[k] += n * float64(more) / float64(loaded)
			}
		}
		counts, b.from = append(counts, tail), append(b.from, local)
	}
	b.rows, b.over, b.seconds = []float64{0}, [][]float64{make([]float64, len(b.targets))}, [][]float64{make([]float64, len(b.targets))}
	for i, of := range counts {
		rows, over, seconds := b.rows[i], slices.Clone(b.over[i]), slices.Clone(b.seconds[i])
		for k, n := range of {
			rows += n
			for j := range k {
				over[j] += n
				if n > 0 && t.Overflow != nil {
					seconds[j] += n * t.Overflow(min(b.targets[k], l.RowBytes)-b.targets[j], Over(b.targets[j], l.RowBytes))
				}
			}
		}
		b.rows, b.over, b.seconds = append(b.rows, rows), append(b.over, over), append(b.seconds, seconds)
	}
	return b
}

// steps16 returns bytes in steps of 16, rounded up.
func steps16(bytes int) int { return (bytes + MinTarget - 1) / MinTarget }

// cut is blocks from to to-1, with target number k.
type cut struct{ from, to, k int }

// best returns the target of some blocks that costs least, at so many bytes of slots a second, and the cost.
func (b *blocks) best(from, to int, price float64) (c cut, cost float64) {
	rows, bytes := b.share*(b.rows[to]-b.rows[from]), float64(b.from[to]-b.from[from])
	c, cost = cut{from, to, len(b.targets) - 1}, math.Inf(1)
	over, before := b.over[to], b.over[from]
	for k := len(b.targets) - 1; k >= 0 && over[k]-before[k] <= rows*(1+1e-9); k-- {
		if at := bytes*float64(b.targets[k]) + price*(b.seconds[to][k]-b.seconds[from][k]); at <= cost {
			c.k, cost = k, at
		}
	}
	return c, cost
}

// cheapest returns the parts that cost least, each beyond the first counted as its share, one in b.parts, of what one part costs.
func (b *blocks) cheapest(price float64) []cut {
	n := len(b.from) - 1
	_, one := b.best(0, n, price)
	costs, last := make([]float64, n+1), make([]cut, n+1)
	for to := 1; to <= n; to++ {
		costs[to] = math.Inf(1)
		for from := range to {
			c, cost := b.best(from, to, price)
			if cost += costs[from]; from > 0 {
				cost += one / float64(b.parts)
			}
			if cost < costs[to] {
				costs[to], last[to] = cost, c
			}
		}
	}
	var all []cut
	for to := n; to > 0; to = last[to].from {
		all = append(all, last[to])
	}
	slices.Reverse(all)
	return all
}

// sum returns the bytes of the slots of parts on a device, the rows with overflow, and their time.
func (b *blocks) sum(all []cut) (bytes int64, over, seconds float64) {
	for _, c := range all {
		bytes += (b.from[c.to] - b.from[c.from]) * int64(b.targets[c.k])
		over += b.over[c.to][c.k] - b.over[c.from][c.k]
		seconds += b.seconds[c.to][c.k] - b.seconds[c.from][c.k]
	}
	return bytes, over, seconds
}

// choose returns the parts that take least if overflow places are read within the time of slots, or, if those do not fit, the fastest ones found that do.
func (b *blocks) choose(most int64) (all []cut, ok bool) {
	n := len(b.from) - 1
	enough := b.hit * slower * b.rows[n]
	low := b.cheapest(0)
	bytes, _, seconds := b.sum(low)
	if bytes > most || seconds <= enough {
		return low, bytes <= most
	}
	// Prices are powers of two of the least one that can make a difference, as a row with overflow takes at least so long.
	unit := float64(b.from[n]*MinTarget) / seconds
	from, to := -8., 40.
	high := b.cheapest(unit * math.Exp2(to))
	for to-from > 1./64 {
		mid := b.cheapest(unit * math.Exp2((from+to)/2))
		if bytes, _, seconds = b.sum(mid); bytes <= most && seconds > enough {
			low, from = mid, (from+to)/2
		} else {
			high, to = mid, (from+to)/2
		}
	}
	if bytes, _, _ = b.sum(high); bytes <= most {
		return high, true
	}
	return b.between(low, high, most), true
}

// between returns the fastest of what can be joined of the front of one of two choices and the back of the other: prices do not tell the choices between low,
// which leaves memory, and high, for which there is too little.
func (b *blocks) between(low, high []cut, most int64) []cut {
	_, _, least := b.sum(low)
	best := low
	for at := 1; at < len(b.from)-1; at++ {
		for _, all := range [][]cut{join(low, high, at), join(high, low, at)} {
			bytes, over, seconds := b.sum(all)
			if bytes <= most && over <= b.share*b.rows[len(b.rows)-1] && len(all) <= b.parts &&
				(seconds < least || seconds == least && len(all) < len(best)) {
				best, least = all, seconds
			}
		}
	}
	return best
}

// join returns parts that are those of front up to a block, and from there on those of back.
func join(front, back []cut, at int) (all []cut) {
	for _, c := range front {
		if c.to = min(c.to, at); c.from < c.to {
			all = append(all, c)
		}
	}
	for _, c := range back {
		c.from = max(c.from, at)
		if n := len(all); c.from < c.to && all[n-1].k == c.k {
			all[n-1].to = c.to
		} else if c.from < c.to {
			all = append(all, c)
		}
	}
	return all
}

// exact returns what parts amount to by the stored lengths, with no target longer than the longest row of its part.
func (b *blocks) exact(l Layout, stored []int32, cuts []cut, t Times) (c Choice) {
	rows, over, seconds := 0., 0., 0.
	add := func(h *Histogram, n float64, target int) {
		of := h.Of(target, Times{Overflow: t.Overflow})
		rows, over, seconds = rows+n, over+n*of.Overflow, seconds+n*of.Seconds
	}
	whole := NewHistogram(l.RowBytes)
	for _, of := range cuts {
		p, h := Part{b.from[of.from], b.from[of.to], b.targets[of.k]}, NewHistogram(l.RowBytes)
		first, end := p.From*int64(l.Devices), min(l.Rows, p.To*int64(l.Devices))
		loaded := min(end, int64(len(stored)))
		for _, n := range stored[min(first, loaded):loaded] {
			h.Add(int(n), 1)
			whole.Add(int(n), 1)
		}
		if loaded == end { // no rows to come
			p.Target = min(p.Target, h.Least(0).Target)
		}
		add(h, float64(h.Rows()), p.Target)
		add(whole, float64(end-max(first, loaded)), p.Target)
		c.Parts = append(c.Parts, p)
	}
	c.Overflow, c.Seconds = over/rows, max(t.Hit, seconds/rows)
	bytes := float64(c.SlotsBytes()) / float64(l.LocalRows(0))
	c.Target, c.Gain = int(math.Round(bytes)), float64(l.RowBytes)/bytes
	return c
}
