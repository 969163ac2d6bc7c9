package change

import "github.com/tensorcache/tensorcache/cache/internal/read"

// move is local numbers from to end-1 of a resident table that move to a span one window after the other: from the first on or, if down, from the last.
type move struct {
	from, end int64
	down      bool
	to        read.Span
}

// moveOrder returns in which order rows move from spans to others in place, so that no slot is written over one whose row has not moved. Both have all local
// numbers, and slots that lie in the order of these without overlapping; so do those of a table some of whose rows have moved.
//
// The new slot of row j ends where that of row j + 1 begins. If that is beyond the beginning of row j + 1's old slot, j + 1 moves before j; if it is before the
// end of j's old slot, j moves before j + 1. So first all rows move that begin later than they did, from the last one on; of these each has what it
// needs, as the row behind it either has moved or need not. Then the others move, from the first one on.
func moveOrder(now, want []read.Span) (all []move) {
	var up []move
	for _, n := range want {
		for _, o := range now {
			from, end := max(n.From, o.From), min(n.To, o.To)
			if from >= end || n.Range == o.Range {
				continue
			}
			// Row j begins later if by + j × slope > 0.
			by, slope := n.Slot-o.Slot, int64(n.Target-o.Target)
			first, last := from, end // of those that do
			switch {
			case slope > 0:
				first = min(end, max(from, floorDiv(-by, slope)+1))
			case slope < 0:
				last = max(from, min(end, floorDiv(by-1, -slope)+1))
			case by <= 0:
				last = from
			}
			if first < last {
				all = append(all, move{first, last, true, n})
			} else {
				first, last = end, end
			}
			for _, rest := range [][2]int64{{from, first}, {last, end}} {
				if rest[0] < rest[1] {
					up = append(up, move{rest[0], rest[1], false, n})
				}
			}
		}
	}
	for i, j := 0, len(all)-1; i < j; i, j = i+1, j-1 {
		all[i], all[j] = all[j], all[i]
	}
	return append(all, up...)
}

// floorDiv returns a ÷ b, rounded down. REQUIRES: b > 0.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
