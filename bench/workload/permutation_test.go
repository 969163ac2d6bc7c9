package workload

import (
	"fmt"
	"testing"

	"github.com/tensorcache/tensorcache/internal/race"
)

func TestPermutation_IsBijection(t *testing.T) {
	race.SkipSequential(t)
	sizes := []int{1000, 1023, 1024, 1025, 7919, 65_536, 104_729, 500_000}
	for n := 1; n <= 70; n++ {
		sizes = append(sizes, n)
	}
	for _, n := range sizes {
		for epoch := range uint64(3) {
			p := newPermutation(n, 42, epoch)
			seen := make([]bool, n)
			for i := range n {
				v := p.at(i)
				if v < 0 || v >= n || seen[v] {
					t.Fatalf("n %d, epoch %d: element %d is %d, out of range or repeated", n, epoch, i, v)
				}
				seen[v] = true
			}
		}
	}
}

func TestPermutation_DependsOnSeedAndEpoch(t *testing.T) {
	const n = 10_000
	a, b, c := newPermutation(n, 1, 0), newPermutation(n, 1, 1), newPermutation(n, 2, 0)
	var ab, ac, fixed int
	for i := range n {
		x := a.at(i)
		if x == i {
			fixed++
		}
		if x == b.at(i) {
			ab++
		}
		if x == c.at(i) {
			ac++
		}
	}
	if fixed > 10 || ab > 10 || ac > 10 { // expected: 1 each
		t.Errorf("of %d elements: %d in place, %d as in the next epoch, %d as with another seed", n, fixed, ab, ac)
	}
}

// TestPermutation_IsUniform counts, over many epochs, where each element lands,
// and how the first two elements land together.
func TestPermutation_IsUniform(t *testing.T) {
	for _, n := range []int{2, 3, 4, 5, 7, 16, 17} {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) {
			const epochs = 20_000
			single := make([]int, n*n)
			pair := make([]int, n*n)
			for epoch := range uint64(epochs) {
				p := newPermutation(n, 99, epoch)
				for i := range n {
					single[i*n+p.at(i)]++
				}
				pair[p.at(0)*n+p.at(1)]++
			}
			if x, limit := chiSquare(single, float64(epochs)/float64(n)), chiLimit((n-1)*(n-1)); x > limit {
				t.Errorf("places: chi-square %.0f, want at most %.0f", x, limit)
			}
			var off []int
			for i, c := range pair {
				if i/n != i%n {
					off = append(off, c)
				}
			}
			if x, limit := chiSquare(off, float64(epochs)/float64(n*(n-1))), chiLimit(n*(n-1)-1); x > limit {
				t.Errorf("pairs: chi-square %.0f, want at most %.0f", x, limit)
			}
		})
	}
}
