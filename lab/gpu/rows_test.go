package gpu

import (
	"math"
	"slices"
	"testing"
	"unsafe"
)

// TestScatter_Permutes: every number comes once, and neighbours do not stay neighbours.
func TestScatter_Permutes(t *testing.T) {
	t.Parallel()
	for _, n := range []int64{1, 2, 3, 7, 64, 1000, 65537} {
		seen := make([]bool, n)
		near := 0
		for x := range n {
			y := scatter(x, n)
			if y < 0 || y >= n || seen[y] {
				t.Fatalf("scatter(%d, %d) = %d, which came before or is out of range", x, n, y)
			}
			seen[y] = true
			if x > 0 && max(y-scatter(x-1, n), scatter(x-1, n)-y) <= n/100 {
				near++
			}
		}
		if n >= 1000 && int64(near) > n/20 {
			t.Errorf("n = %d: %d neighbours lie within 1 %% of each other", n, near)
		}
	}
}

// TestPowerLawRows_Tail: each octave of ranks gets as many draws as the others, and its rows lie anywhere.
func TestPowerLawRows_Tail(t *testing.T) {
	t.Parallel()
	const from, to, n = 1 << 10, 1 << 16, 60_000
	rank := map[int64]int64{}
	for r := range int64(to - from) {
		rank[from+scatter(r, to-from)] = from + r
	}
	var octaves [6]int
	low := 0
	for _, row := range powerLawRows(n, from, to, 1) {
		r, ok := rank[row]
		if !ok {
			t.Fatalf("row %d is out of range", row)
		}
		octaves[int(math.Log2(float64(r)))-10]++
		if row < (from+to)/2 {
			low++
		}
	}
	for i, k := range octaves {
		if math.Abs(float64(k)-n/6) > n/60 {
			t.Errorf("octave %d: %d of %d draws, want a sixth", i, k, n)
		}
	}
	if math.Abs(float64(low)-n/2) > n/20 {
		t.Errorf("%d of %d rows lie in the lower half", low, n)
	}
}

func TestSectors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		addr uintptr
		n    int
		want int64
	}{{0, 0, 0}, {0, 1, 32}, {0, 32, 32}, {0, 33, 64}, {31, 1, 32}, {31, 2, 64}, {4, 28, 32}, {4, 29, 64}, {20, 450, 480}, {20, 493, 544}} {
		if got := sectors(c.addr, c.n); got != c.want {
			t.Errorf("%d bytes at %d touch %d bytes of sectors, want %d", c.n, c.addr, got, c.want)
		}
	}
}

func TestPattern_Fill(t *testing.T) {
	t.Parallel()
	p := sparse(4 << 20)
	ones := 0
	for _, x := range unsafe.Slice((*float32)(unsafe.Pointer(&p[0])), len(p)/4) {
		switch x {
		case 1:
			ones++
		case 0:
		default:
			t.Fatalf("element %g must be 0 or 1", x)
		}
	}
	if share := float64(ones) / float64(len(p)/4); math.Abs(share-density) > 0.001 {
		t.Errorf("density %.4f, want %.2f", share, density)
	}
	table := make([]byte, len(p)+1000)
	p.fill(table)
	if !slices.Equal(table[:len(p)], p) || !slices.Equal(table[len(p):], p[:1000]) {
		t.Error("the table does not repeat the pattern")
	}
}

// TestPattern_FillApart: rows of other repetitions differ, but for signs of 16 values; what is left of the table behind whole rows stays as the pattern has it.
func TestPattern_FillApart(t *testing.T) {
	t.Parallel()
	const rowBytes, rows, repeats, behind = 33, 5, 300, 20
	p := make(pattern, rows*rowBytes)
	for i := range p {
		p[i] = byte(i / rowBytes * 7)
	}
	table := make([]byte, repeats*len(p)+behind)
	p.fillApart(table, rowBytes)
	seen := map[string]bool{}
	for at := 0; at+rowBytes <= len(table); at += rowBytes {
		row, from := table[at:at+rowBytes], p[at%len(p):]
		seen[string(row)] = true
		for i, b := range row {
			if b != from[i] && (i >= 16 || b != from[i]^0x80) {
				t.Fatalf("byte %d of the row at %d is %#x, in the pattern %#x", i, at, b, from[i])
			}
		}
	}
	if len(seen) != rows*repeats {
		t.Errorf("%d rows differ, want %d", len(seen), rows*repeats)
	}
	if !slices.Equal(table[:len(p)], p) || !slices.Equal(table[repeats*len(p):], p[:behind]) {
		t.Error("the first repetition, or the end, is not the pattern's")
	}
}
