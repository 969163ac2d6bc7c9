package experiment

import (
	"context"
	"strings"
	"testing"
)

// TestRun_Embedding runs bags of rows, gathered and added up, and compares every row or sum with its source.
func TestRun_Embedding(t *testing.T) {
	for _, pooled := range []bool{false, true} {
		for _, cast := range []string{"", "bf16", "f8e5m2", "f8e4m3/e8m0:32"} {
			cfg := NewConfig()
			cfg.Workload, cfg.Bag, cfg.Pooled, cfg.Cast = Embedding, 7, pooled, cast
			cfg.Vertices, cfg.BatchSize, cfg.Batches, cfg.TrainBatches, cfg.Verify, cfg.Device = 2000, 100, 3, 2, true, "host"
			res, err := Run(context.Background(), cfg, Quiet{})
			if err != nil {
				t.Fatal(err)
			}
			if res.Verification.VerifiedRows != 3*700 || res.Verification.Mismatches != 0 || res.Results.Lookups != 3*700 {
				t.Errorf("pooled %v, %q: %+v, %d lookups", pooled, cast, res.Verification, res.Results.Lookups)
			}
		}
	}
}

// TestRun_PooledOfIntegers is refused.
func TestRun_PooledOfIntegers(t *testing.T) {
	cfg := NewConfig()
	cfg.Workload, cfg.Pooled, cfg.Vertices, cfg.DType = Embedding, true, 100, "int32"
	if _, err := Run(context.Background(), cfg, Quiet{}); err == nil || !strings.Contains(err.Error(), "elements (int32) of table") {
		t.Errorf("%v", err)
	}
}

func TestSumWithin_SeesAWrongSum(t *testing.T) {
	cfg := NewConfig()
	cfg.Workload, cfg.Pooled, cfg.Vertices = Embedding, true, 100
	r := &run{cfg: cfg, progress: Quiet{}}
	if err := r.load(); err != nil {
		t.Fatal(err)
	}
	sum := append([]byte(nil), r.table.Row(3)...)
	if !r.sumWithin([]int64{3}, sum) {
		t.Error("a row is not the sum of itself")
	}
	if sum[7] ^= 1; r.sumWithin([]int64{3}, sum) {
		t.Error("a wrong sum passes")
	}
}

func TestConfig_EmbeddingFaults(t *testing.T) {
	cfg := NewConfig()
	cfg.Workload, cfg.Bag, cfg.Pooled = "graph", -1, true
	err := cfg.Validate()
	for _, want := range []string{`--workload ("graph") must be embedding`, "--bag (-1) must be 1 to", "--pooled means nothing without --workload embedding"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	cfg = NewConfig()
	cfg.Workload, cfg.Graph, cfg.IDs = Embedding, "g.npz", "ids.txt"
	for _, want := range []string{"--workload embedding and --ids (ids.txt) contradict", "--workload embedding and --graph (g.npz) contradict"} {
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}
