package demand

import (
	"cmp"
	"slices"

	"github.com/tensorcache/tensorcache/bench/trace"
)

// staticOptimal holds from the start the rows with the most gets per byte, and never others: the best that a cache that does not
// change can be, with rows of one size. With sizes it is the greedy choice.
type staticOptimal struct{ held []bool }

func newStaticOptimal(c Config) cache {
	counts := make([]int64, c.rows)
	for i, id := range c.trace.IDs {
		if c.trace.Ops == nil || c.trace.Ops[i] == trace.Get {
			counts[id]++
		}
	}
	order := make([]uint32, 0, c.rows)
	for row, n := range counts {
		if n > 0 {
			order = append(order, uint32(row))
		}
	}
	slices.SortFunc(order, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(float64(counts[b])/float64(c.bytes(b)), float64(counts[a])/float64(c.bytes(a))), cmp.Compare(a, b))
	})
	s := &staticOptimal{held: make([]bool, c.rows)}
	room := c.Capacity
	for _, row := range order {
		if size := c.bytes(row); size <= room {
			s.held[row] = true
			room -= size
		}
	}
	return s
}

func (s *staticOptimal) access(row uint32) bool { return s.held[row] }
func (s *staticOptimal) remove(row uint32)      { s.held[row] = false }
