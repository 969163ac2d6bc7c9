package sim

import (
	"context"

	"github.com/tensorcache/tensorcache/bench/sim/demand"
)

// Belady returns what the clairvoyant cache achieves that is filled on every miss, evicts the row whose next access is
// the latest, and declines rows that would be evicted next: the ceiling of hit ratio for rows of one size. Its cache has
// places rows and starts empty.
func Belady(s *Stream, places int) *Outcome {
	cursor := s.Batches.NewCursor()
	t := &demand.Trace{Rows: len(s.Slot)}
	measured := 0
	var rows []int64
	for i := range s.Batches.Batches() {
		if i == s.Warmup {
			measured = len(t.IDs)
		}
		rows = cursor.Batch(i, rows[:0])
		for _, r := range rows {
			t.IDs = append(t.IDs, uint32(r))
		}
	}
	t.PrepareFuture()
	p, err := demand.Lookup("beladybypass")
	if err != nil {
		panic(err)
	}
	out, err := t.Run(context.Background(), p, demand.Config{Capacity: int64(places)}, measured)
	if err != nil {
		panic(err) // of places below 1
	}
	return &Outcome{Lookups: out.Requests, Hits: out.Requests - out.Misses}
}
