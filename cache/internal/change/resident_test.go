package change

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tensorcache/tensorcache/cache/internal/read"
)

// Numbers of batches are distinct, begin at 1, and are given again when their batch has left.
func TestResidents_Numbers(t *testing.T) {
	r := residents{batches: map[uint32]*residentBatch{}}
	for i := range read.Batches - 1 {
		n, ok := r.next()
		if !ok || n == 0 || r.batches[n] != nil {
			t.Fatalf("batch %d has number %d, %v", i, n, ok)
		}
		r.batches[n] = &residentBatch{number: n}
	}
	if n, ok := r.next(); ok {
		t.Fatalf("number %d for one batch too many", n)
	}
	delete(r.batches, 77)
	if n, ok := r.next(); !ok || n != 77 {
		t.Errorf("number %d, %v, and 77 is free", n, ok)
	}
}

// Of rows that are given several times the last one is left, in the order of these.
func TestLastOfEach(t *testing.T) {
	r := rand.New(rand.NewPCG(22, 8))
	for _, n := range []int{0, 1, 2, 10, 1000, 5000} {
		for _, of := range []int{1, 7, n + 1, 100 * (n + 1)} {
			rows, data := make([]int64, n), make([]byte, 2*n)
			last := map[int64]int{}
			for i := range rows {
				rows[i], data[2*i], data[2*i+1] = int64(r.IntN(of)), byte(i), byte(i>>8)
				last[rows[i]] = i
			}
			var want []int64
			var bytesOf []byte
			for i, row := range rows {
				if last[row] == i {
					want, bytesOf = append(want, row), append(bytesOf, data[2*i:2*i+2]...)
				}
			}
			got, kept := lastOfEach(rows, data, 2)
			for done := 0; done < len(got); done += 1 + len(got)/5 { // an Update that ends early
				k := prefixOf(rows, got, done)
				if k < 0 || k > n || slices.ContainsFunc(rows[:k], func(row int64) bool { return !slices.Contains(got[:done], row) }) || slices.Contains(got[:done], rows[k]) {
					t.Errorf("%d rows of %d: the first %d count as replaced when %d of %d left are", n, of, k, done, len(got))
				}
			}
			if !slices.Equal(got, want) || !bytes.Equal(kept, bytesOf) {
				t.Errorf("%d rows of %d: %d are left, want %d", n, of, len(got), len(want))
			}
		}
	}
}
