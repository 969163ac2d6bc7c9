package admission

import (
	"fmt"
	"iter"

	"github.com/tensorcache/tensorcache/hashmap"
)

// savedPerByte is the value of a row: the host bytes that its hits save per slab byte.
func (p *Problem) savedPerByte(key uint64, frequency float64) float64 {
	return frequency * float64(p.StoredBytes(key)) / float64(p.SlotBytes(key))
}

// NewStaticFrequency returns the policy that ranks rows by how often they occur in the training batches, times the host
// bytes a miss moves, per slot byte (pre-sampling, as in GNNLab, EuroSys '22).
func NewStaticFrequency() Policy { return &staticFrequency{name: "static-freq"} }

// NewStaticOptimal returns the ceiling of hit ratio for a static cache: train it with the very batches that will be
// measured, and it ranks rows by their true frequency per slot byte.
func NewStaticOptimal() Policy { return &staticFrequency{name: "static-optimal", hits: true} }

type staticFrequency struct {
	name    string
	hits    bool // rank by hits per byte, not by bytes saved per byte
	problem Problem
	counts  counts
}

func (s *staticFrequency) Name() string { return s.name }

func (s *staticFrequency) Start(p Problem) error {
	s.problem, s.counts = p, newCounts(p)
	return nil
}

func (s *staticFrequency) Observe(table int, rows []int64) { s.counts.observe(table, rows) }

func (s *staticFrequency) Rank() iter.Seq[uint64] {
	return scores(s.counts.each(func(key uint64, n float64) float64 {
		if s.hits {
			return n / float64(s.problem.SlotBytes(key))
		}
		return s.problem.savedPerByte(key, n)
	}))
}

func (s *staticFrequency) Close() { s.counts = nil }

// NewStaticDegree returns the policy that ranks the vertices of each table by in-degree, times the host bytes a miss
// moves, per slot byte (PaGraph, SoCC '20, with in-degree because neighbour sampling follows edges to their targets).
// inDegrees has, for each table, one entry a row; rows beyond its end count as 0. It needs no training.
func NewStaticDegree(inDegrees ...[]uint32) Policy { return &staticDegree{degrees: inDegrees} }

type staticDegree struct {
	problem Problem
	degrees [][]uint32
}

func (s *staticDegree) Name() string { return "static-degree" }

func (s *staticDegree) Start(p Problem) error {
	if len(s.degrees) != len(p.Rows) {
		return fmt.Errorf("admission: in-degrees of %d tables must be given for %d tables", len(s.degrees), len(p.Rows))
	}
	for t, d := range s.degrees {
		if int64(len(d)) > p.Rows[t] {
			return fmt.Errorf("admission: in-degrees of table %d (%d) must not outnumber its rows (%d)", t, len(d), p.Rows[t])
		}
	}
	s.problem = p
	return nil
}

func (s *staticDegree) Observe(int, []int64) {}

func (s *staticDegree) Rank() iter.Seq[uint64] {
	return scores(func(yield func(uint64, float64) bool) {
		for t, degrees := range s.degrees {
			for r, d := range degrees {
				key := hashmap.Key(t, int64(r))
				if d != 0 && !yield(key, s.problem.savedPerByte(key, float64(d))) {
					return
				}
			}
		}
	})
}

func (s *staticDegree) Close() { s.degrees = nil }

func (s *staticFrequency) Resize(capacity int64) { s.problem.Capacity = capacity }
func (s *staticDegree) Resize(capacity int64)    { s.problem.Capacity = capacity }
