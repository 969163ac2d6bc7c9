package sim

import "container/heap"

// Belady returns what the clairvoyant cache achieves that is filled on every miss, evicts the row whose next access is
// the latest, and declines rows that would be evicted next: the ceiling of hit ratio for rows of one size. Its cache has
// places rows and starts empty.
func Belady(s *Stream, places int) *Outcome {
	cursor := s.Batches.NewCursor()
	var trace []int64
	measured := 0
	for i := range s.Batches.Batches() {
		if i == s.Warmup {
			measured = len(trace)
		}
		trace = cursor.Batch(i, trace)
	}
	const never = 1<<63 - 1
	next := make([]int64, len(trace))
	last := make([]int64, len(s.Slot))
	for r := range last {
		last[r] = never
	}
	for i := len(trace) - 1; i >= 0; i-- {
		next[i] = last[trace[i]]
		last[trace[i]] = int64(i)
	}
	out := &Outcome{}
	due := make([]int64, len(s.Slot)) // of cached rows, when they are accessed next; 0: not cached
	var queue latest
	held := 0
	for i, r := range trace {
		if i >= measured {
			out.Lookups++
		}
		if due[r] != 0 {
			if i >= measured {
				out.Hits++
			}
		} else {
			held++
		}
		due[r] = next[i]
		heap.Push(&queue, access{r, next[i]})
		for held > places {
			a := heap.Pop(&queue).(access)
			if due[a.row] == a.at { // else it was accessed since
				due[a.row] = 0
				held--
			}
		}
	}
	return out
}

// access is when a row is accessed.
type access struct{ row, at int64 }

// latest is a heap with the latest access on top.
type latest []access

func (q latest) Len() int           { return len(q) }
func (q latest) Less(i, j int) bool { return q[i].at > q[j].at }
func (q latest) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *latest) Push(a any)        { *q = append(*q, a.(access)) }
func (q *latest) Pop() any {
	a := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return a
}
