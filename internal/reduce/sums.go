package reduce

import (
	"math"

	"github.com/tensorcache/tensorcache/dtype"
)

// Sums collects the rows of bags, one row at a time. It is used by one goroutine at a time.
type Sums struct {
	batch             *Batch
	run, group, total []float32
	inRun             int // rows of the run so far, without padding
	runs              int // of the group so far, empty ones included
	first             bool
	Count             int // rows since Begin, without padding
}

// Reset prepares for the pieces of a batch.
func (s *Sums) Reset(b *Batch) {
	s.batch = b
	if cap(s.run) < b.Columns {
		s.run, s.group, s.total = make([]float32, b.Columns), make([]float32, b.Columns), make([]float32, b.Columns)
	}
	s.run, s.group, s.total = s.run[:b.Columns], s.group[:b.Columns], s.total[:b.Columns]
}

// Begin begins a group. first says that it is the first one of its bag.
func (s *Sums) Begin(first bool) { s.inRun, s.runs, s.Count, s.first = 0, 0, 0, first }

// Add adds a row that is not padding.
func (s *Sums) Add(row []byte) {
	switch {
	case s.batch.Mode == Max && (s.inRun > 0 || !s.first):
		if s.inRun == 0 {
			fill(s.run, float32(math.Inf(-1)))
		}
		maxRow(s.run, row, s.batch.Row)
	case s.inRun == 0:
		load(s.run, row, s.batch.Row)
	default:
		addRow(s.run, row, s.batch.Row)
	}
	s.inRun++
	s.Count++
}

// AddWeighted adds the product of a row and a weight.
func (s *Sums) AddWeighted(row []byte, weight float32) {
	if s.inRun == 0 {
		fill(s.run, float32(math.Copysign(0, -1)))
	}
	addWeighted(s.run, row, weight, s.batch.Row)
	s.inRun++
	s.Count++
}

// EndRun ends a run.
func (s *Sums) EndRun() {
	s.first = false
	switch {
	case s.inRun == 0: // nothing but padding
		return
	case s.runs == 0:
		s.run, s.group = s.group, s.run
	default:
		s.combine(s.group, s.run)
	}
	s.inRun = 0
	s.runs++
}

// combine adds the sums of a later part to those of an earlier one.
func (s *Sums) combine(to, of []float32) {
	if s.batch.Mode == Max {
		for i, x := range of {
			if x > to[i] {
				to[i] = x
			}
		}
		return
	}
	for i, x := range of {
		to[i] += x
	}
}

// Group returns the sum of the group that has ended. It is valid until the next Begin. REQUIRES: Count > 0.
func (s *Sums) Group() []float32 { return s.group }

// Finish writes a bag of one group.
func (s *Sums) Finish(out []byte) { s.write(out, s.group, s.Count) }

// FinishGroups writes a bag of several groups, of which it is given the sums and the counts, those without rows included.
func (s *Sums) FinishGroups(out []byte, groups int, of func(i int) (sum []float32, count int)) {
	s.write(out, s.total, s.join(s.total, 0, groups, of))
}

// FinishRuns is FinishGroups for a bag of which the sums of its runs are given.
func (s *Sums) FinishRuns(out []byte, runs int, of func(i int) (sum []float32, count int)) {
	s.FinishGroups(out, (runs+GroupRuns-1)/GroupRuns, func(i int) ([]float32, int) {
		return s.group, s.join(s.group, i*GroupRuns, min((i+1)*GroupRuns, runs), of)
	})
}

// join sets to to the sum of parts from first to end-1, and returns how many rows they have.
func (s *Sums) join(to []float32, first, end int, of func(i int) (sum []float32, count int)) (rows int) {
	for i := first; i < end; i++ {
		sum, count := of(i)
		switch {
		case count == 0:
		case rows == 0:
			copy(to, sum)
		default:
			s.combine(to, sum)
		}
		rows += count
	}
	return rows
}

func (s *Sums) write(out []byte, sum []float32, rows int) {
	switch {
	case rows == 0:
		clear(out)
		return
	case s.batch.Mode == Mean && rows > 1:
		n := float32(rows)
		for i := range sum {
			sum[i] /= n
		}
	}
	store(out, sum, s.batch.Out)
}

// Convert writes a row as elements of another type. sums is memory for as many elements.
func Convert(out []byte, as dtype.Type, row []byte, of dtype.Type, sums []float32) {
	load(sums, row, of)
	store(out, sums, as)
}

func fill(sums []float32, x float32) {
	for i := range sums {
		sums[i] = x
	}
}
