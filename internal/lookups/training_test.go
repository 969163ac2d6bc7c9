package lookups

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tensorcache/tensorcache/codec/registry"
)

// promised returns the share of later lookups that draws promise the rows that were looked up most often.
func promised(drawn []registry.Drawn, cached float64) (share float64) {
	drawn = slices.Clone(drawn)
	slices.SortStableFunc(drawn, func(a, b registry.Drawn) int { return cmp.Compare(b.Count, a.Count) })
	for _, d := range drawn {
		part := min(1, cached/d.Rows)
		share += d.Lookups * part
		cached -= d.Rows * part
	}
	return share
}

// TestDraw_ForetellsHits: by a few rows, what any number of cached rows will get of later lookups.
func TestDraw_ForetellsHits(t *testing.T) {
	const rows, batches, size = 20_000, 40, 4000
	for name, next := range map[string]func(r *rand.Rand) int64{
		"uniform": func(r *rand.Rand) int64 { return r.Int64N(rows) },
		// The inverse of a cumulative law: a fifth of the rows get half of the lookups, whatever their numbers.
		"skewed": func(r *rand.Rand) int64 {
			return int64(rows*math.Pow(r.Float64(), math.Log(0.2)/math.Log(0.5))) * 7919 % rows
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			var read []Batch
			for range batches {
				b := Batch{Table: 1}
				for range size {
					b.Rows = append(b.Rows, next(r))
				}
				slices.Sort(b.Rows)
				read = append(read, b, Batch{0, []int64{5, 5, 5}})
			}
			if got := DemandOf(read, 1, rows, 1024, 3).Batch; got != size {
				t.Errorf("batches of %v rows, want %d", got, size)
			}
			// Rows of a kilobyte: few are drawn.
			drawn := draw(read, 1, rows, 1024, 3)
			if again := draw(read, 1, rows, 1024, 3); !slices.Equal(drawn, again) {
				t.Error("another draw with the same seed")
			}
			if len(drawn) < 500 || len(drawn) > 6000 {
				t.Errorf("%d draws", len(drawn))
			}
			of, lookups, seen := 0.0, 0.0, map[int64]bool{}
			for _, d := range drawn {
				of, lookups = of+d.Rows, lookups+d.Lookups
				if d.Row < 0 || d.Row >= rows || seen[d.Row] {
					t.Fatalf("row %d is drawn twice, or outside", d.Row)
				}
				seen[d.Row] = true
			}
			if math.Abs(of-rows) > 1e-3 || math.Abs(lookups-1) > 1e-6 {
				t.Errorf("draws stand for %v rows and %v of the lookups", of, lookups)
			}
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
					if cached[next(r)] {
						hits++
					}
				}
				got, want := promised(drawn, share*rows), float64(hits)/100_000
				if t.Logf("%v of the rows: %.4f of the lookups foretold, %.4f hit", share, got, want); math.Abs(got-want) > 0.02 {
					t.Error("they differ by more than 2 points")
				}
			}
		})
	}
}

// TestDraw_OneBatch: a single sorted batch is parted by turns; too few lookups say nothing.
func TestDraw_OneBatch(t *testing.T) {
	b := Batch{Rows: make([]int64, popularLookups)}
	for i := range b.Rows {
		b.Rows[i] = int64(i) * 100 / popularLookups
	}
	drawn := draw([]Batch{b}, 0, 200, 8, 1)
	if got := promised(drawn, 50); math.Abs(got-0.5) > 0.02 {
		t.Errorf("half of what is looked up: %v", got)
	}
	if got := promised(drawn, 100); math.Abs(got-1) > 1e-9 {
		t.Errorf("all of it: %v", got)
	}
	b.Rows = b.Rows[1:]
	if drawn := draw([]Batch{b}, 0, 200, 8, 1); drawn != nil {
		t.Errorf("%d lookups: %v", len(b.Rows), drawn)
	}
}

// TestDraw_RowsThatTrainingDoesNotKnow: draws of them are rows that no batch looked up, all over the table.
func TestDraw_RowsThatTrainingDoesNotKnow(t *testing.T) {
	b := Batch{Rows: make([]int64, popularLookups)}
	for i := range b.Rows {
		b.Rows[i] = 3 * int64(i%100)
	}
	drawn, unseen, last := draw([]Batch{b, b}, 0, 1000, 8, 1), 0.0, int64(0)
	for _, d := range drawn {
		if known := d.Row < 300 && d.Row%3 == 0; known != (d.Count > 0) {
			t.Errorf("%+v", d)
		}
		if d.Count == 0 {
			unseen, last = unseen+d.Rows, max(last, d.Row)
		}
	}
	if math.Abs(unseen-900) > 1e-6 || last < 900 {
		t.Errorf("draws stand for %v rows that training does not know, the last is %d", unseen, last)
	}
}

// TestByLookups_Order: the most looked up rows first, each once, whichever way they are sorted.
func TestByLookups_Order(t *testing.T) {
	for _, most := range []int32{1, 7, 5000} {
		r := rand.New(rand.NewPCG(1, uint64(most)))
		var seen []looked
		for i := range int64(1000) {
			seen = append(seen, looked{row: i, before: 1 + r.Int32N(most)})
		}
		order := byLookups(seen, r)
		if !slices.IsSortedFunc(order, func(a, b looked) int { return cmp.Compare(b.before, a.before) }) {
			t.Errorf("up to %d lookups: not in order", most)
		}
		slices.SortFunc(order, func(a, b looked) int { return cmp.Compare(a.row, b.row) })
		if !slices.Equal(order, seen) {
			t.Errorf("up to %d lookups: other rows", most)
		}
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
