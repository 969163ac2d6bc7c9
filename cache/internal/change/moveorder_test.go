package change

import (
	"math/rand/v2"
	"testing"

	"github.com/tensorcache/tensorcache/cache/internal/read"
	"github.com/tensorcache/tensorcache/kernels"
)

// randomSpans returns spans of so many rows whose slots follow each other, up to gap bytes apart.
func randomSpans(r *rand.Rand, rows int64, gap int) (all []read.Span) {
	at := int64(0)
	for from := int64(0); from < rows; {
		to := min(rows, from+1+r.Int64N(rows))
		target := 16 * (1 + r.IntN(6))
		at += int64(r.IntN(gap + 1))
		all = append(all, read.Span{From: from, To: to, Range: &kernels.Range{Target: target, Slot: at - from*int64(target)}})
		from, at = to, at+(to-from)*int64(target)
	}
	return all
}

// Rows that move in the move order, a window at a time, are written over no slot of a row that has not moved: from random slots to others, and from where a
// move that ended early has left the rows to yet others. Each row moves once.
func TestLegs_OverwriteNoRow(t *testing.T) {
	r := rand.New(rand.NewPCG(22, 80))
	for range 400 {
		rows := 1 + r.Int64N(60)
		now := randomSpans(r, rows, 100)
		place := make([][2]int64, rows) // of each row's slot
		put := func(from, end int64, s read.Span) {
			for row := from; row < end; row++ {
				place[row] = [2]int64{s.SlotOf(row), s.SlotOf(row + 1)}
			}
		}
		for _, s := range now {
			put(s.From, s.To, s)
		}
		for range 3 {
			want := randomSpans(r, rows, 0)
			spans := make([]read.Span, rows) // of each row
			for _, s := range now {
				for row := s.From; row < s.To; row++ {
					spans[row] = s
				}
			}
			ends := r.IntN(3) == 0 // early
			moved := make([]bool, rows)
		moving:
			for _, l := range moveOrder(now, want) {
				for l.from < l.end {
					if ends && r.IntN(20) == 0 {
						break moving
					}
					n := min(l.end-l.from, 1+r.Int64N(5))
					from, end := l.from, l.from+n
					if l.down {
						from, end = l.end-n, l.end
						l.end -= n
					} else {
						l.from += n
					}
					for row := range rows {
						if (row < from || row >= end) && place[row][0] < l.to.SlotOf(end) && place[row][1] > l.to.SlotOf(from) {
							t.Fatalf("rows %d to %d move over row %d: from %+v to %+v", from, end-1, row, now, want)
						}
					}
					put(from, end, l.to)
					for row := from; row < end; row++ {
						if moved[row] || row < l.to.From || row >= l.to.To {
							t.Fatalf("row %d moves twice, or to a span that is not its own", row)
						}
						moved[row], spans[row] = true, l.to
					}
				}
			}
			if !ends {
				for _, s := range want {
					for row := s.From; row < s.To; row++ {
						if spans[row].Range != s.Range {
							t.Fatalf("row %d has not moved", row)
						}
					}
				}
			}
			now = nil
			for row := range rows {
				if n := len(now); n > 0 && now[n-1].Range == spans[row].Range {
					now[n-1].To = row + 1
				} else {
					now = append(now, read.Span{From: row, To: row + 1, Range: spans[row].Range})
				}
			}
		}
	}
}
