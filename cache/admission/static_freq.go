package admission

import (
	"iter"
	"slices"
)

var _ = register(Spec{Name: "static-freq", New: simple(NewStaticFrequency)})

// NewStaticFrequency returns the policy that ranks rows by their frequency in the training batches, times the time that a hit
// saves, per byte of device memory (pre-sampling, as in GNNLab, EuroSys '22). The first Rank that yields a row is final; later
// accesses are ignored. Until then the policy takes 4 bytes of host memory a row.
func NewStaticFrequency() Policy {
	return &staticFrequency{name: "static-freq", value: func(p *Problem, key uint64, n float64) float64 {
		return n * p.savedPerByte(key)
	}}
}

// staticFrequency ranks rows by a function of their frequency.
type staticFrequency struct {
	name    string
	value   func(p *Problem, key uint64, frequency float64) float64
	problem Problem
	counts  counts   // nil after the final ranking
	ranked  []uint64 // the final ranking, or empty
}

func (s *staticFrequency) Name() string { return s.name }

func (s *staticFrequency) Start(p Problem) error {
	s.problem, s.counts = p, newCounts(p)
	return nil
}

func (s *staticFrequency) Observe(table int, rows []int64) {
	if len(s.ranked) == 0 {
		s.counts.observe(table, rows)
	}
}

func (s *staticFrequency) Rank() iter.Seq[uint64] {
	if len(s.ranked) == 0 {
		s.ranked = scores(s.counts.each(func(key uint64, n float64) float64 { return s.value(&s.problem, key, n) }))
		if len(s.ranked) != 0 {
			s.counts = nil
		}
	}
	return slices.Values(s.ranked)
}

func (s *staticFrequency) Resize(int64) {}

func (s *staticFrequency) Close() { s.counts, s.ranked = nil, nil }
