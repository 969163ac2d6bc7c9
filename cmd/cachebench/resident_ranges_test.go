package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/tensorcache/tensorcache/bench/experiment"
)

// Rows of two kinds, one behind the other, have a target each: compress, plan and run say the same.
func TestRun_BuddyRanges(t *testing.T) {
	t.Parallel()
	const rows, rowBytes = 2560, 128
	header := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", rows, rowBytes/4)
	file := append([]byte("\x93NUMPY\x01\x00v\x00"), fmt.Appendf(nil, "%-117s\n", header)...)
	r := rand.New(rand.NewPCG(22, 70))
	for i := range rows * rowBytes {
		if b := byte(r.Uint32()); i < rows/2*rowBytes {
			file = append(file, 0)
		} else {
			file = append(file, b&0x7e)
		}
	}
	name := filepath.Join(t.TempDir(), "two.npy")
	if err := os.WriteFile(name, file, 0o600); err != nil {
		t.Fatal(err)
	}
	b := compress(t, "--features", name, "--codec", "zipnn")[0].Buddy
	if len(b.Ranges) != 2 || b.Ranges[0].Rows < rows/2 || b.Ranges[1].FirstRow != b.Ranges[0].Rows || b.Ranges[1].TargetBytes != b.TargetBytes {
		t.Errorf("compress: %+v", b)
	}
	base := []string{"--features", name, "--device", "host", "--batches", "5", "--codec", "zipnn"}
	res := decode[experiment.PlanResult](t, succeed(t, slices.Concat([]string{"plan", "--json", "--policy", "static-freq", "--device-memory", "1GB"}, base)...))
	planned := res.Plans[0].Resident
	ran := run(t, slices.Concat([]string{"--resident", "auto", "--verify", "--gpu-memory", strconv.FormatInt(planned.BudgetBytes, 10)}, base)...)
	if of := ran.Resident; ran.Mismatches != 0 || len(of.Ranges) != 2 || of.Ranges[0].TargetBytes >= of.Ranges[1].TargetBytes || !slices.Equal(of.Ranges, planned.Ranges) ||
		of.TargetBytes != planned.TargetBytes || of.BuddyBytes != planned.BuddyBytes {
		t.Errorf("run: %+v, %d rows differ; plan: %+v", of, ran.Mismatches, planned)
	}
}
