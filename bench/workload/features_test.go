package workload

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"
	"math"
	"testing"

	"github.com/tensorcache/tensorcache/internal/race"
)

// mustFeatures generates a table that the test takes for valid.
func mustFeatures(t testing.TB, rows, cols int, seed uint64) []byte {
	t.Helper()
	table, err := Features(rows, cols, seed)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestFeatures_Deterministic(t *testing.T) {
	one := atProcs(1, func() []byte { return mustFeatures(t, 5000, 37, 7) })
	two := atProcs(2, func() []byte { return mustFeatures(t, 5000, 37, 7) })
	if !bytes.Equal(one, two) {
		t.Error("the table depends on GOMAXPROCS")
	}
	if bytes.Equal(one, mustFeatures(t, 5000, 37, 8)) {
		t.Error("another seed gives the same table")
	}
	// A longer table starts with the shorter one.
	if !bytes.HasPrefix(mustFeatures(t, 7000, 37, 7), one) {
		t.Error("the first rows depend on how many follow")
	}
}

func TestFeatures_Pinned(t *testing.T) {
	h := fnv.New64a()
	h.Write(mustFeatures(t, 1000, 128, 1))
	if got, want := h.Sum64(), uint64(0xbed72d66382f0b2b); got != want {
		t.Errorf("table of seed 1 hashes to %#x, want %#x: published results would change", got, want)
	}
}

// TestFeatures_ColumnsAreScaledNormals checks each column against N(0, scale²)
// and the logarithms of the scales against N(0, 1).
func TestFeatures_ColumnsAreScaledNormals(t *testing.T) {
	race.SkipSequential(t)
	const rows, cols = 20_000, 200
	table := mustFeatures(t, rows, cols, 9)
	scales := columnScales(cols, 9)
	var zSum, zSquare float64
	for j := range cols {
		var sum, square, fourth float64
		for i := range rows {
			bits := binary.LittleEndian.Uint32(table[(i*cols+j)*4:])
			x := float64(math.Float32frombits(bits)) / scales[j]
			sum += x
			square += x * x
			fourth += x * x * x * x
		}
		// Standard deviations of the estimates: 1, sqrt(2), sqrt(96) over sqrt(rows).
		if m := sum / rows; math.Abs(m) > 5/math.Sqrt(rows) {
			t.Errorf("column %d: mean %g of its scale", j, m)
		}
		if v := square / rows; math.Abs(v-1) > 5*math.Sqrt(2.0/rows) {
			t.Errorf("column %d: variance %g of its scale", j, v)
		}
		if k := fourth / rows; math.Abs(k-3) > 6*math.Sqrt(96.0/rows) {
			t.Errorf("column %d: fourth moment %g of its scale, want 3", j, k)
		}
		z := math.Log(scales[j])
		zSum += z
		zSquare += z * z
	}
	if m := zSum / cols; math.Abs(m) > 4/math.Sqrt(cols) {
		t.Errorf("mean of log scales %g, want 0", m)
	}
	if v := zSquare / cols; math.Abs(v-1) > 4*math.Sqrt(2.0/cols) {
		t.Errorf("variance of log scales %g, want 1", v)
	}
}

func TestFeatures_Shapes(t *testing.T) {
	for _, s := range [][2]int{{1, 1}, {1, featureBlock + 1}, {3, featureBlock}, {featureBlock + 1, 1}, {517, 129}} {
		table := mustFeatures(t, s[0], s[1], 2)
		if len(table) != s[0]*s[1]*4 {
			t.Fatalf("%v: %d bytes", s, len(table))
		}
		zeros := 0
		for i := 0; i < len(table); i += 4 {
			if binary.LittleEndian.Uint32(table[i:]) == 0 {
				zeros++
			}
		}
		if zeros > 2 { // a gap between blocks would leave many
			t.Errorf("%v: %d elements are 0", s, zeros)
		}
	}
}

func TestFeatures_Errors(t *testing.T) {
	for _, c := range []struct {
		rows, cols int
		want       string
	}{
		{0, 128, "workload: features: rows × columns (0 × 128) must be at least 1 × 1 and at most 2305843009213693951"},
		{5, -3, "workload: features: rows × columns (5 × -3) must be at least 1 × 1 and at most 2305843009213693951"},
		{1 << 40, 1 << 30, "workload: features: rows × columns (1099511627776 × 1073741824) must be at least 1 × 1 and at most 2305843009213693951"},
	} {
		if _, err := Features(c.rows, c.cols, 0); err == nil || err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
}

func BenchmarkFeatures(b *testing.B) {
	b.SetBytes(500_000 * 128 * 4)
	for b.Loop() {
		mustFeatures(b, 500_000, 128, 1)
	}
}
