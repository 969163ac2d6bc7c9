package admission

import (
	"fmt"
	"iter"
	"slices"

	"github.com/tensorcache/tensorcache/hashmap"
)

var _ = register(Spec{Name: "static-degree", Learns: FromGraph, New: func(in Inputs) (Policy, error) {
	degrees := make([][]uint32, len(in.Graphs))
	for t := range in.Graphs {
		degrees[t] = in.Graphs[t].inDegrees()
	}
	return NewStaticDegree(degrees...), nil
}})

// NewStaticDegree returns the policy that ranks the vertices of each table by in-degree, times the time that a hit
// saves, per byte of device memory. It is PaGraph's (SoCC '20), with in-degrees because sampling follows edges to their targets.
// inDegrees has, for each table, one entry a row; rows beyond its end count as 0. The policy needs no training.
func NewStaticDegree(inDegrees ...[]uint32) Policy {
	return &staticScore[uint32]{name: "static-degree", what: "in-degrees", scores: inDegrees}
}

// staticScore ranks rows by scores that do not change.
type staticScore[T uint32 | float32] struct {
	name, what string
	problem    Problem
	scores     [][]T
	ranked     []uint64
}

func (s *staticScore[T]) Name() string { return s.name }

func (s *staticScore[T]) Start(p Problem) error {
	if len(s.scores) != len(p.Rows) {
		return fmt.Errorf("admission: %s of %d tables must be given for %d tables", s.what, len(s.scores), len(p.Rows))
	}
	for t, d := range s.scores {
		if p.Rows[t] == 0 { // a resident table, whose rows are not ranked
			s.scores[t] = nil
			continue
		}
		if int64(len(d)) > p.Rows[t] {
			return fmt.Errorf("admission: %s of table %d (%d) must not outnumber its rows (%d)", s.what, t, len(d), p.Rows[t])
		}
	}
	s.problem = p
	return nil
}

func (s *staticScore[T]) Observe(int, []int64) {}

func (s *staticScore[T]) Rank() iter.Seq[uint64] {
	if s.ranked == nil {
		s.ranked = scores(func(yield func(uint64, float64) bool) {
			for t, rows := range s.scores {
				for r, d := range rows {
					key := hashmap.Key(t, int64(r))
					if d != 0 && !yield(key, float64(d)*s.problem.savedPerByte(key)) {
						return
					}
				}
			}
		})
		s.scores = nil
	}
	return slices.Values(s.ranked)
}

func (s *staticScore[T]) Resize(int64) {}

func (s *staticScore[T]) Close() { s.scores, s.ranked = nil, nil }
