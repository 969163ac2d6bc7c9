package learn

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestPopularity_ForetellsHits: by a sample of the lookups, what any number of cached rows will get of others.
func TestPopularity_ForetellsHits(t *testing.T) {
	const rows, batches, size = 20_000, 40, 4000
	for name, draw := range map[string]func(r *rand.Rand) int64{
		"uniform": func(r *rand.Rand) int64 { return r.Int64N(rows) },
		// The inverse of a cumulative law: a fifth of the rows get half of the lookups, whatever their numbers.
		"skewed": func(r *rand.Rand) int64 {
			return int64(rows*math.Pow(r.Float64(), math.Log(0.2)/math.Log(0.5))) * 7919 % rows
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			var read []TrainingBatch
			for range batches {
				b := TrainingBatch{Table: 1}
				for range size {
					b.Rows = append(b.Rows, draw(r))
				}
				slices.Sort(b.Rows)
				read = append(read, b, TrainingBatch{0, []int64{5, 5, 5}})
			}
			p := TablePopularity(read, 1, rows)
			// The rows that the whole of the training ranks first, and what they get of further lookups.
			counts := make([]int, rows)
			for _, b := range read {
				if b.Table == 1 {
					for _, row := range b.Rows {
						counts[row]++
					}
				}
			}
			ranking := make([]int64, rows)
			for i := range ranking {
				ranking[i] = int64(i)
			}
			slices.SortStableFunc(ranking, func(a, b int64) int { return counts[b] - counts[a] })
			for _, share := range []float64{0.01, 0.05, 0.2, 0.5, 1} {
				cached := make([]bool, rows)
				for _, row := range ranking[:int(share*rows)] {
					cached[row] = true
				}
				hits := 0
				for range 100_000 {
					if cached[draw(r)] {
						hits++
					}
				}
				got, want := p.HitRatio(share*rows), float64(hits)/100_000
				if math.Abs(got-want) > 0.02 || name == "uniform" && math.Abs(got-share) > 0.01 {
					t.Errorf("%v of the rows: %.4f of the lookups foretold, %.4f hit", share, got, want)
				}
			}
			if p.HitRatio(0) != 0 || math.Abs(p.HitRatio(2*rows)-1) > 1e-9 {
				t.Errorf("none cached: %v, all: %v", p.HitRatio(0), p.HitRatio(2*rows))
			}
		})
	}
}

// TestPopularity_OneBatch: a single sorted batch is halved by turns; too few lookups say nothing.
func TestPopularity_OneBatch(t *testing.T) {
	b := TrainingBatch{Rows: make([]int64, popularLookups)}
	for i := range b.Rows {
		b.Rows[i] = int64(i) * 100 / popularLookups
	}
	p := TablePopularity([]TrainingBatch{b}, 0, 200)
	if got := p.HitRatio(50); math.Abs(got-0.5) > 0.02 {
		t.Errorf("half of what is looked up: %v", got)
	}
	if got := p.HitRatio(100); math.Abs(got-1) > 1e-9 {
		t.Errorf("all of it: %v", got)
	}
	b.Rows = b.Rows[1:]
	if p := TablePopularity([]TrainingBatch{b}, 0, 200); p != nil {
		t.Errorf("%d lookups: %v", len(b.Rows), p)
	}
}

// TestReadAhead_YieldsEveryBatchOnce: the policy sees all batches, in their order, though some were read before; the sequence is asked
// once, and its slices are reused.
func TestReadAhead_YieldsEveryBatchOnce(t *testing.T) {
	for _, lookups := range []int{0, 1, 10, 25, 1000} {
		begun, ended := 0, 0
		training := func(yield func(int, []int64) bool) {
			begun++
			defer func() { ended++ }()
			rows := make([]int64, 10)
			for i := range 5 {
				for j := range rows {
					rows[j] = int64(10*i + j)
				}
				if !yield(i%2, rows) {
					return
				}
			}
		}
		read, all, stop := ReadAhead(training, lookups)
		if want := min(5, (lookups+9)/10); len(read) != want {
			t.Errorf("%d lookups: %d batches read, want %d", lookups, len(read), want)
		}
		next := int64(0)
		for table, rows := range all {
			if table != int(next/10)%2 || len(rows) != 10 {
				t.Errorf("%d lookups: batch of table %d at row %d", lookups, table, next)
			}
			for _, row := range rows {
				if row != next {
					t.Fatalf("%d lookups: row %d, want %d", lookups, row, next)
				}
				next++
			}
		}
		stop()
		if next != 50 || begun != 1 || ended != 1 {
			t.Errorf("%d lookups: %d rows, begun %d times, ended %d", lookups, next, begun, ended)
		}
	}
}
