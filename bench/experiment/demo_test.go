package experiment

import (
	"context"
	"math"
	"reflect"
	"testing"

	"github.com/tensorcache/tensorcache/codec/registry"
)

// TestDemo_Tables runs a small demonstration: the three tables are what they are to be, nothing is the same by chance, and the same seed
// gives the same figures.
func TestDemo_Tables(t *testing.T) {
	t.Parallel()
	demo := func(seed uint64) *DemoResult {
		d, err := Demo(t.Context(), DemoConfig{Device: "host", Seed: seed, Scale: 100}, Quiet{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range d.Tables { // what no seed decides
			d.Tables[i].Result.Results.Speed, d.Tables[i].Result.Uncompressed.Speed = Speed{}, Speed{}
		}
		return d
	}
	d := demo(1)
	want := []struct {
		rows     int64
		rowBytes int
		dtype    string
		kind     string
	}{{3000, 512, "float32", "neighbor-sampling"}, {4000, 256, "bfloat16", "dlrm"}, {400, 5732, "float32", "neighbor-sampling"}}
	if len(d.Tables) != len(want) {
		t.Fatalf("%d tables, want %d", len(d.Tables), len(want))
	}
	for i, w := range want {
		r := d.Tables[i].Result
		if r.Table.Rows != w.rows || r.Table.RowBytes != w.rowBytes || r.Table.DType != w.dtype || r.Workload.Kind != w.kind || r.Workload.Batches != demoBatches {
			t.Errorf("%s: %+v, %+v; want %+v", d.Tables[i].Name, r.Table, r.Workload, w)
		}
		if r.Cache.Codec == registry.None || r.Cache.RowsCached <= r.Uncompressed.RowsCached || r.Results.HostBytesMoved >= r.Uncompressed.HostBytesMoved {
			t.Errorf("%s: %s caches %d rows and moves %d bytes, uncompressed %d and %d", d.Tables[i].Name, r.Cache.Codec,
				r.Cache.RowsCached, r.Results.HostBytesMoved, r.Uncompressed.RowsCached, r.Uncompressed.HostBytesMoved)
		}
		if p := r.PredictedGPU; p == nil || !(p.BatchMS > 0 && p.BatchMS <= p.UncompressedMS && p.UncachedMS > 0) {
			t.Errorf("%s: predicted %+v", d.Tables[i].Name, p)
		}
	}
	if again := demo(1); !reflect.DeepEqual(again, d) {
		t.Errorf("the same seed gave %+v, at first %+v", again.Tables[1].Result.Results, d.Tables[1].Result.Results)
	}
	if other := demo(2); other.Tables[0].Result.Results.Hits == d.Tables[0].Result.Results.Hits {
		t.Error("another seed gave the same hits")
	}
}

func TestDemo_Canceled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Demo(ctx, DemoConfig{Device: "host", Scale: 100}, Quiet{}); err == nil {
		t.Error("a canceled demonstration ended without error")
	}
}

// TestRun_OtherBudgets runs caches of the budgets that another run predicts.
func TestRun_OtherBudgets(t *testing.T) {
	t.Parallel()
	base := NewConfig()
	base.Device, base.Vertices, base.Batches, base.TrainBatches, base.BatchSize, base.Codec = "host", 12_000, 20, 20, 64, "ibp4"
	for _, policy := range []string{"freq", "static-degree"} {
		cfg := base
		cfg.Policy = policy
		r, err := Run(t.Context(), cfg, Quiet{})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.OtherBudgets) != 3 {
			t.Fatalf("%s: %+v, want three budgets", policy, r.OtherBudgets)
		}
		for i, b := range r.OtherBudgets {
			if testing.Short() && policy != "freq" && i != 1 {
				continue
			}
			cfg.Budget = []string{"2.5%", "10%", "20%"}[i]
			have, err := Run(t.Context(), cfg, Quiet{})
			if err != nil {
				t.Fatal(err)
			}
			if have.Cache.BudgetBytes != b.BudgetBytes || math.Abs(float64(have.Cache.RowsCached)/float64(b.Rows)-1) > 0.03 ||
				math.Abs(have.Results.HitRatio-b.HitRatio) > 0.02 {
				t.Errorf("%s, %s: %d rows in %d bytes hit %.4f, predicted %+v", policy, cfg.Budget, have.Cache.RowsCached, have.Cache.BudgetBytes, have.Results.HitRatio, b)
			}
		}
	}
}

// TestRun_OtherBudgetsOnlyWhereKnown: what follows its accesses, spans devices, or holds the whole table has no such predictions.
func TestRun_OtherBudgetsOnlyWhereKnown(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"cold":      func(c *Config) { c.Cold = true },
		"devices":   func(c *Config) { c.Devices = 2 },
		"all rows":  func(c *Config) { c.Budget = "300%" },
		"sleek-eb":  func(c *Config) { c.Codec = "sleek-eb:0.01" },
		"one batch": func(c *Config) { c.Batches = 1 },
	} {
		cfg := NewConfig()
		cfg.Device, cfg.Vertices, cfg.Batches, cfg.TrainBatches, cfg.BatchSize = "host", 2000, 5, 5, 16
		change(&cfg)
		r, err := Run(t.Context(), cfg, Quiet{})
		if err != nil {
			t.Fatal(err)
		}
		if known := name == "sleek-eb" || name == "one batch"; known != (len(r.OtherBudgets) > 0) || r.OtherBudgets == nil {
			t.Errorf("%s: other budgets %+v", name, r.OtherBudgets)
		}
		if known := name != "devices" && name != "sleek-eb"; known != (r.PredictedGPU != nil) {
			t.Errorf("%s: predicted %+v", name, r.PredictedGPU)
		}
	}
}
