package experiment

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// halfEqual writes a table of so many rows of 512 bytes, half of which are like one of a few others, and returns its path.
func halfEqual(t *testing.T, rows, contents int) string {
	t.Helper()
	r := rand.New(rand.NewPCG(7, 8))
	draw := func() []byte {
		row := make([]byte, 0, 512)
		for range 128 {
			row = binary.LittleEndian.AppendUint32(row, math.Float32bits(float32(r.NormFloat64())))
		}
		return row
	}
	some := make([][]byte, contents)
	for i := range some {
		some[i] = draw()
	}
	header := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, 128), }", rows)
	file := bytes.NewBufferString("\x93NUMPY\x01\x00")
	binary.Write(file, binary.LittleEndian, uint16(118))
	fmt.Fprintf(file, "%-117s\n", header)
	for range rows {
		row := draw()
		if r.IntN(2) == 0 {
			row = some[r.IntN(contents)]
		}
		file.Write(row)
	}
	path := filepath.Join(t.TempDir(), "half.npy")
	if err := os.WriteFile(path, file.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestMakePlan_EqualRows: of a table with equal rows, which share slots, what is predicted is within a point of what a cache hits, and takes less memory than if every row
// had a slot of its own.
func TestMakePlan_EqualRows(t *testing.T) {
	features := halfEqual(t, 10_000, 200)
	for tier, policies := range map[string][]string{"inplace": {"freq", "static-freq", "static-optimal", "lru"}, "packed": {"freq"}} {
		if testing.Short() {
			policies = policies[:min(len(policies), 2)]
		}
		c := NewPlanConfig()
		c.Features, c.HostTier, c.Device = features, tier, "host"
		c.Batches, c.TrainBatches, c.BatchSize = 25, 25, 96
		c.Policies, c.Codecs, c.Targets, c.Check = policies, []string{"none"}, []float64{0.6}, true
		res, err := MakePlan(t.Context(), c, Quiet{})
		if err != nil {
			t.Fatal(err)
		}
		apart := c
		apart.NoEqualRows, apart.Check, apart.HostTier = true, false, "inplace"
		alone, err := MakePlan(t.Context(), apart, Quiet{})
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range res.Plans {
			d := 100 * (p.PredictedHitRatio - *p.MeasuredHitRatio)
			t.Logf("%s, %-14s %8d B instead of %8d: predicted %.2f %%, measured %.2f %%", tier, p.Policy, p.BudgetBytes, alone.Plans[i].BudgetBytes, 100*p.PredictedHitRatio, 100**p.MeasuredHitRatio)
			if math.Abs(d) > 1 {
				t.Errorf("%s, %s: predicted %+.2f points off", tier, p.Policy, d)
			}
			if 3*p.BudgetBytes > 2*alone.Plans[i].BudgetBytes {
				t.Errorf("%s, %s: %d bytes, and %d if each row had a slot of its own", tier, p.Policy, p.BudgetBytes, alone.Plans[i].BudgetBytes)
			}
		}
	}
}
